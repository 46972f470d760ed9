"""``state``, ``states``, ``diff``: fields of a procedure at each of its records. They need no manager and no class."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from actorproc.cli.output.output import Column, Output, complain
from actorproc.cli.select.common import ID_HELP, OK, full_id, globals_for, open_reader, typed, whole_number
from actorproc.ui.text import ago, clipped, plain_line, size_of
from actorproc.ui.views.words import SOME_ITEMS, value_lines

if TYPE_CHECKING:
    from actorproc.api.reader import StoreReader
    from actorproc.report.states import StateInfo

__all__ = ["add_diff", "add_state", "add_states"]

_Commands = Any


# ---------------------------------------------------------------- one state
def add_state(commands: _Commands) -> None:
    """Add ``state``."""
    parser = commands.add_parser(
        "state",
        help="fields of a procedure, now or at an earlier step, decoded without its class; secrets are masked",
        description="The number of a step is that of its record, as `actorproc steps` shows it.",
    )
    globals_for(parser).add_argument("id", metavar="ID", help=ID_HELP)
    parser.add_argument(
        "--step", type=whole_number(1), metavar="N", help="the state from which step N ran (1: the input)"
    )
    parser.add_argument("--full", action="store_true", help="up to 200 items of each container (default: 12)")
    parser.set_defaults(run=_state)


def _state(options: argparse.Namespace) -> int:
    output = Output(options)
    with open_reader(options) as reader:
        info = reader.state(full_id(reader, options.id), options.step)
    most = 200 if options.full else SOME_ITEMS
    output.one("state", info.to_dict(), lambda: _state_lines(options, info, most), name=info.procedure)
    return OK


def _state_lines(options: argparse.Namespace, info: StateInfo, most: int) -> Iterator[str]:
    now = time.time()
    where = f", at {info.position}" if info.position else ""
    yield plain_line(
        f"record {info.number} of {info.procedure}{where}: {info.outcome} {ago(info.at, now)} ago, "
        f"{size_of(info.size)}, {info.type_name} version {info.version}"
    )
    if info.state is not None:
        yield from value_lines(info.state, "state", most)
    elif info.missing and info.output is None:
        yield f"no state: {info.missing}"
    if info.output is not None:
        yield from value_lines(info.output, "output", most)
    for name, note in info.notes:
        yield from value_lines(note, f"note {plain_line(name)}  ", most)
    if info.changed:
        yield plain_line(f"changed     {', '.join(info.changed)}: {typed(options, 'states', info.procedure)}")


# ---------------------------------------------------------------- all states
def add_states(commands: _Commands) -> None:
    """Add ``states``."""
    parser = commands.add_parser("states", help="what each step of a procedure changed in its fields, record by record")
    globals_for(parser).add_argument("id", metavar="ID", help=ID_HELP)
    parser.add_argument("--last", type=whole_number(1), metavar="N", help="only the last N")
    parser.set_defaults(run=_states)


def _states(options: argparse.Namespace) -> int:
    output = Output(options)
    with open_reader(options) as reader:
        name = full_id(reader, options.id)
        found, trimmed = reader.states(name), reader.info(name).trimmed
    if trimmed and not output.is_json:
        complain(f"records 2 to {trimmed + 1} were trimmed (keep_steps); the first and the last ones are left")
    rows = [(info, found[place - 1] if place else None) for place, info in enumerate(found)]
    rows = rows[-options.last :] if options.last is not None else rows
    if output.is_json:
        output.rows("state", [[info.to_dict() for info, _ in rows]], [], name=str)
        return OK
    now = time.time()
    columns: list[Column] = [
        ("RECORD", lambda row: row[0].number),
        ("AT", lambda row: row[0].position or "-"),
        ("OUTCOME", lambda row: row[0].outcome),
        ("AGO", lambda row: ago(row[0].at, now)),
        ("SIZE", lambda row: size_of(row[0].size)),
        ("CHANGED", lambda row: clipped(plain_line(_changes(*row)), 10_000 if output.is_wide else 60)),
    ]
    output.rows("state", [rows], columns, name=lambda row: str(row[0].number))
    return OK


def _changes(info: StateInfo, before: StateInfo | None) -> str:
    from actorproc.report.states import POSITION, changes_between

    if info.output is not None:
        return f"output {info.output.inline(200)}"
    if info.state is None:
        return f"({info.missing})"
    if before is None:
        return info.state.inline(200)
    if before.state is None:
        return ", ".join(info.changed)
    changes = changes_between(before, info)
    fields = (change for change in changes if change.path != POSITION)
    return ", ".join(f"{change.path}={change.after if change.after is not None else 'gone'}" for change in fields)


# ---------------------------------------------------------------- differences
def add_diff(commands: _Commands) -> None:
    """Add ``diff``."""
    parser = commands.add_parser("diff", help="what differs between two states of a procedure, field by field")
    globals_for(parser).add_argument("id", metavar="ID", help=ID_HELP)
    parser.add_argument("first", type=whole_number(1), metavar="A", help="a record, as `actorproc steps` numbers them")
    parser.add_argument(
        "second", type=whole_number(1), nargs="?", metavar="B", help="another one (default: the newest)"
    )
    parser.set_defaults(run=_diff)


def _diff(options: argparse.Namespace) -> int:
    from actorproc.report.states import changes_between

    output = Output(options)
    with open_reader(options) as reader:
        name = full_id(reader, options.id)
        first, second = _with_state(reader, name, options.first), _with_state(reader, name, options.second)
    changes = changes_between(first, second)
    found = {
        "procedure": name,
        "first": first.number,
        "second": second.number,
        "changes": [change.to_dict() for change in changes],
    }

    def lines() -> Iterator[str]:
        yield plain_line(f"{name}: record {first.number} and record {second.number}")
        for change in changes:
            yield plain_line(f"  {change.path}")
            if change.before is not None:
                yield plain_line(f"    - {change.before}")
            if change.after is not None:
                yield plain_line(f"    + {change.after}")
        if not changes:
            yield "  no difference in what can be shown" if first.size != second.size else "  no difference"

    output.one("diff", found, lines, name=name)
    return OK


def _with_state(reader: StoreReader, name: str, number: int | None) -> StateInfo:
    from actorproc.errors import UnknownStep

    found = reader.state(name, number)
    if found.state is None:
        msg = f"record {found.number} of {name} has no state to compare: {found.missing}"
        raise UnknownStep(msg)
    return found
