"""``move``: a store from a directory into a database, or back."""

from __future__ import annotations

import argparse
import shlex
from typing import Any

from actorproc.cli.output.outcomes import outcome
from actorproc.cli.output.output import Output
from actorproc.cli.select.common import OK, globals_for, refuse_password
from actorproc.errors import UsageError
from actorproc.ui.text import counted, duration, plain_line

__all__ = ["add_move"]

_Commands = Any


def add_move(commands: _Commands) -> None:
    """Add ``move``."""
    parser = commands.add_parser(
        "move",
        help="move a store that no manager runs on from a directory into a database, or back",
        description=(
            "Copies all rows and the signing keys, compares both, and closes the old store to managers. Nothing is "
            "converted: procedures go on at the new place as after a restart."
        ),
    )
    globals_for(parser)
    parser.add_argument("source", metavar="FROM", help="directory or URL of the store")
    parser.add_argument("target", metavar="TO", nargs="?", help="a new directory, or a URL where there is no store yet")
    parser.add_argument("--undo", action="store_true", help="let managers start again on FROM, which was moved")
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.set_defaults(run=_move)


def _move(options: argparse.Namespace) -> int:
    from actorproc.store.home import home_of
    from actorproc.store.tools.moving import move, take_mark_off

    if options.undo is (options.target is not None):
        raise UsageError("give FROM and TO, or --undo and FROM")
    output = Output(options)
    for place in (options.source, options.target):
        refuse_password(place)
    source = home_of(options.source)
    if options.undo:
        says = f"managers may start on {source.words} again"
        if not options.dry_run:
            take_mark_off(source)
    else:
        target = home_of(options.target)
        says = f"would move {source.words} to {target.words}"
        if not options.dry_run:
            report = move(source, target)
            moved = f"{counted(report.procedures, 'procedure')} ({counted(report.rows, 'row')}) moved"
            start = f"start managers with --path {shlex.quote(report.target)}"
            says = f"{moved} to {report.target} in {duration(report.seconds)}; {start}"
    applied = None if options.dry_run else "stopped store"
    output.one("outcome", outcome(None, "move", says, applied=applied), lambda: [plain_line(says)], name="move")
    return OK
