"""Findings of ``doctor`` about a store in a database: its rows, and the server around it."""

from __future__ import annotations

import shlex
import time
from typing import TYPE_CHECKING, Any

from actorproc.cli.doctor.enqueued import enqueued_findings

if TYPE_CHECKING:
    from actorproc.store.home import Home

__all__ = ["diagnose_database"]

_LISTED = 1000
_FREEZE_SOON = 1_000_000_000
"""Transactions that are not frozen, at half of what stops the server."""
_FEW_SESSIONS = 5


def diagnose_database(path: str, home: Home) -> dict[str, Any]:
    """Facts and findings, as `diagnose` has them for a directory.

    Args:
        path: The URL, for commands to type.
        home: Its home.

    Returns:
        The report.
    """
    from actorproc.errors import EngineError
    from actorproc.store.tools.isolated_check import examine

    report: dict[str, Any] = {
        "path": home.words,
        "checked_at": time.time(),
        "facts": {},
        "owner": None,
        "damaged": [],
        "findings": [],
        "ok": True,
    }
    typed = shlex.quote(home.words)
    try:
        for found in examine(path):
            match found.pop("what"):
                case "facts":
                    report["facts"] |= found
                case "damaged" if len(report["damaged"]) < _LISTED:
                    report["damaged"].append(found)
                case "miscounted" if len(report["findings"]) < _LISTED:
                    _say(report, "warning", found["says"], f"actorproc --path {typed} doctor --repair")
        owner = home.owner()
    except EngineError as error:
        _say(report, "damage", str(error), f"actorproc run MODULE --path {typed}")
    else:
        report["owner"] = None if owner is None else {"pid": owner.pid, "host": owner.host}
        _judge(report, typed)
    report["ok"] = not any(finding["severity"] == "damage" for finding in report["findings"])
    return report


def _say(report: dict[str, Any], severity: str, says: str, command: str | None = None) -> None:
    report["findings"].append({"severity": severity, "says": says, "command": command})


def _judge(report: dict[str, Any], typed: str) -> None:
    from actorproc.ui.text import counted

    facts = report["facts"]
    for row in report["damaged"][:20]:
        _say(report, "damage", f"{row['table']} {row['key']}: {row['reason']}")
    if report["damaged"]:
        says = f"{len(report['damaged'])} records are damaged; the manager parks what they belong to and goes on"
        _say(report, "damage", says, f"actorproc --path {typed} doctor --export-good GOOD.json")
    if facts["synced"] == 0:
        says = "the database does not sync (fsync or synchronous_commit is off): a power cut loses commits"
        _say(report, "warning", says)
    vacuum = facts["vacuum"]
    if vacuum["is_held_back"]:
        _say(report, "warning", vacuum["says"])
    if vacuum["hidden"]:
        says = f"{counted(vacuum['hidden'], 'session')} of other roles: whether they hold old snapshots cannot be seen"
        _say(report, "note", says, "GRANT pg_read_all_stats TO the role of the managers")
    if facts["freeze_age"] > _FREEZE_SOON:
        _say(report, "warning", f"{facts['freeze_age']} transactions are not frozen; the server stops at 2 milliards")
    if facts["prepared_transactions"]:
        _say(report, "warning", f"prepared transactions that wait: {facts['prepared_transactions']}")
    if facts["stuck_slots"]:
        _say(report, "warning", f"replication slots that nothing reads: {facts['stuck_slots']}; they keep old rows")
    if facts["most_sessions"] - facts["sessions"] < _FEW_SESSIONS:
        _say(report, "warning", f"{facts['sessions']} of {facts['most_sessions']} sessions are in use")
    report["findings"] += enqueued_findings(report, typed)
    if report["owner"] is None:
        _say(report, "note", "no manager runs on this store", f"actorproc run MODULE --path {typed}")
