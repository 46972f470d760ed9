"""``top``: a live screen of the store; into a pipe it is one look as text."""

from __future__ import annotations

import argparse
import os
import select
import shlex
import signal
import sys
import threading
from typing import Any, NoReturn

from actorproc.cli.output.extras import need
from actorproc.cli.output.output import Output
from actorproc.cli.select.common import FAILED, OK, directory, globals_for, quiet
from actorproc.cli.select.filters import add_filters, list_arguments, seconds
from actorproc.errors import UsageError

__all__ = ["add_top", "parsed_filter"]

_Commands = Any
_SHORTEST = 0.2


def add_top(commands: _Commands) -> None:
    """Add ``top``."""
    parser = commands.add_parser(
        "top",
        help="a live screen: workers, trouble, procedures, locks, and verbs on keys (needs the extra 'top')",
        description="Keys are shown by `?`. Into a pipe, and on a terminal that is dumb, it prints one look and ends.",
    )
    globals_for(parser, output=False)
    parser.add_argument("--every", type=seconds, default=1.0, metavar="TIME", help="between two looks (1s)")
    parser.add_argument("--read-only", action="store_true", help="offer no verbs")
    parser.set_defaults(run=_top)


def _top(options: argparse.Namespace) -> int:
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM", "dumb") == "dumb":
        return _one_look(options)
    need("textual", extra="top", purpose="the live screen (`actorproc top | cat` prints one look without it)")
    from actorproc.ui.top.app import TopApp
    from actorproc.ui.top.source import StoreSource

    quiet()
    app = TopApp(
        StoreSource(directory(options)),
        every=max(_SHORTEST, options.every),
        parse=parsed_filter,
        is_read_only=options.read_only,
    )
    threading.Thread(target=_end_with_terminal, args=(sys.stdin.fileno(),), name="terminal", daemon=True).start()
    # Without the mouse: a screen that is killed would leave a terminal that types at each click.
    app.run(mouse=False)
    return app.return_code or OK


def _end_with_terminal(terminal: int) -> None:
    """End this process when its terminal is gone. Textual goes on: its writer waits for ever, its reader spins."""
    gone = select.poll()
    gone.register(terminal, 0)  # a hang-up and an error are told always
    gone.poll()
    os._exit(128 + signal.SIGHUP)


def _one_look(options: argparse.Namespace) -> int:
    from actorproc.ui.top.look import Wanted
    from actorproc.ui.top.rendering import plain_look
    from actorproc.ui.top.source import StoreSource

    quiet()
    output = Output(options)
    source = StoreSource(directory(options))
    try:
        look = source.look(Wanted(limit=20))
    finally:
        source.close()
    if look.header.status == "no store":
        raise UsageError(look.header.problems[0])
    output.lines(plain_look(look, output.width))
    return FAILED if look.trouble else OK


class _LineParser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise ValueError(message)


def parsed_filter(line: str) -> tuple[dict[str, Any], str]:
    """Filters of ``list`` and a text to look for, from a line that is typed. Raises `ValueError`."""
    parser = _LineParser(prog="filter", add_help=False)
    add_filters(parser, paging=False)
    parser.add_argument("words", nargs="*")
    options = parser.parse_args(shlex.split(line))
    return list_arguments(options), " ".join(options.words)
