"""Which procedures a verb is for, and how it goes with each: ids or a filter, a dry run, a line for each result."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from actorproc.cli.common import OK, REFUSED, code_of, full_id, globals_for, open_client, open_reader
from actorproc.cli.filters import add_filters, filter_of, has_filter
from actorproc.cli.output import Column, Output, complain
from actorproc.errors import ActorprocError, UsageError

if TYPE_CHECKING:
    from actorproc.client import ProcedureClient

__all__ = ["Act", "add_selection", "apply", "carry_out", "selected"]

Act = Callable[["ProcedureClient", str], str]
"""Does it to one, and says what came of it."""


def add_selection(parser: argparse.ArgumentParser, *, reason: bool = True) -> None:
    """Add ids, filters, and the options of careful people to a verb."""
    globals_for(parser)
    parser.add_argument("ids", nargs="*", metavar="ID", help="ids, or beginnings that only one id has")
    if reason:
        parser.add_argument("--reason", metavar="TEXT", help="why; it is recorded (actorproc show)")
    _add_care(parser)
    parser.add_argument("--all-matching", action="store_true", help="all that match the filters, in place of ids")
    add_filters(parser, paging=False)


def _add_care(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask before doing it to many")


def selected(options: argparse.Namespace, *, roots: bool = False) -> list[str]:
    """The ids the options mean; with `roots` a filter finds no children.

    Raises `UsageError`, `UnknownProcedure` and `AmbiguousId`.
    """
    if options.ids and (options.all_matching or has_filter(options)):
        raise UsageError("give ids, or filters with --all-matching, and not both")
    if not options.ids and not options.all_matching:
        raise UsageError("give ids, or filters with --all-matching")
    if options.all_matching and not has_filter(options):
        raise UsageError("--all-matching needs a filter, such as --state FAILED")
    if options.ids:
        with open_reader(options) as reader:
            return list(dict.fromkeys(full_id(reader, start) for start in options.ids))
    options.roots = options.roots or roots
    wanted = filter_of(options)
    with open_reader(options) as reader:
        return [info.id for info in reader.matching(wanted)]


def apply(options: argparse.Namespace, verb: str, act: Act, *, roots: bool = False) -> int:
    """Do it to all that are selected; `roots`: children cannot be asked for it, so a filter leaves them out."""
    names = selected(options, roots=roots)
    if options.all_matching and not options.dry_run and not confirmed(options, verb, names):
        return REFUSED
    return carry_out(options, verb, names, act)


def confirmed(options: argparse.Namespace, verb: str, names: list[str]) -> bool:
    """Whether a verb may be done to many: asked for with --yes, or allowed at the terminal."""
    if options.yes or not names:
        return True
    if not sys.stdin.isatty():
        raise UsageError(f"this would {verb} {len(names)} procedures: say --yes, or look first with --dry-run")
    sys.stderr.write(
        f"{verb} {len(names)} procedures ({', '.join(names[:3])}{', …' if len(names) > 3 else ''})? [y/N] "
    )
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def carry_out(options: argparse.Namespace, verb: str, names: list[str], act: Act) -> int:
    """Do it to each, tell each result as it comes, and give the exit code: that of the first failure."""
    output = Output(options)
    columns: list[Column] = [
        ("ID", lambda row: row["id"]),
        ("VERB", lambda row: row["verb"]),
        ("RESULT", lambda row: row["result"] if row["ok"] else f"refused: {row['error']}"),
    ]
    codes: list[int] = []
    if not names:
        complain("no procedure matches")
        return OK

    def results() -> Iterator[list[dict[str, Any]]]:
        if options.dry_run:
            yield [_row(name, verb, "would be done (dry run)") for name in names]
            return
        with open_client(options) as client:
            for name in names:
                try:
                    yield [_row(name, verb, act(client, name))]
                except (ActorprocError, ValueError, TypeError) as error:
                    codes.append(code_of(error))
                    yield [_row(name, verb, "", str(error))]

    output.rows("outcome", results(), columns, name=lambda row: row["id"])
    return next((code for code in codes if code), OK)


def _row(name: str, verb: str, result: str, error: str | None = None) -> dict[str, Any]:
    return {"id": name, "verb": verb, "ok": error is None, "result": result or None, "error": error}
