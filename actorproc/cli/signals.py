"""``signal`` and ``clear-poison``: verbs whose subject is an event or a key."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from actorproc.cli.common import NOT_FOUND, OK, REFUSED, full_id, globals_for, open_reader
from actorproc.cli.fields import strict_json
from actorproc.cli.filters import has_filter
from actorproc.cli.outcomes import DRY_RUN, columns_of_outcomes, outcome
from actorproc.cli.output import Output
from actorproc.cli.selection import add_care, add_selection, carry_out, confirmed, selected
from actorproc.cli.steering import Steered, is_stopped
from actorproc.errors import UnknownProcedure, UsageError

if TYPE_CHECKING:
    from actorproc.cli.steering import Steering
    from actorproc.info import PoisonInfo

__all__ = ["add_clear_poison", "add_signal"]

_Commands = Any


# ---------------------------------------------------------------- signal
def add_signal(commands: _Commands) -> None:
    """Add ``signal``."""
    parser = commands.add_parser(
        "signal",
        help="send an event to a procedure, or to whoever waits for it",
        description=(
            "TARGET is the whole id of a procedure or the name of an event: beginnings of ids could be names of "
            "events. With --all-matching and filters each procedure that matches gets it, and TARGET is left out. What "
            "nobody waits for yet is kept until somebody does."
        ),
    )
    add_selection(parser, ids=False)
    parser.add_argument("target", nargs="?", metavar="TARGET", help="a whole id, or the name of an event")
    parser.add_argument("payload", nargs="?", metavar="JSON", help="what the step gets as ctx.event (default: null)")
    parser.add_argument("--dedup", metavar="TEXT", help="signals with the same text count once")
    parser.set_defaults(run=_signal)


def _signal(options: argparse.Namespace) -> int:
    if options.all_matching:
        if options.payload is not None:
            raise UsageError("with --all-matching the only argument is the payload: leave the target out")
        options.target, options.payload = None, options.target
    elif options.target is None or has_filter(options):
        raise UsageError("give a whole id or the name of an event, or filters with --all-matching")
    payload = _payload_of(options.payload)

    def act(engine: Steering, name: str) -> str:
        if not engine.signal(name, payload, options.dedup, reason=options.reason):
            raise UnknownProcedure(f"{name} has ended: nobody takes it")
        return sent + ("; what waits for it goes on when a manager starts" if is_stopped(engine) else "")

    names, sent = [options.target], "sent"
    if not options.all_matching and not _is_id(options):
        sent = "sent to whoever waits for an event of this name"  # so that an id with a slip of the pen is noticed
    if options.all_matching:
        names = selected(options)
        if not options.dry_run and not confirmed(options, "signal", names):
            return REFUSED
    return carry_out(options, "signal", names, act, subject="SUBJECT")


def _is_id(options: argparse.Namespace) -> bool:
    with open_reader(options) as reader:
        return reader.ids(options.target, limit=1) == [options.target]


def _payload_of(text: str | None) -> Any:
    try:
        return strict_json(text) if text is not None else None
    except ValueError as error:
        raise UsageError(f"the payload {text!r} is no JSON ({error}); a text needs quotes: '\"text\"'") from None


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
    if is_filter and not confirmed(options, "clear-poison", keys, things="keys"):
        return REFUSED
    steered = Steered(options)
    with steered as engine:
        cleared = [(key, engine.clear_poison(key, options.reason)) for key in keys]
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
