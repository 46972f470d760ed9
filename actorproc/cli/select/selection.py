"""Selection of the procedures that a verb is for: ids or a filter, a dry run, a line for each result."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, TypedDict

from actorproc.cli.output.outcomes import DRY_RUN, columns_of_outcomes, outcome
from actorproc.cli.output.output import Output, complain
from actorproc.cli.select.common import ID_HELP, OK, REFUSED, code_of, full_id, globals_for, is_owned, open_reader
from actorproc.cli.select.filters import add_filters, filter_of, has_filter, no_match
from actorproc.cli.select.steering import Steered
from actorproc.errors import ActorprocError, UsageError
from actorproc.support.login_name import login_name
from actorproc.ui.command_words import in_command_words
from actorproc.ui.text import counted

if TYPE_CHECKING:
    from actorproc.cli.select.steering import Steering

__all__ = ["Act", "add_author", "add_care", "add_selection", "apply", "asked", "carry_out", "confirmed", "selected"]

Act = Callable[["Steering", str], str]
"""Does it to one, and says what came of it."""


def add_selection(parser: argparse.ArgumentParser, *, ids: bool = True) -> None:
    """Add ids, filters, and the options of careful people to a verb."""
    globals_for(parser)
    if ids:
        parser.add_argument("ids", nargs="*", metavar="ID", help=ID_HELP)
    else:
        parser.set_defaults(ids=[])
    add_care(parser)
    parser.add_argument("--all-matching", action="store_true", help="all that match the filters, in place of ids")
    add_filters(parser, paging=False)


class Asked(TypedDict):
    """Facts about a request that verbs record."""

    reason: str | None
    by: str


def asked(options: argparse.Namespace) -> Asked:
    """The reason and the name for a verb, as arguments of its method."""
    return {"reason": options.reason, "by": login_name() if options.asked_by is None else options.asked_by}


def add_care(parser: argparse.ArgumentParser) -> None:
    """Add what every verb takes: a reason, a dry run, and the answer to the question."""
    add_author(parser)
    parser.add_argument("--dry-run", action="store_true", help="only say what would be done")
    parser.add_argument("-y", "--yes", action="store_true", help="do not ask before doing it to many")


def add_author(parser: argparse.ArgumentParser) -> None:
    """Add the reason and the name that are recorded with a request."""
    parser.add_argument("--reason", metavar="TEXT", help="why; it is recorded (actorproc show, actorproc audit)")
    parser.add_argument(
        "--as", dest="asked_by", metavar="NAME", help="the name that is recorded with it (default: your login name)"
    )


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
    with open_reader(options) as reader:
        return [info.id for info in reader.matching(filter_of(options, reader))]


def apply(options: argparse.Namespace, verb: str, act: Act, *, roots: bool = False) -> int:
    """Do it to all that are selected; `roots`: children cannot be asked for it, so a filter leaves them out."""
    names = selected(options, roots=roots)
    if options.all_matching and not options.dry_run and not confirmed(options, verb, names):
        return REFUSED
    return carry_out(options, verb, names, act)


def confirmed(options: argparse.Namespace, verb: str, names: list[str], thing: str = "procedure") -> bool:
    """True if a verb may be done to many: asked for with --yes, or allowed at the terminal."""
    if options.yes or not names:
        return True
    if not sys.stdin.isatty():
        raise UsageError(f"this would {verb} {counted(len(names), thing)}: say --yes, or look first with --dry-run")
    named = ", ".join(names[:3]) + (", …" if len(names) > 3 else "")
    sys.stderr.write(f"{verb} {counted(len(names), thing)} ({named})? [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def carry_out(options: argparse.Namespace, verb: str, names: list[str], act: Act, subject: str = "ID") -> int:
    """Do it to each, tell each result as it comes, and give the exit code: that of the first failure."""
    output = Output(options)
    codes: list[int] = []
    if not names:
        complain(no_match(options))
        output.rows("outcome", [[]] if output.is_json else [], [], name=str)  # a program gets its empty list
        return OK
    steered = Steered(options)

    def results() -> Iterator[list[dict[str, Any]]]:
        if options.dry_run:
            is_owned(options)  # there is a store
            yield [outcome(name, verb, DRY_RUN) for name in names]
            return
        with steered as engine:
            rows = (_row_of(name, verb, act, engine, steered, codes) for name in names)
            if not steered.is_stopped:
                yield from ([row] for row in rows)
                return
            found = list(rows)
        yield found  # only now: who reads it may take its time, and the store is given back

    output.rows("outcome", results(), columns_of_outcomes(subject), name=lambda row: row["id"], live=True)
    if len(codes) < len(names):
        steered.tell()
    return next((code for code in codes if code), OK)


def _row_of(name: str, verb: str, act: Act, engine: Steering, steered: Steered, codes: list[int]) -> dict[str, Any]:
    try:
        return outcome(name, verb, act(engine, name), applied=steered.applied)
    except (ActorprocError, ValueError, TypeError) as error:
        codes.append(code_of(error))
        says = in_command_words(str(error), steered.path)
        return outcome(name, verb, error=says, applied=steered.applied)
