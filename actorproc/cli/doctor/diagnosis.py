"""Findings of ``doctor``: the store, read in a process of its own, and the host around it."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import shlex
import shutil
import signal
import stat
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from actorproc.cli.doctor.enqueued import enqueued_findings
from actorproc.procedure.values.type_names import command_of_module

if TYPE_CHECKING:
    from actorproc.store.reading import StoreOwner

__all__ = ["diagnose"]

_LONGEST = 3600.0
_LISTED = 1000
_SCARCE = 256 << 20
_MAP_FULL = 0.9
_FEW_FILES = 256


def diagnose(path: str) -> dict[str, Any]:
    """The facts and the findings; each finding has a severity (damage, warning, note), words and a next command."""
    from actorproc.store.home import home_of

    home = home_of(path)
    if not home.is_near:
        from actorproc.cli.doctor.database import diagnose_database

        return diagnose_database(path, home)
    place = Path(path).absolute()
    report: dict[str, Any] = {
        "path": str(place),
        "checked_at": None,
        "facts": {},
        "owner": None,
        "damaged": [],
        "findings": [],
        "ok": True,
    }
    findings = report["findings"]
    path = shlex.quote(path)  # from here on it is only part of commands to type
    _host_findings(place, report)
    try:
        (place / "data.mdb").stat()
    except (FileNotFoundError, NotADirectoryError):
        _say(findings, "damage", f"there is no store at {place}", f"actorproc run MODULE --path {path}")
    except OSError as error:
        says = f"user {os.geteuid()} cannot look into {place}: {error.strerror}; run as the user it belongs to"
        _say(findings, "damage", says, f"ls -ld {path}")
    else:
        _read_apart(place, report, path)
        _judge(place, report, path)
    report["ok"] = not any(finding["severity"] == "damage" for finding in findings)
    return report


def _say(findings: list[dict[str, Any]], severity: str, says: str, command: str | None = None) -> None:
    findings.append({"severity": severity, "says": says, "command": command})


def _read_apart(place: Path, report: dict[str, Any], path: str) -> None:
    findings = report["findings"]
    table = "the file"
    finished = False
    miscounts: list[str] = []
    process = subprocess.Popen(  # noqa: S603 - ourselves
        command_of_module("actorproc.cli.doctor.examine", str(place)),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    )
    assert process.stdout is not None
    with process.stdout:
        for line in process.stdout:
            with contextlib.suppress(ValueError):
                found = json.loads(line)
                match found.pop("what"):
                    case "facts":
                        report["facts"] |= found
                    case "table":
                        table = f"the table {found['table']}"
                    case "damaged":
                        if len(report["damaged"]) < _LISTED:
                            report["damaged"].append(found)
                    case "miscounted":
                        if len(miscounts) < _LISTED:
                            miscounts.append(found["says"])
                    case "error":
                        _say(findings, "damage", found["error"], "restore a backup")
                        finished = True
                    case "done":
                        finished = True
    for says in miscounts:
        _say(findings, "warning", says, f"actorproc --path {path} doctor --repair")
    code = process.wait(_LONGEST)
    if not finished:
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        _say(
            findings,
            "damage",
            f"reading {table} killed the process that read it ({how}): pages of the file are missing or unreadable",
            f"actorproc --path {path} doctor --export-good GOOD.json",
        )


def _judge(place: Path, report: dict[str, Any], path: str) -> None:
    facts, findings = report["facts"], report["findings"]
    for row in report["damaged"][:20]:
        hangs = f"; on it hang {', '.join(row['hangs'])}" if row["hangs"] else ""
        _say(findings, "damage", f"{row['table']} {row['key']}: {row['reason']}{hangs}")
    if report["damaged"]:
        _say(
            findings,
            "damage",
            f"{len(report['damaged'])} records are damaged; the manager parks what they belong to and goes on",
            f"actorproc --path {path} doctor --export-good GOOD.json",
        )
    if facts.get("map_size") and facts["file_bytes"] > facts["map_size"] * _MAP_FULL:
        _say(findings, "note", "the map is nearly as large as the file; the manager grows it by itself")
    if facts.get("file_bytes", 0) - facts.get("used_bytes", 0) > max(_SCARCE, facts.get("used_bytes", 0)):
        _say(findings, "note", "most of the file is free space", f"actorproc --path {path} compact")
    stale = facts.get("stale_readers", 0)
    if stale:
        _say(
            findings,
            "note",
            f"readers that died with a snapshot open: {stale}; the next start of a manager clears them",
        )
    from actorproc.store.lmdb.owner_lock import is_suspended

    owner = _owner(place)
    report["owner"] = None if owner is None else {"pid": owner.pid, "host": owner.host}
    if owner is not None and is_suspended(owner):
        _say(
            findings,
            "warning",
            f"process {owner.pid}, the manager, is suspended: nothing goes on",
            f"kill -CONT {owner.pid}",
        )
    findings += enqueued_findings(report, path)
    if owner is None:
        _say(findings, "note", "no manager runs on this store", f"actorproc run MODULE --path {path}")


def _owner(place: Path) -> StoreOwner | None:
    from actorproc.errors import ActorprocError
    from actorproc.store.home import home_of

    try:
        return home_of(place).owner()
    except (OSError, ActorprocError):
        return None


def _host_findings(place: Path, report: dict[str, Any]) -> None:
    facts, findings = report["facts"], report["findings"]
    now = time.time()
    report["checked_at"] = now
    with contextlib.suppress(OSError):
        facts["free_bytes"] = shutil.disk_usage(place if place.exists() else place.parent).free
        if facts["free_bytes"] < _SCARCE:
            _say(findings, "warning", f"only {facts['free_bytes'] >> 20} MiB are free on the disk", "df -h")
    for name in ("", "data.mdb", "lock.mdb", "owner.lock", "signing.key", "control.sock", "blobs"):
        file = place / name
        word = shlex.quote(os.fspath(file))
        with contextlib.suppress(OSError):
            found = file.lstat()
            mode = stat.S_IMODE(found.st_mode)
            if found.st_uid != os.geteuid():
                _say(findings, "warning", f"{file} belongs to user {found.st_uid}", f"sudo chown {os.geteuid()} {word}")
            elif mode & 0o022:
                _say(findings, "damage", f"{file} has mode {mode:04o}: others can write to it", f"chmod go-w {word}")
            elif mode & 0o077:
                _say(findings, "warning", f"{file} has mode {mode:04o}: others can read it", f"chmod go-rwx {word}")
            if found.st_mtime > now + 60:
                _say(findings, "warning", f"{file} was changed in the future: the clock was set back", "date -u")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    facts["open_files"] = soft
    if soft < _FEW_FILES:
        _say(
            findings,
            "warning",
            f"at most {soft} files may be open",
            f"ulimit -n {min(hard, 4096) if hard > 0 else 4096}",
        )
    size, _ = resource.getrlimit(resource.RLIMIT_AS)
    facts["address_space"] = None if size == resource.RLIM_INFINITY else size
    if facts["address_space"] is not None:
        _say(findings, "note", "the address space is limited, so the map cannot grow much", "ulimit -v unlimited")
