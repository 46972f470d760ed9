"""``status``: one pass over the procedures that have not ended, and the live manager's own."""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from actorproc.cli.output.output import Output
from actorproc.cli.select.common import OK, directory, globals_for, home, start_command, typed
from actorproc.ui.text import ago, duration, plain_line, size_of
from actorproc.ui.views.tones import tone_of

if TYPE_CHECKING:
    from actorproc.cli.output.colour import Paint

__all__ = ["add_status", "show_status"]

_Commands = Any


def _status_of(options: argparse.Namespace) -> dict[str, Any]:
    """The status as plain data; moments as epoch seconds."""
    from actorproc.model.plain import plain_dict
    from actorproc.ui.stored_status import stored_status, unregistered_types

    with home(options).reader() as store:
        found = stored_status(store)
    if found["owner"] is not None:
        from actorproc.api.client import ProcedureClient
        from actorproc.errors import ActorprocError

        with contextlib.suppress(ActorprocError), ProcedureClient(directory(options), patience=2.0) as client:
            health = client.health()
            found["health"] = plain_dict(health) if health.status != "stopped" else None
            found["unregistered"] = unregistered_types(found["types"], health.types)
    return found


def add_status(commands: _Commands) -> None:
    """Add ``status``."""
    parser = commands.add_parser("status", help="counts by state and type, the oldest, the manager's health, trouble")
    globals_for(parser)
    parser.set_defaults(run=show_status)


def show_status(options: argparse.Namespace) -> int:
    """Show how the store and its manager do."""
    output = Output(options)
    status = _status_of(options)
    output.one("status", status, lambda: _status_lines(status, options, output.paint), name=status["path"])
    return OK


def _status_lines(status: dict[str, Any], options: argparse.Namespace, paint: Paint) -> Iterator[str]:
    now = time.time()
    yield f"store     {plain_line(status['path'])}  ({size_of(status['used_bytes'])} used)"
    yield from _manager_lines(status, options, paint)
    yield (
        "states    "
        + (_counted(status["states"], paint) or "none")
        + (_then(options, "list --state FAILED") if status["states"].get("FAILED") else "")
    )
    if status["phases"]:
        yield f"phases    {_counted(status['phases'], paint)}"
    for name, count in sorted(status["types"].items(), key=lambda item: -item[1])[:8]:
        yield f"type      {count} {plain_line(name)}"
    if status["oldest"] is not None:
        oldest = status["oldest"]
        shown = f"{plain_line(oldest['id'])}, {paint.word(oldest['phase'])}, {ago(oldest['created_at'], now)} old"
        yield f"oldest    {shown}" + _then(options, "why", oldest["id"])
    yield f"locks     {status['locks']} held, {status['lock_waiting']} waiting for one"
    if status["signals"]:
        age = ago(status["oldest_signal_at"], now)
        yield f"signals   {status['signals']} that no procedure has taken, the oldest {age} old" + _then(
            options, "signals"
        )
    yield from _trouble_lines(status, options, paint)


def _manager_lines(status: dict[str, Any], options: argparse.Namespace, paint: Paint) -> Iterator[str]:
    owner, health = status["owner"], status["health"]
    if owner is None:
        yield f"manager   {paint('none runs here', 'warn')}: {plain_line(start_command(options))}"
    elif health is None:
        yield f"manager   pid {owner['pid']}, {paint('does not answer', 'bad')}"
    else:
        busy = f"{health['busy']} of {len(health['slots'])} workers busy"
        yield f"manager   pid {owner['pid']}, {paint.word(plain_line(health['status']))}, {busy}"
    for problem in health["problems"] if health is not None else ():
        yield f"problem   {paint(plain_line(problem), 'bad')}"
    overdue = health["retention"] if health is not None else {"backlog": 0, "is_behind": False}
    if overdue["backlog"] and not overdue["is_behind"]:  # else it is a problem, told above
        yield f"retention {overdue['backlog']} to be removed, the oldest for {duration(overdue['lag'])}"
    if status["paused"] is not None:
        said = plain_line(status["paused"] or "no reason given")
        yield f"{paint('paused', 'warn')}    {said}" + _then(options, "resume --manager")


def _trouble_lines(status: dict[str, Any], options: argparse.Namespace, paint: Paint) -> Iterator[str]:
    for path in status["poisons"]:
        yield f"{paint('poisoned', 'bad')}  {plain_line(path)}" + _then(options, "poisons")
    for name, count in status["unregistered"].items():
        says = f"{count} of {plain_line(name)}: no class is registered as that"
        yield f"{paint('parked', 'bad')}    {says}" + _then(options, "list --type", name)
    for name in status["stuck"]:
        yield f"{paint('stuck', 'bad')}     {plain_line(name)}" + _then(options, "why", name)


def _counted(counts: dict[str, int], paint: Paint) -> str:
    return ", ".join(paint(f"{count} {name}", tone_of(name)) for name, count in counts.items())


def _then(options: argparse.Namespace, words: str, *values: str) -> str:
    """The command to type next."""
    return f": {typed(options, words, *values)}"
