"""``signal``, ``publish``, ``signals``, ``withdraw``; and ``clear-poison``, whose subject is a key."""

from __future__ import annotations

import argparse
import math
import time
from typing import TYPE_CHECKING, Any

from actorproc.cli.output.outcomes import DRY_RUN, columns_of_outcomes, outcome
from actorproc.cli.output.output import Column, Output
from actorproc.cli.select.common import ID_HELP, NOT_FOUND, OK, REFUSED, full_id, globals_for, open_reader
from actorproc.cli.select.filters import has_filter, seconds
from actorproc.cli.select.json_fields import payload_of
from actorproc.cli.select.selection import add_care, add_selection, asked, carry_out, confirmed, selected
from actorproc.cli.select.steering import Steered, is_stopped
from actorproc.errors import UnknownProcedure, UsageError
from actorproc.ui.text import ago, size_of

if TYPE_CHECKING:
    from actorproc.cli.select.steering import Steering
    from actorproc.report.info import PoisonInfo, SignalInfo

__all__ = ["add_clear_poison", "add_publish", "add_signal", "add_signals", "add_withdraw"]

_Commands = Any


# ---------------------------------------------------------------- signal
def add_signal(commands: _Commands) -> None:
    """Add ``signal``."""
    parser = commands.add_parser(
        "signal",
        help="send a signal to a procedure",
        description=(
            "The procedure gets it at its next wait. With --all-matching and filters each procedure that matches gets "
            "it, and ID is left out. A signal that is not waited for yet is kept until the procedure ends."
        ),
    )
    add_selection(parser, ids=False)
    parser.add_argument("target", nargs="?", metavar="ID", help=ID_HELP)
    _add_payload(parser)
    parser.set_defaults(run=_signal)


