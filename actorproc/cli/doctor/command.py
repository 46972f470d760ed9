"""``doctor``: is the store sound, and what to type next if it is not."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import Any

from actorproc.cli.output.output import Output
from actorproc.cli.select.common import FAILED, OK, directory, globals_for
from actorproc.errors import EngineError
from actorproc.ui.text import counted, duration, plain_line, size_of

__all__ = ["add_doctor"]

_Commands = Any


def add_doctor(commands: _Commands) -> None:
    """Add ``doctor``."""
    parser = commands.add_parser(
        "doctor",
        help="examine a store, live or stopped: every record, space, readers, permissions, limits",
        description=(
            "Reads only, in a process of its own that may die of a damaged file. Exit code 0: sound, 1: not. "
            "With --repair it writes first."
        ),
    )
    globals_for(parser)
    parser.add_argument("--export-good", metavar="FILE", help="write all trees that can be read whole to a new file")
    parser.add_argument(
        "--repair", action="store_true", help="on a stopped store: set right numbers of children that are wrong"
    )
    parser.set_defaults(run=_doctor)


def _doctor(options: argparse.Namespace) -> int:
    from actorproc.cli.doctor.diagnosis import diagnose

    output = Output(options)
    repaired = _repaired(options) if options.repair else None
    report = diagnose(directory(options))
    if repaired is not None:
        report["repaired"] = repaired
    if options.export_good is not None:
        from actorproc.cli.commands.exporting import export_apart

        report["exported"] = export_apart(directory(options), options.export_good)
    output.one("diagnosis", report, lambda: _lines(report), name=report["path"])
    return OK if report["ok"] else FAILED


def _repaired(options: argparse.Namespace) -> list[str]:
    """Numbers that were wrong and are right now, in words. Raises `StoreInUse` when a manager runs."""
    from actorproc.cli.select.common import home
    from actorproc.store.tools.child_counts import recount_children

    place = home(options)
    if not place.exists():
        msg = f"there is no store at {place.words}"
        raise EngineError(msg)
    return [one.in_words() for one in recount_children(place.store(role="command"))]


def _lines(report: dict[str, Any]) -> Iterator[str]:
    facts = report["facts"]
    yield f"store      {plain_line(report['path'])}"
    if report["owner"] is not None:
        yield f"manager    pid {report['owner']['pid']} on {plain_line(report['owner']['host'])}"
    if "procedures" in facts:
        counts = f"{counted(facts['procedures'], 'procedure')}, {counted(facts['steps'], 'step')}"
        yield f"records    {counts}, {len(report['damaged'])} damaged"
        mapped = f", map {size_of(facts['map_size'])}" if "map_size" in facts else ""
        yield f"file       {size_of(facts['file_bytes'])}, {size_of(facts['used_bytes'])} used{mapped}"
    if "max_readers" in facts:
        yield f"readers    {facts['readers']} of {facts['max_readers']}, {facts.get('stale_readers', 0)} of them dead"
    if "server_version" in facts:
        version, patch = divmod(facts["server_version"], 10_000)
        sessions = f"{facts['sessions']} of {facts['most_sessions']} sessions in use"
        yield f"server     PostgreSQL {version}.{patch}, {sessions}"
        libpq, patch = divmod(facts["libpq_version"], 10_000)
        yield f"driver     libpq {libpq}.{patch}, {'TLS' if facts['encrypted'] else 'not encrypted'}"
    if "vacuum" in facts:
        vacuum = facts["vacuum"]
        held = f"of {vacuum['holder']}" if vacuum["holder"] else "none"
        yield f"snapshot   {held}, {counted(vacuum['snapshot_age'], 'transaction')} ago"
        last = "never" if vacuum["vacuumed"] is None else f"{duration(vacuum['vacuumed'])} ago"
        yield f"vacuum     {vacuum['table']}: {counted(vacuum['dead'], 'dead row')}, vacuumed {last}"
    if "free_bytes" in facts:
        yield f"disk       {size_of(facts['free_bytes'])} free"
    yield f"clock      {time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(report['checked_at']))}"
    for finding in report["findings"]:
        command = f"  ⇒ {plain_line(finding['command'])}" if finding["command"] else ""
        yield f"{finding['severity']:<10} {plain_line(finding['says'])}{command}"
    for says in report.get("repaired", ()):
        yield f"repaired   {plain_line(says)}"
    if report.get("repaired") == []:
        yield "repaired   nothing was to be set right"
    if "exported" in report:
        exported = report["exported"]
        trees, place = counted(exported["trees"], "tree"), plain_line(exported["file"])
        yield f"exported   {trees} to {place}, {exported['skipped']} left out"
    yield "the store is sound" if report["ok"] else "the store is not sound"
