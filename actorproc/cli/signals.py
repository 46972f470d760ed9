"""``signal`` and ``clear-poison``: verbs whose subject is an event or a key."""

from __future__ import annotations

import argparse
import json
from typing import Any

from actorproc.cli.common import NOT_FOUND, OK, globals_for, open_client, open_reader
from actorproc.cli.output import Output
from actorproc.cli.text import plain_line
from actorproc.errors import UsageError

__all__ = ["add_clear_poison", "add_signal"]

_Commands = Any


def add_signal(commands: _Commands) -> None:
    """Add ``signal``."""
    parser = commands.add_parser("signal", help="send an event to a procedure, or to whoever waits for it")
    globals_for(parser).add_argument("target", metavar="ID-OR-EVENT", help="a full id, or the name of an event")
    parser.add_argument("payload", nargs="?", metavar="JSON", help="what the step gets as ctx.event (default: null)")
    parser.add_argument("--dedup", metavar="TEXT", help="signals with the same text count once")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.set_defaults(run=_signal)


def _signal(options: argparse.Namespace) -> int:
    try:
        payload = json.loads(options.payload) if options.payload is not None else None
    except ValueError as error:
        raise UsageError(
            f"the payload {options.payload!r} is no JSON ({error}); a text needs quotes: '\"text\"'"
        ) from None
    result, taken = "would be done (dry run)", True
    with open_client(options) as client:
        if not options.dry_run:
            taken = client.signal(options.target, payload, options.dedup)
            result = "sent" if taken else "has ended: nobody takes it"
    return _tell(options, "signal", [(options.target, result, taken)])


def add_clear_poison(commands: _Commands) -> None:
    """Add ``clear-poison``."""
    parser = commands.add_parser(
        "clear-poison", help="give poisoned keys back, once what they stand for is known to be sound"
    )
    globals_for(parser).add_argument("keys", nargs="*", metavar="KEY", help="as `actorproc poisons` lists them")
    parser.add_argument("--by", metavar="ID", help="all keys that this procedure, or its tree, poisoned")
    parser.add_argument("--reason", metavar="TEXT", help="why; it is recorded")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.set_defaults(run=_clear_poison)


def _clear_poison(options: argparse.Namespace) -> int:
    if bool(options.keys) == bool(options.by):
        raise UsageError("give keys, or --by ID")
    with open_reader(options) as reader:
        known = reader.poisons()
    keys = options.keys or [poison.path for poison in known if options.by in (poison.by, poison.root, *poison.others)]
    rows = []
    with open_client(options) as client:
        for key in keys:
            if options.dry_run:
                is_known = any(poison.path == key for poison in known)
                rows.append((key, "would be cleared (dry run)" if is_known else "is not poisoned", is_known))
            else:
                cleared = client.clear_poison(key, options.reason)
                rows.append((key, "cleared" if cleared else "is not poisoned", cleared))
    if not rows:
        rows.append((options.by, "poisoned no key", False))
    return _tell(options, "clear-poison", rows)


def _tell(options: argparse.Namespace, verb: str, rows: list[tuple[str, str, bool]]) -> int:
    found = [
        {"id": name, "verb": verb, "ok": ok, "result": result if ok else None, "error": None if ok else result}
        for name, result, ok in rows
    ]
    columns = [
        ("SUBJECT", lambda row: row["id"]),
        ("VERB", lambda row: row["verb"]),
        ("RESULT", lambda row: plain_line(row["result"] or row["error"])),
    ]
    Output(options).rows("outcome", [found], columns, name=lambda row: row["id"])
    return OK if all(ok for _, _, ok in rows) else NOT_FOUND
