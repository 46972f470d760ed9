"""``schedules``: what a store starts again and again, and an operator's verbs for it."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from actorproc.cli.output.output import Column, Output
from actorproc.cli.select.common import OK, globals_for, open_reader
from actorproc.cli.select.selection import add_care, asked, carry_out
from actorproc.errors import UnknownProcedure, UsageError
from actorproc.support.instants import in_utc
from actorproc.ui.text import ago, duration, plain_line

if TYPE_CHECKING:
    from actorproc.cli.select.steering import Steering
    from actorproc.report.info import ScheduleInfo

__all__ = ["add_schedules"]

_Commands = Any
_ACTIONS = {
    "remove": ("unschedule", "remove them; what they have started goes on", "removed; a firing that runs goes on"),
    "pause": ("pause_schedule", "let them fire no more; what comes meanwhile is not made up for", "paused"),
    "resume": ("resume_schedule", "let them fire again, from now on", "resumed"),
    "reset": ("reset_schedule", "let them go on from now, after a clock that was wrong", "goes on from now"),
}
"""Verb of the engine, help, and result of each option."""


def add_schedules(commands: _Commands) -> None:
    """Add ``schedules``."""
    parser = commands.add_parser(
        "schedules",
        help="schedules, with their next and last instants; --remove, --pause, --resume, --reset",
        description=(
            "Without ID all schedules, with one ID all about it. Programs declare schedules (manager.schedule); those "
            "that none has declared since the manager started are marked, and go on until they are removed."
        ),
    )
    globals_for(parser).add_argument("ids", nargs="*", metavar="ID", help="schedules, by their whole ids")
    verbs = parser.add_mutually_exclusive_group()
    for action, (_, text, _) in _ACTIONS.items():
        verbs.add_argument(f"--{action}", dest="action", action="store_const", const=action, help=text)
    add_care(parser)
    parser.set_defaults(run=_schedules)


def _schedules(options: argparse.Namespace) -> int:
    if options.action is not None:
        return _steered(options)
    with open_reader(options) as reader:
        known = reader.schedules()
    missing = sorted(set(options.ids) - {info.id for info in known})
    if missing:
        raise UnknownProcedure(f"no schedule has the id {missing[0]!r}")
    found = [info for info in known if not options.ids or info.id in options.ids]
    output = Output(options)
    if len(options.ids) == 1:
        output.one("schedule", found[0], lambda: _lines(found[0]), name=found[0].id)
        return OK
    now = time.time()
    columns: list[Column] = [
        ("ID", lambda info: info.id),
        ("RULE", _rule),
        ("STATE", _state),
        ("NEXT", lambda info: "-" if info.next_at is None else _in(info.next_at - now)),
        ("LAST", lambda info: "-" if info.last_at is None else ago(info.last_at, now)),
        ("FIRED", lambda info: info.firings),
        ("PASSED", lambda info: info.passed),
        ("OVERLAP", lambda info: info.overlap),
    ]
    output.rows("schedule", [found], columns, name=lambda info: info.id, empty="there is no schedule")
    return OK


def _steered(options: argparse.Namespace) -> int:
    if not options.ids:
        raise UsageError(f"say which schedules to {options.action}: give their ids")
    method, _, done = _ACTIONS[options.action]

    def act(engine: Steering, name: str) -> str:
        was = getattr(engine, method)(name, **asked(options))
        return done if was is not False else "was not paused"

    return carry_out(options, "schedules", list(dict.fromkeys(options.ids)), act)


def _state(info: ScheduleInfo) -> str:
    return info.state if info.declared else f"{info.state}, undeclared"


def _rule(info: ScheduleInfo) -> str:
    return info.rule if info.rule.startswith("every") else f"{info.rule} {info.timezone}"


def _in(seconds: float) -> str:
    return f"in {duration(seconds)}" if seconds > 0 else "now"


def _lines(info: ScheduleInfo) -> Iterator[str]:
    yield f"{info.id}  {_rule(info)}  starts {info.type_name}"
    reason = f": {plain_line(info.reason)}" if info.reason is not None else ""
    yield f"state      {_state(info)}{reason}"
    if info.upcoming:
        yield f"next       {in_utc(info.upcoming[0])}"
        yield from (f"           {in_utc(at)}" for at in info.upcoming[1:])
    if info.last_id is not None:
        yield f"last       {info.last_id}"
    if info.waiting:
        yield f"waiting    {len(info.waiting)}, the first for {in_utc(info.waiting[0])}"
    yield f"fired      {info.firings} times, passed over {info.passed} instants"
    yield f"policies   catch-up {info.catch_up}, overlap {info.overlap}, jitter {info.jitter:g} s"
    yield f"declared   {in_utc(info.declared_at)}"
