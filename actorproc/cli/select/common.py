"""Parts that all commands share: the directory, ids by their beginning, exit codes."""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from actorproc.cli.output.nearest import nearest_ids
from actorproc.errors import (
    DuplicateProcedure,
    EngineError,
    InternalError,
    KeyPoisoned,
    ManagerBusy,
    ManagerStopped,
    NotAllowed,
    OutcomeUnknown,
    ProcedureFailed,
    ProcedureParked,
    StoreDamaged,
    StoreInUse,
    UnknownProcedure,
    UnknownStep,
    UsageError,
)

if TYPE_CHECKING:
    from actorproc.api.client import ProcedureClient
    from actorproc.api.reader import StoreReader
    from actorproc.store.home import Home
    from actorproc.store.reading import ReadingStore

__all__ = [
    "FAILED",
    "ID_HELP",
    "NOT_FOUND",
    "OK",
    "PATIENCE",
    "REFUSED",
    "TIMED_OUT",
    "UNREACHABLE",
    "USAGE",
    "AmbiguousId",
    "after_command",
    "code_of",
    "directory",
    "full_id",
    "globals_for",
    "is_live",
    "is_owned",
    "open_client",
    "open_reader",
    "quiet",
    "refuse_password",
    "shown",
    "start_command",
    "typed",
    "whole_number",
]

after_command = ExitStack()
"""Undoes, at the end of a command, what it changed of the process: a program may run one as a function."""

ID_HELP = "an id, or the beginning of one that no other id has"
OK, FAILED, USAGE, NOT_FOUND, UNREACHABLE, REFUSED, TIMED_OUT = 0, 1, 2, 3, 4, 5, 124

_CANDIDATES = 10
PATIENCE = 5.0
"""Seconds to wait for a manager that has the store and does not answer yet."""


class AmbiguousId(UsageError):
    """Several procedures have ids that begin so."""


def code_of(error: BaseException) -> int:
    """The exit code for an error."""
    if isinstance(error, TimeoutError):
        return TIMED_OUT
    if isinstance(error, ProcedureFailed):
        return FAILED
    if isinstance(error, UnknownProcedure | UnknownStep):
        return NOT_FOUND
    if isinstance(error, NotAllowed | ManagerBusy | KeyPoisoned | DuplicateProcedure | StoreInUse):
        return REFUSED
    if isinstance(error, StoreDamaged | ProcedureParked | InternalError):
        return FAILED
    if isinstance(error, ManagerStopped | OutcomeUnknown | EngineError):
        return UNREACHABLE
    return USAGE if isinstance(error, UsageError | ValueError | TypeError) else FAILED


def globals_for(parser: argparse.ArgumentParser, *, output: bool = True) -> argparse.ArgumentParser:
    """Let a command take the global options behind its name too."""
    says = "directory of the store, or URL of one in a database (default: $ACTORPROC_PATH, else ./state)"
    parser.add_argument("--path", metavar="DIR", default=argparse.SUPPRESS, help=says)
    if output:
        from actorproc.cli.output.colour import CHOICES
        from actorproc.cli.output.output import FORMATS

        parser.add_argument("--color", choices=CHOICES, default=argparse.SUPPRESS, help="auto, always or never")

        parser.add_argument(
            "-o",
            "--output",
            choices=FORMATS,
            metavar="FORMAT",
            default=argparse.SUPPRESS,
            help="table, wide, json, jsonl or name (default: $ACTORPROC_OUTPUT, else table)",
        )
    return parser


