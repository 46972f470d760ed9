"""Entry point of the command ``actorproc``."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from actorproc.cli import demo
from actorproc.cli.extras import MissingExtra, need

__all__ = ["build_parser", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit code.

    0 well, 1 the command says no, 2 it could not be run, 130 interrupted, 141 nobody reads its output any more.
    """
    parser = build_parser()
    try:
        options = parser.parse_args(arguments)
        if options.command is None:
            parser.print_help()
            return 2
        code: int = options.run(options)
    except MissingExtra as missing:
        print(missing, file=sys.stderr)
        return 2
    except BrokenPipeError:
        # The reader has seen enough (`| head`); the interpreter's own flush at exit must not complain either.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    return code


def build_parser() -> argparse.ArgumentParser:
    """The parser of all commands."""
    parser = argparse.ArgumentParser(
        prog="actorproc",
        description="Procedures whose every step may be killed, and only that step is retried.",
    )
    parser.add_argument("--version", action=_Version, help="show the version and leave")
    parser.add_argument(
        "--print-completion",
        action=_PrintCompletion,
        choices=("bash", "zsh", "tcsh"),
        help="print the completion script of a shell (needs the extra 'cli') and leave",
    )
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    demo.add_command(commands)
    return parser


class _Version(argparse.Action):
    """Looks the version up only when asked: reading package metadata costs more than parsing."""

    def __init__(self, option_strings: Sequence[str], dest: str, **settings: Any) -> None:
        super().__init__(option_strings, dest, nargs=0, **settings)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        print(f"actorproc {metadata.version('actorproc')}")
        parser.exit()


class _PrintCompletion(argparse.Action):
    def __call__(
        self, parser: argparse.ArgumentParser, _namespace: object, values: object, _option: object = None
    ) -> None:
        shtab = need("shtab", extra="cli", purpose="shell completion")
        print(shtab.complete(parser, values))
        parser.exit()


if __name__ == "__main__":
    sys.exit(main())
