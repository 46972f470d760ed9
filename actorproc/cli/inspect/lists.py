"""``list``, ``locks``, ``poisons``, ``audit``: what is stored. They need no manager."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from actorproc.cli.output.output import Column, Output, complain
from actorproc.cli.select.common import (
    ID_HELP,
    OK,
    full_id,
    globals_for,
    home,
    open_reader,
    typed,
    whole_number,
)
from actorproc.cli.select.filters import add_filters, filter_of, has_filter, moment, no_match
from actorproc.errors import UnknownProcedure, UsageError
from actorproc.ui.text import clipped, duration, plain_line
from actorproc.ui.views.rows import why_of

if TYPE_CHECKING:
    from actorproc.api.reader import StoreReader
    from actorproc.report.audit import AuditFilter, AuditInfo
    from actorproc.report.info import ProcedureInfo
    from actorproc.report.listing import ListFilter
    from actorproc.store.reading import ReadingStore

__all__ = ["add_audit", "add_list", "add_locks", "add_poisons"]

_Commands = Any
_CHUNK = 256
_TABLES = ("table", "wide")
_PAGE = 50
"""Rows of a list that nothing is said about."""


def add_list(commands: _Commands) -> None:
    """Add ``list``."""
    parser = commands.add_parser(
        "list",
        aliases=["ls"],
        help="list procedures, the newest first, with filters",
        description=(
            "Without filters a table shows the 50 newest roots, those that have not ended and those that FAILED first. "
            "With filters, with --all and as JSON every one that matches is shown."
        ),
    )
    globals_for(parser)
    add_filters(parser)
    parser.add_argument("--all", action="store_true", help="every procedure, children too")
    parser.set_defaults(run=_list)


def _list(options: argparse.Namespace) -> int:
    output = Output(options)
    is_short = not (has_filter(options) or options.all or options.limit is not None or options.after or options.oldest)
    with home(options).reader() as store:
        wanted = [filter_of(options, store)]
        if is_short and output.format in _TABLES:
            wanted = _short_list(wanted[0])
        count = output.rows(
            "procedure",
            _found(store, wanted),
            _columns(output),
            name=lambda info: info.id,
            empty=no_match(options),
            drop=("CHANGED", "TRY", "TYPE", "STEP", "AGE"),
        )
        if is_short and output.format in _TABLES:
            total = sum(store.count_states().values())
            if total > count:
                complain(
                    f"{count} of {total:,} procedures: the newest roots, trouble first; "
                    f"all of them: {typed(options, 'list --all')}"
                )
    return OK


def _short_list(wanted: ListFilter) -> list[ListFilter]:
    """The first page: what has not ended or has failed, and then the rest."""
    from actorproc.model.states import ProcedureState

    ended_well = frozenset({ProcedureState.SUCCESS, ProcedureState.ROLLEDBACK})
    trouble = frozenset(ProcedureState) - ended_well
    short = msgspec.structs.replace(wanted, roots_only=True, newest_first=True, limit=_PAGE)
    return [msgspec.structs.replace(short, states=states) for states in (trouble, ended_well)]


def _found(store: ReadingStore, filters: Sequence[ListFilter]) -> Iterator[Sequence[ProcedureInfo]]:
    """Rows of the store, in chunks: the first rows are out before the last ones are read."""
    from actorproc.core.state.phases import seen_in_store
    from actorproc.report.info import info_of
    from actorproc.report.listing import children_by_state

    is_owned = store.owner() is not None
    chunk: list[ProcedureInfo] = []
    room = 32
    left = filters[0].limit
    for wanted in filters:
        for head in wanted.heads(store):
            if left == 0:
                break
            phase, reason = seen_in_store(head, is_owned=is_owned)
            if wanted.phases is not None and phase not in wanted.phases:
                continue
            shown = store.exposed((head.id,)).get(head.id, ()) if head.exposes else ()
            chunk.append(info_of(head, phase, reason, children_by_state(store, head), exposed=shown))
            if left is not None:
                left -= 1
            if len(chunk) == room:
                yield chunk
                chunk, room = [], _CHUNK
    yield chunk


def _exposed_of(info: ProcedureInfo) -> str:
    from actorproc.report.exposed import ExposedValues

    if not isinstance(info.exposed, ExposedValues) or not info.exposed:
        return "-"
    return clipped(", ".join(f"{key}={value.inline(80)}" for key, value in info.exposed.shown().items()), 200)


def _columns(output: Output) -> list[Column]:
    now = time.time()
    wide = output.is_wide
    columns: list[Column] = [
        ("ID", lambda info: info.id),
        ("TYPE", lambda info: info.type_name if wide else info.type_name.rpartition(".")[2]),
        ("STATE", lambda info: info.state),
        ("PHASE", lambda info: info.phase),
        ("STEP", _step_of),
        ("TRY", lambda info: info.attempt),
        ("AGE" if not wide else "CREATED", lambda info: output.when(info.created_at, now)),
        ("CHANGED", lambda info: output.when(info.finished_at or info.updated_at, now)),
    ]
    if wide:
        columns += [
            ("PARENT", lambda info: info.parent_id or "-"),
            ("ERRORS", lambda info: info.errors or "-"),
            ("CRASHES", lambda info: info.crashes or "-"),
            ("GEN", lambda info: info.generation if info.generation > 1 else "-"),
            ("PRIO", lambda info: info.priority or "-"),
            ("OWNER", lambda info: info.owner or "-"),
            ("TAGS", lambda info: ",".join(info.tags) or "-"),
            ("DUE", lambda info: output.when(info.due_at, now)),
            ("EXPOSED", _exposed_of),
        ]
    columns.append(("WHY", lambda info: clipped(plain_line(why_of(info)), 10_000 if wide else 60)))
    return columns


def _step_of(info: ProcedureInfo) -> str:
    """The number of the step, and its name where that is stored."""
    name = getattr(info, "step_name", None)
    return f"{info.step} {name}" if name and info.finished_at is None else str(info.step)


def add_locks(commands: _Commands) -> None:
    """Add ``locks``."""
    parser = commands.add_parser("locks", help="who holds which lock, and who waits for it in which order")
    globals_for(parser)
    parser.add_argument("key", nargs="?", metavar="KEY", help="only this key, and those above and below it")
    parser.add_argument("--waited", action="store_true", help="only those that others wait for")
    parser.set_defaults(run=_locks)


def _locks(options: argparse.Namespace) -> int:
    from actorproc.model.policies import is_nested

    output = Output(options)
    with open_reader(options) as reader:
        found = reader.locks()
    key = options.key
    if key is not None:
        found = [lock for lock in found if is_nested(lock.path, key)]
    if options.waited:
        found = [lock for lock in found if lock.waiters]
    columns: list[Column] = [
        ("KEY", lambda lock: lock.path),
        ("MODE", lambda lock: lock.mode),
        ("HOLDER", lambda lock: lock.holder),
        ("HELD", lambda lock: duration(lock.age) if lock.since else "-"),
        ("KIND", lambda lock: lock.kind),
        ("WAITERS", lambda lock: _waiters(lock.waiters, None if output.is_wide else 5)),
    ]
    output.rows("lock", [found], columns, name=lambda lock: lock.path, empty="no lock is held")
    return OK


def _waiters(waiters: Sequence[Any], limit: int | None) -> str:
    if not waiters:
        return "-"
    shown = [f"{waiter.procedure} ({waiter.mode})" for waiter in waiters[:limit]]
    rest = len(waiters) - len(shown)
    return ", ".join(shown) + (f", and {rest} more" if rest else "")


def add_poisons(commands: _Commands) -> None:
    """Add ``poisons``."""
    parser = commands.add_parser("poisons", help="keys that failed procedures left poisoned")
    globals_for(parser)
    parser.set_defaults(run=_poisons)


def _poisons(options: argparse.Namespace) -> int:
    output = Output(options)
    with open_reader(options) as reader:
        found = reader.poisons()
    now = time.time()
    columns: list[Column] = [
        ("KEY", lambda poison: poison.path),
        ("BY", lambda poison: ", ".join((poison.by, *poison.others))),
        ("SINCE", lambda poison: output.when(poison.at, now)),
        ("REASON", lambda poison: clipped(plain_line(poison.reason), 10_000 if output.is_wide else 80)),
    ]
    output.rows("poison", [found], columns, name=lambda poison: poison.path, empty="no key is poisoned")
    return OK


def add_audit(commands: _Commands) -> None:
    """Add ``audit``."""
    parser = commands.add_parser(
        "audit",
        help="what operators asked for: who, when and why",
        description=(
            "Of one procedure, also of one that was removed; without ID of the store: pauses of everything, cleared "
            "keys, results that were taken or deleted. With --all everything, the newest first."
        ),
    )
    globals_for(parser).add_argument("id", nargs="?", metavar="ID", help=ID_HELP)
    parser.add_argument("--all", action="store_true", help="requests about all procedures and the manager")
    parser.add_argument("--since", type=moment, metavar="TIME", help="at this time or later: 10m, 2h, 1d (ago), …")
    parser.add_argument("--until", type=moment, metavar="TIME", help="before this time")
    parser.add_argument("--verb", action="append", metavar="VERB", help="only abort, kill, retry, …; may be repeated")
    parser.add_argument("--by", metavar="NAME", help="only what was asked for under this name")
    parser.add_argument("--limit", type=whole_number(0), metavar="N", help="at most so many")
    parser.set_defaults(run=_audit)


def _nothing_asked(options: argparse.Namespace, chosen: AuditFilter) -> str:
    words = "operators asked for nothing" if chosen == type(chosen)() else "no request matches"
    if options.all or options.id is not None:
        return words
    return f"{words} of the store; those about procedures: {typed(options, 'audit', '--all')}"


def _audit(options: argparse.Namespace) -> int:
    from actorproc.core.operator.verbs import VERBS
    from actorproc.report.audit import AuditFilter

    if options.all and options.id is not None:
        raise UsageError("--all means every procedure: leave the id out")
    known = [verb.name for verb in VERBS]
    for verb in options.verb or ():
        if verb not in known:
            msg = f"no operator asks for {verb!r}; the verbs are {', '.join(known)}"
            raise UsageError(msg)
    chosen = AuditFilter.of(options.since, options.until, options.verb, options.by, options.limit)
    output = Output(options)
    with open_reader(options) as reader:
        found = chosen.among(reader.audit_log() if options.all else _audit_of(reader, options.id))
    now = time.time()
    columns: list[Column] = [
        ("AGO", lambda row: output.when(row.at, now)),
        ("ID", lambda row: row.id or "-"),
        ("VERB", lambda row: row.verb),
        ("BY", lambda row: row.by or "-"),
        ("DETAIL", lambda row: row.detail or "-"),
        ("REASON", lambda row: row.reason or "-"),
    ]
    output.rows("audit", [found], columns, name=lambda row: row.verb, empty=_nothing_asked(options, chosen))
    return OK


def _audit_of(reader: StoreReader, start: str | None) -> list[AuditInfo]:
    """Requests for the procedure with this id, or the beginning of it; without one those of the manager itself."""
    if start is None:
        return reader.audit()
    try:
        name = full_id(reader, start)
    except UnknownProcedure:
        try:
            return reader.audit(start)  # it was removed
        except UsageError:
            pass
        raise
    return reader.audit(name)
