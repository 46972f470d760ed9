"""Verbs of operators on procedures, one command each, and ``gc``.

They go to the running manager through its control socket. When none runs they are decided here, on the stopped store.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from actorproc.cli.output.outcomes import DRY_RUN, outcome
from actorproc.cli.output.output import Output
from actorproc.cli.select.common import (
    ID_HELP,
    REFUSED,
    full_id,
    globals_for,
    is_owned,
    open_reader,
    start_command,
    typed,
)
from actorproc.cli.select.filters import has_filter, seconds
from actorproc.cli.select.selection import add_care, add_selection, apply, asked, carry_out, confirmed
from actorproc.cli.select.steering import Steered, is_stopped
from actorproc.errors import ManagerStopped, NotAllowed, UsageError
from actorproc.ui.verbs import MANAGER_VERBS, VERBS, SteeringVerb, result_of

if TYPE_CHECKING:
    from actorproc.cli.select.steering import Steering
    from actorproc.core.operator.verbs import Verb

__all__ = [
    "add_abort",
    "add_ack",
    "add_bypass",
    "add_delete",
    "add_fork",
    "add_gc",
    "add_kill",
    "add_pause",
    "add_restart",
    "add_resume",
    "add_retry",
    "add_rollback",
    "add_verb",
]

_Commands = Any
_Act: TypeAlias = "Callable[[argparse.Namespace, Steering, str], str]"
"""Does it to one procedure, and says in words what came of it."""


def _add(
    commands: _Commands,
    verb: str,
    act: _Act,
    *,
    roots: bool = False,
    whole: bool = False,
    **says: str,
) -> argparse.ArgumentParser:
    """Add a verb that is done to the selected procedures, one by one; with `whole` to the whole manager too."""
    parser: argparse.ArgumentParser = commands.add_parser(verb, **says)
    add_selection(parser)
    if whole:
        parser.add_argument("--manager", action="store_true", help="the whole manager, in place of ids")

    def run(options: argparse.Namespace) -> int:
        if whole and options.manager:
            return _whole(options, verb)
        return apply(options, verb, partial(act, options), roots=roots)

    parser.set_defaults(run=run)
    return parser


def add_verb(commands: _Commands, name: str) -> None:
    """Add a verb; one that has no words of its own is made of its entry in the core, and its flags are the options."""
    known = VERBS.get(name)
    if known is None:
        _add_unworded(commands, name)
        return
    act, says = partial(_do, known), f"{known.says[0].upper()}{known.says[1:]}. {known.more}"
    parser = _add(
        commands, name, act, roots=known.is_for_roots, whole=name in MANAGER_VERBS, help=known.says, description=says
    )
    for flag, says in known.flags.items():
        parser.add_argument(f"--{flag}", action="store_true", help=says)


add_kill, add_abort, add_retry = (partial(add_verb, name=name) for name in ("kill", "abort", "retry"))
add_rollback, add_bypass, add_pause = (partial(add_verb, name=name) for name in ("rollback", "bypass", "pause"))
add_resume, add_ack, add_delete = (partial(add_verb, name=name) for name in ("resume", "ack", "delete"))
add_restart = partial(add_verb, name="restart")


def _do(known: SteeringVerb, options: argparse.Namespace, engine: Steering, name: str) -> str:
    flags = {flag: True for flag in known.flags if getattr(options, flag)}
    is_done, words = result_of(known, engine, name, flags, **asked(options))
    if not is_done and known.refuses:
        raise _refusal(words, options, engine, name)
    return words


def _add_unworded(commands: _Commands, name: str) -> None:
    from actorproc.core.operator.verbs import verb_named

    verb = verb_named(name)
    assert verb is not None, name
    parser = _add(commands, name, partial(_ask_for, verb), roots=verb.is_for_roots, help=verb.help)
    for flag in _flags_of(verb):
        parser.add_argument(f"--{flag.replace('_', '-')}", action="store_true")


def _flags_of(verb: Verb) -> list[str]:
    from msgspec.structs import fields

    return [field.name for field in fields(verb.event) if field.type is bool]


def _ask_for(verb: Verb, options: argparse.Namespace, engine: Steering, name: str) -> str:
    flags = {flag: getattr(options, flag) for flag in _flags_of(verb)}
    if engine._ask_for(verb, name, **asked(options), **flags):
        return verb.done
    raise _refusal(verb.refused, options, engine, name)


def _refusal(words: str, options: argparse.Namespace, engine: Steering, name: str) -> UsageError:
    """Refusal of a verb in words: how the procedure stands, and what to do next."""
    info = engine.info(name)
    if info.finished_at is not None:
        return NotAllowed(f"{words}: it has ended {info.state}")
    if is_stopped(engine):
        return ManagerStopped(f"{words}: no manager runs here; start one with {start_command(options)}")
    stands = f"it is {info.phase}" + (f" ({info.reason})" if info.reason else "")
    return NotAllowed(f"{words}: {stands}; what it waits for: {typed(options, 'why', name)}")


def _whole(options: argparse.Namespace, verb: str) -> int:
    """Pause or resume everything."""
    if options.ids or options.all_matching or has_filter(options):
        raise UsageError("--manager means everything: leave ids and filters out")
    found = outcome(None, verb, DRY_RUN)
    steered = Steered(options)
    if options.dry_run:
        is_owned(options)  # there is a store
    else:
        with steered as engine:
            _, result = result_of(MANAGER_VERBS[verb], engine, "", **asked(options))
        found = outcome(None, verb, result, applied=steered.applied)
    Output(options).one("outcome", found, lambda: [f"manager  {verb}  {found['result']}"], name="manager")
    steered.tell()
    return 0


def add_fork(commands: _Commands) -> None:
    """Add ``fork``."""
    parser = commands.add_parser(
        "fork",
        help="begin a new root at a step of a procedure",
        description=(
            "The new root has the state that was stored before the step. The procedure is left alone, and what it did "
            "is not undone when the fork fails."
        ),
    )
    globals_for(parser)
    parser.add_argument("ids", nargs=1, metavar="ID", help=ID_HELP)
    parser.add_argument(
        "--from", dest="from_step", required=True, metavar="STEP", help="name of the step or state, or its number"
    )
    parser.add_argument("--id", dest="new_id", metavar="NEW", help="id of the fork (default: a new one)")
    add_care(parser)
    parser.set_defaults(run=_fork, all_matching=False)


def _fork(options: argparse.Namespace) -> int:
    with open_reader(options) as reader:
        name = full_id(reader, options.ids[0])
    return carry_out(options, "fork", [name], partial(_forked, options))


def _forked(options: argparse.Namespace, engine: Steering, name: str) -> str:
    step = options.from_step
    number = int(step) if step.isascii() and step.isdigit() else step
    fork = engine.fork(name, number, new_id=options.new_id, **asked(options))
    return f"forked as {fork.id}" + _later(engine)


def _later(engine: Steering, name: str | None = None) -> str:
    """Time at which it happens: at once, or when a manager starts (unless `name` has ended with it)."""
    waits = is_stopped(engine) and not (name is not None and engine.has_ended(name))
    return " when a manager starts" if waits else ""


def add_gc(commands: _Commands) -> None:
    """Add ``gc``."""
    parser = commands.add_parser(
        "gc",
        help="remove finished roots that ended a while ago",
        description="FAILED ones stay, unless --failed is given: what is wrong with them is only known from them.",
    )
    globals_for(parser)
    parser.add_argument("--older-than", type=seconds, required=True, metavar="TIME", help="ended longer ago: 12h, 7d")
    parser.add_argument("--failed", action="store_true", help="FAILED ones too")
    add_care(parser)
    parser.set_defaults(run=_gc, force=False)


def _gc(options: argparse.Namespace) -> int:
    with open_reader(options) as reader:
        before = time.time() - options.older_than
        names = [name for name, state in reader.finished_roots(before) if state != "FAILED" or options.failed]
    if not options.dry_run and not confirmed(options, "delete", names):
        return REFUSED
    return carry_out(options, "delete", names, partial(_do, VERBS["delete"], options))