def whole_number(least: int, most: int | None = None) -> Callable[[str], int]:
    """The type of an option: a whole number of at least this, and at most that."""

    def number(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least or (most is not None and value > most):
            bounds = f"of at least {least}" if most is None else f"between {least} and {most}"
            msg = f"{text!r} is no whole number {bounds}"
            raise argparse.ArgumentTypeError(msg)
        return value

    return number


def directory(options: argparse.Namespace) -> str:
    """The store's directory or URL: --path, else $ACTORPROC_PATH, else ./state.

    Raises `UsageError` when it is a URL that cannot be used, or one with a password that all users of the machine see.
    """
    from actorproc.store.home import home_of

    path = getattr(options, "path", None)
    refuse_password(path)
    path = path or os.environ.get("ACTORPROC_PATH") or "state"
    home_of(path)
    return path


def refuse_password(path: str | None) -> None:
    """Raise `UsageError` when an argument of a command is a URL with a password: every user of the machine sees it."""
    if path is None or "://" not in path:
        return
    from actorproc.store.postgres.place import is_database_url, place_of

    if is_database_url(path) and place_of(path).has_password:
        raise UsageError(
            "a password on the command line is seen by every user of this machine. Leave it out of the URL, and give "
            "it in a file (PGPASSFILE, ~/.pgpass), in a service file or in PGPASSWORD"
        )


def shown(options: argparse.Namespace) -> str:
    """The store's directory as it was given, or its URL without a password."""
    path = directory(options)
    place = home(options)
    return path if place.is_near else place.words


def home(options: argparse.Namespace) -> Home:
    """The home of the store. Raises as `directory` does."""
    from actorproc.store.home import home_of

    return home_of(directory(options))


def open_reader(options: argparse.Namespace) -> StoreReader:
    """The store, to look into; needs no manager."""
    from actorproc.api.reader import StoreReader

    return StoreReader(directory(options))


def is_live(reader: StoreReader) -> bool:
    """A manager has the store open."""
    return reader.owner() is not None


def start_command(options: argparse.Namespace) -> str:
    """The command that starts a manager on this store."""
    path = shown(options)
    return "actorproc run MODULE" + ("" if path == "state" else f" --path {shlex.quote(path)}")


def typed(options: argparse.Namespace, words: str, *values: str) -> str:
    """A command to type next, `values` quoted: the same store is meant, so what --path said is said again."""
    from actorproc.ui.command_words import command_line

    return command_line(getattr(options, "path", None), words, *values)


def open_client(options: argparse.Namespace) -> ProcedureClient:
    """The running manager. Raises `ManagerStopped` that says how to start one."""
    from actorproc.api.client import ProcedureClient

    quiet()
    if not is_owned(options):
        msg = f"no manager runs on {shown(options)}: start one with `{start_command(options)}`"
        raise ManagerStopped(msg)
    return ProcedureClient(directory(options), patience=getattr(options, "patience", PATIENCE))


def is_owned(options: argparse.Namespace) -> bool:
    """A manager has the store open. Raises `EngineError` when there is no store."""
    with open_reader(options) as reader:
        return reader.owner() is not None


def quiet() -> None:
    """Print what the library logs of a verb as our own output, until `after_command` is closed.

    The handler of last resort of `logging` escapes nothing.
    """
    import logging

    logger, handler = logging.getLogger("actorproc"), logging.NullHandler()
    after_command.callback(setattr, logger, "propagate", logger.propagate)
    after_command.callback(logger.removeHandler, handler)
    logger.addHandler(handler)
    logger.propagate = False


def full_id(source: StoreReader | ReadingStore, start: str) -> str:
    """The id that is this, or the only one that begins so. Raises `UnknownProcedure`, `AmbiguousId`, `UsageError`."""
    if not start:  # an empty variable of a script, and not the beginning of the only id there is
        raise UsageError("an id is empty; give one, or the beginning of one")
    found = source.ids(start)[: _CANDIDATES + 1]
    if start in found:
        return start
    if not found:
        from actorproc.model.rows.enqueued import no_procedure

        store: Any = getattr(source, "_store", source)
        if (row := store.enqueued_under(start)) is not None:
            raise UnknownProcedure(no_procedure(start, row))
        near = nearest_ids(source, start)
        meant = f"; did you mean {' or '.join(near)}?" if near else ""
        msg = f"no procedure has the id {start!r}, or one that begins so, in {source.path}{meant}"
        raise UnknownProcedure(msg)
    if len(found) > 1:
        more = ", …" if len(found) > _CANDIDATES else ""
        msg = f"{start!r} is the beginning of several ids: {', '.join(found[:_CANDIDATES])}{more}"
        raise AmbiguousId(msg)
    return found[0]
