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
    """Add a verb of the table that has no function here; its flags are the options."""
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


def add_abort(commands: _Commands) -> None:
    """Add ``abort``."""
    parser = _add(commands, "abort", _abort, help="ask procedures to abort and roll back")
    parser.add_argument("--force", action="store_true", help="do not ask, and kill the running steps")


def _abort(options: argparse.Namespace, engine: Steering, name: str) -> str:
    if not engine.abort(name, force=options.force, **asked(options)):
        return "has ended already"
    if is_stopped(engine):
        later = "is undone" if options.force else "is asked to abort"
        return "aborted" if engine.has_ended(name) else f"{later} when a manager starts"
    return "asked to abort"


def add_retry(commands: _Commands) -> None:
    """Add ``retry``."""
    _add(commands, "retry", _retry, roots=True, help="open a new run of roots that ended FAILED")


def _retry(options: argparse.Namespace, engine: Steering, name: str) -> str:
    engine.retry(name, **asked(options))
    return "runs again" + _later(engine)


def add_restart(commands: _Commands) -> None:
    """Add ``restart``."""
    says = "begin ended roots again from their first state, as a new generation"
    _add(commands, "restart", _restart, roots=True, help=says)


def _restart(options: argparse.Namespace, engine: Steering, name: str) -> str:
    engine.restart(name, **asked(options))
    return "begins again" + _later(engine)


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


def add_rollback(commands: _Commands) -> None:
    """Add ``rollback``."""
    _add(commands, "rollback", _rollback, roots=True, help="undo unfinished roots, as if they had failed")


def _rollback(options: argparse.Namespace, engine: Steering, name: str) -> str:
    if not engine.rollback(name, **asked(options)):
        return "was undone already"
    return "is rolled back" + _later(engine, name)


def add_bypass(commands: _Commands) -> None:
    """Add ``bypass``."""
    parser = _add(
        commands,
        "bypass",
        _bypass,
        help="end procedures as if they had succeeded (the last resort)",
        description="What they left half done stays half done: an operator has to see to it.",
    )
    parser.add_argument("--children", action="store_true", help="all their descendants too")
    parser.add_argument("--ancestors", action="store_true", help="their ancestors too")
    parser.add_argument("--force", action="store_true", help="kill the running step")


def _bypass(options: argparse.Namespace, engine: Steering, name: str) -> str:
    done = engine.bypass(
        name,
        children=options.children,
        ancestors=options.ancestors,
        force=options.force,
        **asked(options),
    )
    return "bypassed" if done else "has ended already"


def add_pause(commands: _Commands) -> None:
    """Add ``pause``."""
    _add(commands, "pause", _pause, whole=True, help="hand out no more steps of procedures, or of any (--manager)")


def _pause(options: argparse.Namespace, engine: Steering, name: str) -> str:
    return "paused" if engine.pause(name, **asked(options)) else "has ended already"


def add_resume(commands: _Commands) -> None:
    """Add ``resume``."""
    says = "lift the pause of procedures, or of the whole manager (--manager)"
    _add(commands, "resume", _resume, whole=True, help=says)


def _resume(options: argparse.Namespace, engine: Steering, name: str) -> str:
    return "goes on" + _later(engine) if engine.resume(name, **asked(options)) else "was not paused itself"


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
            done = getattr(engine, verb)(**asked(options))
            result = ("paused" if verb == "pause" else "goes on" + _later(engine)) if done else "was not paused"
        found = outcome(None, verb, result, applied=steered.applied)
    Output(options).one("outcome", found, lambda: [f"manager  {verb}  {found['result']}"], name="manager")
    steered.tell()
    return 0


def _later(engine: Steering, name: str | None = None) -> str:
    """Time at which it happens: at once, or when a manager starts (unless `name` has ended with it)."""
    waits = is_stopped(engine) and not (name is not None and engine.has_ended(name))
    return " when a manager starts" if waits else ""


def add_ack(commands: _Commands) -> None:
    """Add ``ack``."""
    says = "say that the results of finished procedures were taken"
    _add(commands, "ack", _ack, roots=True, help=says)


def _ack(options: argparse.Namespace, engine: Steering, name: str) -> str:
    return "acknowledged" if engine.acknowledge(name, **asked(options)) else "is not kept any more"


def add_delete(commands: _Commands) -> None:
    """Add ``delete``."""
    says = "remove finished roots and all that ran below them, now"
    parser = _add(commands, "delete", _delete, roots=True, help=says)
    parser.add_argument("--force", action="store_true", help="also those whose keys are poisoned; the keys stay so")


def _delete(options: argparse.Namespace, engine: Steering, name: str) -> str:
    gone = engine.delete(name, force=options.force, **asked(options))
    return "deleted" if gone else "is not kept any more"


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
    return carry_out(options, "delete", names, partial(_delete, options))
