"""``enqueued``: what applications enqueued in transactions of their own and is no procedure yet."""

from __future__ import annotations

import argparse
import time
from typing import TYPE_CHECKING, Any

from actorproc.cli.output.output import Column, Output
from actorproc.cli.select.common import OK, globals_for, open_reader
from actorproc.cli.select.selection import add_care, asked, carry_out
from actorproc.errors import UsageError
from actorproc.ui.text import ago, counted, plain_line

if TYPE_CHECKING:
    from actorproc.cli.select.steering import Steering

__all__ = ["add_enqueued"]

_Commands = Any


def add_enqueued(commands: _Commands) -> None:
    """Add ``enqueued``."""
    parser = commands.add_parser(
        "enqueued",
        help="what applications enqueued and is no procedure yet: it waits, or it was refused; --remove",
        description=(
            "Programs enqueue procedures in transactions of their own database (actorproc.postgres). The manager that "
            "leads takes them in; those that it has to refuse stay here with the reason until they are removed."
        ),
    )
    globals_for(parser).add_argument("ids", nargs="*", metavar="ID", help="only these, by their whole ids")
    parser.add_argument("--remove", action="store_true", help="remove those of these ids that were refused")
    add_care(parser)
    parser.set_defaults(run=_enqueued)


def _enqueued(options: argparse.Namespace) -> int:
    if options.remove:
        return _removed(options)
    with open_reader(options) as reader:
        found = [row for row in reader.enqueued() if not options.ids or row.id in options.ids]
    now = time.time()
    columns: list[Column] = [
        ("ID", lambda row: row.id),
        ("TYPE", lambda row: row.type_name or "-"),
        ("STATE", lambda row: row.state),
        ("ENQUEUED", lambda row: ago(row.enqueued_at, now)),
        ("REASON", lambda row: "-" if row.reason is None else plain_line(row.reason)),
    ]
    empty = "nothing that was enqueued waits or was refused"
    Output(options).rows("enqueued", [found], columns, name=lambda row: row.id, empty=empty)
    return OK


def _removed(options: argparse.Namespace) -> int:
    if not options.ids:
        raise UsageError("say what to remove: give the ids of what was refused")

    def act(engine: Steering, name: str) -> str:
        return f"{counted(engine.remove_enqueued(name, **asked(options)), 'row')} removed"

    return carry_out(options, "enqueued", list(dict.fromkeys(options.ids)), act)