def _add_payload(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("payload", nargs="?", metavar="JSON", help="what the step gets as ctx.event (default: null)")
    parser.add_argument("--dedup", metavar="TEXT", help="those with the same text count once")


def _signal(options: argparse.Namespace) -> int:
    if options.all_matching:
        if options.payload is not None:
            raise UsageError("with --all-matching the only argument is the payload: leave the id out")
        options.target, options.payload = None, options.target
    elif options.target is None or has_filter(options):
        raise UsageError("give an id, or filters with --all-matching")
    payload = payload_of(options.payload)

    def act(engine: Steering, name: str) -> str:
        if not engine.signal(name, payload, options.dedup, **asked(options)):
            raise UnknownProcedure(f"{name} has ended and takes no signal")
        return "sent" + _later(engine)

    if options.all_matching:
        names = selected(options)
        if not options.dry_run and not confirmed(options, "signal", names):
            return REFUSED
    else:
        with open_reader(options) as reader:
            names = [full_id(reader, options.target)]
    return carry_out(options, "signal", names, act)


def _later(engine: Steering) -> str:
    return "; what waits for it goes on when a manager starts" if is_stopped(engine) else ""


# ---------------------------------------------------------------- publish
def add_publish(commands: _Commands) -> None:
    """Add ``publish``."""
    parser = commands.add_parser(
        "publish",
        help="send an event to the procedure that waits for its name",
        description=(
            "The procedure that has waited for this name longest gets the event. While none waits it is kept for the "
            "next one that does, at most as long as Config.retain_signals says."
        ),
    )
    globals_for(parser).add_argument("target", metavar="NAME", help="the name that steps wait for")
    _add_payload(parser)
    add_care(parser)
    parser.set_defaults(run=_publish)


def _publish(options: argparse.Namespace) -> int:
    payload = payload_of(options.payload)

    def act(engine: Steering, name: str) -> str:
        engine.publish(name, payload, options.dedup, **asked(options))
        return "published" + _later(engine)

    return carry_out(options, "publish", [options.target], act, subject="EVENT")


# ---------------------------------------------------------------- signals, withdraw
def add_signals(commands: _Commands) -> None:
    """Add ``signals``."""
    parser = commands.add_parser("signals", help="signals and events that no procedure has taken yet, the oldest first")
    _add_kept(globals_for(parser))
    parser.set_defaults(run=_signals)


def _add_kept(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", metavar="ID", help="only signals to this procedure; a whole id")
    parser.add_argument("--event", metavar="NAME", help="only events of this name")
    parser.add_argument("--older-than", type=seconds, metavar="TIME", help="only those kept for so long: 12h, 3d")


def _kept(options: argparse.Namespace) -> list[SignalInfo]:
    with open_reader(options) as reader:
        found = reader.signals(options.to, event=options.event)
    before = math.inf if options.older_than is None else time.time() - options.older_than
    return [signal for signal in found if signal.at <= before]


def _signals(options: argparse.Namespace) -> int:
    output = Output(options)
    now = time.time()
    columns: list[Column] = [
        ("EVENT", lambda signal: signal.event or signal.ask or "-"),
        ("TO", lambda signal: signal.id or "-"),
        ("NUMBER", lambda signal: signal.number),
        ("AGE", lambda signal: ago(signal.at, now)),
        ("SIZE", lambda signal: size_of(signal.size)),
        ("DEDUP", lambda signal: signal.dedup or "-"),
    ]
    output.rows("signal", [_kept(options)], columns, name=_name_of, empty="no signal waits to be taken")
    return OK


def _name_of(signal: SignalInfo) -> str:
    return f"{signal.event if signal.id is None else signal.id}#{signal.number}"


def add_withdraw(commands: _Commands) -> None:
    """Add ``withdraw``."""
    parser = commands.add_parser(
        "withdraw",
        help="remove signals and events that no procedure has taken",
        description="Those that `actorproc signals` lists: choose with --to, --event or --older-than, or say --all.",
    )
    _add_kept(globals_for(parser))
    parser.add_argument("--number", type=int, metavar="N", help="only this one of those --to an ID or of an --event")
    parser.add_argument("--all", action="store_true", help="all of them, whatever their receiver or name")
    add_care(parser)
    parser.set_defaults(run=_withdraw)


def _withdraw(options: argparse.Namespace) -> int:
    is_chosen = options.to is not None or options.event is not None
    if options.number is not None and not is_chosen:
        raise UsageError("--number is that of a signal --to an ID, or of an --event: give one of them")
    if (is_chosen or options.older_than is not None) == options.all:
        raise UsageError("choose with --to ID, --event NAME or --older-than TIME, or say --all")
    found = [signal for signal in _kept(options) if options.number in (None, signal.number)]
    if not found:
        subject = options.to or options.event
        rows = [outcome(subject, "withdraw", error="no such signal waits to be taken")]
        return _tell(options, rows)
    names = [_name_of(signal) for signal in found]
    if options.dry_run:
        return _tell(options, [outcome(name, "withdraw", DRY_RUN) for name in names])
    if not is_chosen and not confirmed(options, "withdraw", names, thing="signal"):
        return REFUSED
    steered = Steered(options)
    rows = []
    with steered as engine:
        for signal, name in zip(found, names, strict=True):
            removed = engine.withdraw(signal.id, event=signal.event, number=signal.number, **asked(options))
            said = {"result": "withdrawn"} if removed else {"error": "was taken meanwhile"}
            rows.append(outcome(name, "withdraw", applied=steered.applied, **said))
    code = _tell(options, rows)
    steered.tell()
    return code


# ---------------------------------------------------------------- clear-poison
def add_clear_poison(commands: _Commands) -> None:
    """Add ``clear-poison``."""
    parser = commands.add_parser(
        "clear-poison", help="give poisoned keys back, once what they stand for is known to be sound"
    )
    globals_for(parser).add_argument("keys", nargs="*", metavar="KEY", help="as `actorproc poisons` lists them")
    parser.add_argument("--by", metavar="ID", help="all keys that this procedure, or its tree, poisoned")
    parser.add_argument("--below", metavar="KEY", help="this key and all below it, as far as they are poisoned")
    add_care(parser)
    parser.set_defaults(run=_clear_poison)


def _clear_poison(options: argparse.Namespace) -> int:
    is_filter = options.by is not None or options.below is not None
    if bool(options.keys) == is_filter:
        raise UsageError("give keys, or a filter: --by ID, --below KEY")
    with open_reader(options) as reader:
        known = reader.poisons()
        if options.by is not None and not any(_is_by(poison, options.by) for poison in known):
            options.by = full_id(reader, options.by)
    keys = _checked(options.keys) or [poison.path for poison in known if _matches(poison, options)]
    if not keys:
        rows = [outcome(options.by or options.below, "clear-poison", error="no such key is poisoned")]
        return _tell(options, rows)
    if options.dry_run:
        paths = {poison.path for poison in known}
        return _tell(options, [_row(key, DRY_RUN if key in paths else None) for key in keys])
    if is_filter and not confirmed(options, "clear-poison", keys, thing="key"):
        return REFUSED
    steered = Steered(options)
    with steered as engine:
        cleared = [(key, engine.clear_poison(key, **asked(options))) for key in keys]
    code = _tell(options, [_row(key, "cleared" if done else None, steered.applied) for key, done in cleared])
    steered.tell()
    return code


def _checked(keys: list[str]) -> list[str]:
    """Each key once; one that can be none is refused before anything is done. Raises `UsageError`s."""
    from actorproc.model.policies import LockKey

    return list(dict.fromkeys(LockKey.write(key).path for key in keys))


def _matches(poison: PoisonInfo, options: argparse.Namespace) -> bool:
    is_below = options.below is None or f"{poison.path}/".startswith(f"{options.below.rstrip('/')}/")
    return is_below and (options.by is None or _is_by(poison, options.by))


def _is_by(poison: PoisonInfo, name: str) -> bool:
    return name in (poison.by, poison.root, *poison.others)


def _row(key: str, result: str | None, applied: str | None = None) -> dict[str, Any]:
    if result is None:
        return outcome(key, "clear-poison", error="is not poisoned", applied=applied)
    return outcome(key, "clear-poison", result, applied=applied)


def _tell(options: argparse.Namespace, rows: list[dict[str, Any]]) -> int:
    Output(options).rows("outcome", [rows], columns_of_outcomes("SUBJECT"), name=lambda row: row["id"])
    return OK if all(row["ok"] for row in rows) else NOT_FOUND
