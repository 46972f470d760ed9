"""Reading records out of sorted rows: everything of a store that does not write.

A store gives `_view()`, one consistent snapshot of its rows, and gets all reading methods of the protocol.
No snapshot is ever open while the caller's code runs: a forgotten iterator must not keep LMDB from reusing
pages, nor the map from growing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from heapq import nlargest
from itertools import islice
from operator import attrgetter
from typing import Any, TypeVar, cast

from actorproc.errors import EngineError, StoreDamaged, UnknownProcedure
from actorproc.model.reports import KeptSignal, Looked, StoreSize
from actorproc.model.rows.records import (
    AttemptRecord,
    AuditRecord,
    ChildRecord,
    EventRecord,
    ExposedRecord,
    LockRecord,
    NoteRecord,
    PoisonRecord,
    ProcedureRecord,
    StepRecord,
    UndoRecord,
)
from actorproc.model.rows.snapshot import FinishedTree, RecoverySnapshot
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.store.rows import codec
from actorproc.store.rows.debounces import DebounceReader
from actorproc.store.rows.enqueued import EnqueuedReader
from actorproc.store.rows.keys import field_key, head_key, number_key, prefix, tag_key, text_key, time_key
from actorproc.store.rows.layout import COPIED_FROM, EPOCH, MOVED_TO, PAUSED, STATE_INDEX, STORE_ID, meta_of
from actorproc.store.rows.loading import read_number, read_snapshot
from actorproc.store.rows.reading_order import COUNTED, Index, merged, narrowest_indexes
from actorproc.store.rows.replies import ReplyReader
from actorproc.store.rows.schedules import ScheduleReader
from actorproc.store.rows.step_log import in_pages, read_log, step_key
from actorproc.store.rows.tables import Rows, Table

__all__ = ["RecordReader", "refuse_moved"]

_T = TypeVar("_T")
_ASTRAY = "the row points to a procedure that is missing or another one"
_CHUNK = 256
_SEQ = 8
"""Bytes of a place in submit order, at the end of a key of an index."""


class RecordReader(ScheduleReader, DebounceReader, EnqueuedReader, ReplyReader):
    """The reading half of `ProcedureStore`; callable from any thread."""

    def _trees(self, roots: Sequence[str], limit: int | None) -> AbstractContextManager[Rows]:
        """A snapshot in which these trees are read: members, up to one more than `limit` of each, and undo units."""
        del roots, limit
        return self._view()

    @property
    def store_id(self) -> str:
        """The name this store was given when it was made (a UUID)."""
        with self._view() as rows:
            value = rows.get(Table.META, STORE_ID)
        if value is None:
            raise codec.damaged(Table.META, STORE_ID, "the row is missing")
        return str(meta_of(STORE_ID, value))

    @property
    def copied_from(self) -> str | None:
        """The `store_id` of the store of which this one began as a backup; None when it did not."""
        with self._view() as rows:
            value = rows.get(Table.META, COPIED_FROM)
        return None if value is None else str(meta_of(COPIED_FROM, value))

    @property
    def moved_to(self) -> str | None:
        """The place to which this store was moved; None when it was not."""
        with self._view() as rows:
            value = rows.get(Table.META, MOVED_TO)
        return None if value is None else str(meta_of(MOVED_TO, value))

    @property
    def paused(self) -> str | None:
        """Reason for which an operator paused the whole manager; None: it is not paused."""
        with self._view() as rows:
            value = rows.get(Table.META, PAUSED)
        return None if value is None else str(meta_of(PAUSED, value))

    @property
    def epoch(self) -> int:
        """Number of owners that the store has had."""
        with self._view() as rows:
            return read_number(rows, EPOCH)

    def load(self, *, whole: bool = True) -> RecoverySnapshot:
        """Everything recovery needs. Damaged records are listed, not raised. See `RecordStore.load`."""
        with self._view() as rows:
            return read_snapshot(rows, whole=whole)

    def procedure(self, id: str, *, removed: bool = False) -> ProcedureRecord | None:
        """One head, None when unknown; with `removed` also one whose tree is half removed."""
        with self._view() as rows:
            head = _head(rows, head_key(id))
            return head if head is None or removed or not _is_removed(rows, head_key(head.root)) else None

    def procedures(self, ids: Sequence[str]) -> list[ProcedureRecord]:
        """The heads of the procedures that are known, in the order of the ids."""
        with self._view() as rows:
            heads = _heads(rows, map(head_key, ids))
            found = [head for id in ids if (head := heads.get(head_key(id))) is not None]
            if rows.is_empty(Table.REMOVALS):
                return found
            return [head for head in found if not _is_removed(rows, head_key(head.root))]

    def tree(self, root: str) -> tuple[list[ProcedureRecord], list[UndoRecord]]:
        """All heads of a tree in submit order (root first) and its undo units, oldest first."""
        with self._trees([root], None) as rows:
            if _is_removed(rows, head_key(root)):
                return [], []
            entries = [(Table.MEMBERS, *entry) for entry in rows.scan(Table.MEMBERS, prefix(root))]
            heads = _indexed_heads(rows, entries)
            return heads, _all(rows, Table.UNDO, prefix(root))

    def step(self, id: str, number: int) -> StepRecord | None:
        """One record of the step log."""
        return self._twice(lambda rows: _step(rows, id, number))

    def states(self, wanted: Sequence[tuple[str, int]]) -> dict[tuple[str, int], StepRecord]:
        """Several records of step logs; those that are missing or damaged are left out."""
        with self._view() as rows:
            keys = {step_key(id, number): (id, number) for id, number in wanted}
            found = {}
            for key, value in rows.get_many(Table.STEPS, list(keys)).items():
                with contextlib.suppress(StoreDamaged):
                    found[keys[key]] = cast("StepRecord", codec.decode(Table.STEPS, key, value))
        return found

    def place_of(self, id: str, number: int) -> str | None:
        """The file that holds the long field of a record; None where only the owner of a store in files tells it."""
        del id, number
        return None

    def ending(self, id: str) -> tuple[ProcedureRecord, StepRecord | None] | None:
        """The head and the closing record of a procedure that has ended; None when it has not, or is unknown."""

        def read(rows: Rows) -> tuple[ProcedureRecord, StepRecord | None] | None:
            head = _head(rows, head_key(id))
            if head is None or head.state not in TERMINAL or _is_removed(rows, head_key(head.root)):
                return None
            return head, _step(rows, id, head.records)

        return self._twice(read)

    def steps(self, id: str) -> list[StepRecord]:
        """The step log of a procedure in order of number."""

        def read(rows: Rows) -> list[StepRecord]:
            head = rows.get(Table.PROCEDURES, head_key(id))
            if head is None:
                return []
            found = codec.decode(Table.PROCEDURES, head_key(id), head)
            get = in_pages(partial(rows.get_many, Table.STEPS), id)
            return list(read_log(get, id, found.records, found.trimmed))[::-1]

        return self._twice(read)

    def _twice(self, read: Callable[[Rows], _T]) -> _T:
        """Read, and read again from another snapshot when it is damaged.

        The file of a long value goes as soon as no row names it, and a snapshot may be older than that.
        """
        try:
            with self._view() as rows:
                return read(rows)
        except StoreDamaged:
            with self._view() as rows:
                return read(rows)

    def children(self, parent: str, step: int | None = None) -> list[ChildRecord]:
        """Links to children in order of (step, index); of one step when given."""
        start = prefix(parent) if step is None else prefix(parent) + number_key(step)
        with self._view() as rows:
            return _all(rows, Table.CHILDREN, start)

    def notes(self, id: str, step: int | None = None) -> list[NoteRecord]:
        """Write-ahead notes of a procedure; of one step when given."""
        start = prefix(id) if step is None else prefix(id) + number_key(step) + b"\0"
        with self._view() as rows:
            return _all(rows, Table.NOTES, start)

    def attempts(self, id: str, step: int | None = None) -> list[AttemptRecord]:
        """Failed attempts of a procedure in order of time; of one step when given."""
        start = prefix(id) if step is None else prefix(id) + number_key(step)
        with self._view() as rows:
            found: list[AttemptRecord] = _all(rows, Table.ATTEMPTS, start)
        return sorted(found, key=attrgetter("ended_at", "step", "attempt"))

    def deaths(self, most: int, looked: int = 20_000) -> list[AttemptRecord]:
        """Newest attempts that ended with the death of their worker, among the first `looked` of the store."""
        found = []
        with self._view() as rows:
            for key, value in islice(rows.scan(Table.ATTEMPTS), looked):
                with contextlib.suppress(StoreDamaged):
                    attempt: AttemptRecord = codec.decode(Table.ATTEMPTS, key, value)
                    if attempt.error.crash is not None:
                        found.append(attempt)
        return nlargest(most, found, key=attrgetter("ended_at"))

    def exposed(self, ids: Sequence[str]) -> dict[str, list[ExposedRecord]]:
        """Values that procedures have shown, in order of their keys; nothing hangs on one that is damaged."""
        found: dict[str, list[ExposedRecord]] = {}
        with self._view() as rows:
            for id in ids:
                for key, value in rows.scan(Table.EXPOSED, prefix(id)):
                    with contextlib.suppress(StoreDamaged):
                        found.setdefault(id, []).append(codec.decode(Table.EXPOSED, key, value))
        return found

    def audit(self, target: str) -> list[AuditRecord]:
        """Requests of operators, for a procedure or (empty target) the manager, in order."""
        with self._view() as rows:
            return _all(rows, Table.AUDIT, prefix(target))

    def locks(self) -> list[LockRecord]:
        """All granted locks."""
        with self._view() as rows:
            return _all(rows, Table.LOCKS, b"")

    def poisons(self) -> list[PoisonRecord]:
        """All poisoned keys."""
        with self._view() as rows:
            return _all(rows, Table.POISON, b"")

    def events(self, target: str) -> list[EventRecord]:
        """Signals of a target, oldest first, with notes of those that were taken."""
        with self._view() as rows:
            return _all(rows, Table.EVENTS, text_key(target) + b"\0")

    def kept_signals(self, target: str | None = None) -> list[KeptSignal]:
        """Signals and events that no procedure has taken, of one target when given; without their payloads."""
        start = b"" if target is None else text_key(target) + b"\0"
        with self._view() as rows:
            found: Iterable[EventRecord] = (
                codec.decode(Table.EVENTS, key, value) for key, value in rows.scan(Table.EVENTS, start)
            )
            return [KeptSignal.of(row) for row in found if not row.taken]

    def finished(
        self,
        *,
        before: float | None = None,
        limit: int | None = None,
        after: tuple[str, float] | None = None,
        reverse: bool = False,
    ) -> list[tuple[str, float]]:
        """Finished roots and when they finished (epoch seconds), the longest finished first, or last with `reverse`.

        `before` leaves out what finished at that time or later, `after` all up to this root in that order. This is
        what retention looks at. Trees that are half removed are not listed.
        """
        found: list[tuple[str, float]] = []
        place = None if after is None else time_key(after[1]) + b"\0" + head_key(after[0])
        with self._view() as rows:
            for key, root in rows.scan(Table.FINISHED, after=place, reverse=reverse):
                at, id_ = int.from_bytes(key[:8]) / 1e6, key[9:]
                if len(found) == limit:
                    break
                if before is not None and at >= before:
                    if reverse:
                        continue
                    break
                # Stores of older versions list finished children here too.
                if id_ == root and not _is_removed(rows, id_):
                    found.append((_name(id_), at))
        return found

    def finished_tree(self, root: str, limit: int) -> FinishedTree | None:
        """A tree as its removal needs it, with at most `limit` members; None when there is no such root."""
        with self._trees([root], limit) as rows:
            return _finished_tree(rows, root, limit)

    def finished_trees(self, roots: Sequence[str], limit: int) -> list[FinishedTree | None]:
        """As `finished_tree` of each root, up to the one with which there are `limit` members or more."""
        found: list[FinishedTree | None] = []
        room = limit
        with self._trees(roots, limit) as rows:
            for root in roots:
                try:
                    tree = _finished_tree(rows, root, limit)
                except StoreDamaged:
                    if not found:
                        raise
                    break  # it is raised when it is the first one
                found.append(tree)
                room -= len(tree.members) if tree is not None else 0
                if room <= 0:
                    break
        return found

    def removed_members(self, root: str, limit: int | None) -> tuple[list[ProcedureRecord], bool]:
        """Remaining members of a half removed tree: the latest ones, at most `limit`, and whether there are more."""
        with self._view() as rows:
            room = None if limit is None else limit + 1
            entries = list(islice(rows.scan(Table.MEMBERS, prefix(root), reverse=True), room))
            heads = _indexed_heads(rows, [(Table.MEMBERS, *entry) for entry in entries[:limit]])
        return heads, len(heads) < len(entries)

    def ids(self, start: str, limit: int | None = None) -> list[str]:
        """Ids that begin with this text, in order of ids."""
        with self._view() as rows:
            gone = {_name(key) for key, _ in rows.scan(Table.REMOVALS)}
            found = (_name(key) for key, _ in rows.scan(Table.PROCEDURES, start.encode("utf-8", "replace")))
            return list(islice((name for name in found if name not in gone), limit))

    def count_states(self) -> dict[ProcedureState, int]:
        """Number of procedures by state; states without any are left out.

        Only those that have not ended are read. Tables have lengths: that of `failed` and that of `rolled_back` are
        numbers of a state, and those that succeeded are what the unfinished leave of `by_state`.
        """
        with self._view() as rows:
            counts = {
                state: 0 if state in TERMINAL else sum(1 for _ in rows.scan(*index))
                for state, index in STATE_INDEX.items()
            }
            counts[ProcedureState.SUCCESS] = max(0, rows.count(Table.BY_STATE) - sum(counts.values()))
            for state in COUNTED:
                counts[state] = rows.count(STATE_INDEX[state][0])
        return {state: count for state, count in counts.items() if count}

    def size(self) -> StoreSize:
        """Size of the store; one without a file counts rows only."""
        with self._view() as rows:
            return StoreSize(0, 0, rows.count(Table.PROCEDURES), rows.count(Table.STEPS), rows.count(Table.FINISHED))

    def types(self) -> list[str]:
        """Names of the types of stored procedures: one row of the index is read for each."""
        found: list[str] = []
        place: bytes | None = None
        while True:
            with self._view() as rows:
                entry = next(iter(rows.scan(Table.BY_TYPE, after=place)), None)
                if entry is None:
                    return found
                head = _sound_head(rows, Table.BY_TYPE, *entry)
            if head is not None:
                found.append(head.type_name)
            place = entry[0][:-_SEQ] + b"\xff" * _SEQ

    def scan(
        self,
        *,
        state: ProcedureState | Collection[ProcedureState] | None = None,
        type_name: str | None = None,
        root: str | None = None,
        tag: str | Collection[str] | None = None,
        where: Collection[str] = (),
        after: str | None = None,
        reverse: bool = False,
        skip_damaged: bool = False,
        looked: Looked | None = None,
    ) -> Iterator[ProcedureRecord]:
        """Heads in submit order that match all given filters; newest first with `reverse`.

        Read in chunks of up to 256 index rows, each from one snapshot, while the caller iterates. None comes twice,
        and one that changed meanwhile comes as it is when its chunk is read.
        """
        states = frozenset({state}) if isinstance(state, ProcedureState) else state
        tags = (tag,) if isinstance(tag, str) else tuple(tag or ())
        texts = [*map(field_key, where), *map(tag_key, tags)]
        place = None
        if after is not None:
            head = self.procedure(after)
            if head is None:
                raise UnknownProcedure(f"no procedure has the id {after!r}, so nothing comes after it")
            place = number_key(head.seq)

        def matches(head: ProcedureRecord) -> bool:
            return (
                (states is None or head.state in states)
                and (type_name is None or head.type_name == type_name)
                and (root is None or head.root == root)
                and (not tags or all(one in head.tags for one in tags))
                and (not where or all(text in head.searchable for text in where))
            )

        def chunks(place: bytes | None) -> Iterator[ProcedureRecord]:
            indexes: list[Index] = []
            while True:
                with self._view() as rows:
                    indexes = indexes or narrowest_indexes(rows, states, type_name, root, texts)
                    entries = list(islice(merged(rows, indexes, place, reverse=reverse), _CHUNK))
                    heads = _indexed_heads(rows, entries, skip_damaged=skip_damaged)
                    gone = {_name(key) for key, _ in rows.scan(Table.REMOVALS)}
                for head in heads:
                    if looked is not None:
                        looked.count += 1
                        looked.cut_at = head.id if looked.count >= looked.most else None
                    if head.root not in gone and matches(head):
                        yield head
                    if looked is not None and looked.cut_at is not None:
                        return
                if len(entries) < _CHUNK:
                    return
                place = entries[-1][1][-_SEQ:]

        return chunks(place)


def refuse_moved(store: RecordReader, words: object) -> None:
    """Raise `EngineError` for a store that was moved elsewhere, unless its `takes_moved` is set."""
    if getattr(store, "takes_moved", False) or (target := store.moved_to) is None:
        return
    raise EngineError(
        f"the store {words} was moved to {target}: use that one, or take the mark off with `actorproc move --undo` if "
        "nothing has run there"
    )


def _head(rows: Rows, key: bytes) -> ProcedureRecord | None:
    value = rows.get(Table.PROCEDURES, key)
    return None if value is None else cast("ProcedureRecord", codec.decode(Table.PROCEDURES, key, value))


def _step(rows: Rows, id: str, number: int) -> StepRecord | None:
    key = step_key(id, number)
    value = rows.get(Table.STEPS, key)
    return None if value is None else cast("StepRecord", codec.decode(Table.STEPS, key, value))


def _is_removed(rows: Rows, root: bytes) -> bool:
    """The tree is half removed. There is hardly ever one, and to see that costs nothing."""
    return not rows.is_empty(Table.REMOVALS) and rows.get(Table.REMOVALS, root) is not None


def _name(key: bytes) -> str:
    """The id in a key, which a damaged row may have as any bytes."""
    return key.decode("utf-8", "backslashreplace")


def _indexed_head(rows: Rows, table: Table, key: bytes, id_: bytes) -> ProcedureRecord:
    """The head an index row points to. The row is checked by it: both end in the same seq."""
    head = _head(rows, id_)
    if head is None or number_key(head.seq) != key[-8:]:
        raise codec.damaged(table, key, _ASTRAY)
    return head


def _finished_tree(rows: Rows, root: str, limit: int) -> FinishedTree | None:
    if _is_removed(rows, head_key(root)):
        return None
    entries = list(islice(rows.scan(Table.MEMBERS, prefix(root)), limit + 1))
    if not entries:
        return None
    heads = _indexed_heads(rows, [(Table.MEMBERS, *entry) for entry in entries[:limit]])
    units = next(rows.scan(Table.UNDO, prefix(root)), None) is not None
    return FinishedTree(tuple(heads), more=len(entries) > limit, units=units)


def _heads(rows: Rows, keys: Iterable[bytes]) -> dict[bytes, ProcedureRecord]:
    """The heads under these keys, as far as they are there."""
    found = rows.get_many(Table.PROCEDURES, list(keys))
    return {key: codec.decode(Table.PROCEDURES, key, value) for key, value in found.items()}


def _indexed_heads(
    rows: Rows, entries: Sequence[tuple[Table, bytes, bytes]], *, skip_damaged: bool = False
) -> list[ProcedureRecord]:
    """The heads that index rows point to, as `_indexed_head` reads one; all are looked up at once."""
    if len(entries) == 1 and not skip_damaged:
        return [_indexed_head(rows, *entries[0])]
    values = rows.get_many(Table.PROCEDURES, [id_ for _, _, id_ in entries])
    found: list[ProcedureRecord] = []
    for table, key, id_ in entries:
        try:
            value = values.get(id_)
            head: ProcedureRecord | None = None if value is None else codec.decode(Table.PROCEDURES, id_, value)
            if head is None or number_key(head.seq) != key[-_SEQ:]:
                raise codec.damaged(table, key, _ASTRAY)
        except StoreDamaged:
            if not skip_damaged:
                raise
        else:
            found.append(head)
    return found


def _sound_head(rows: Rows, table: Table, key: bytes, id_: bytes) -> ProcedureRecord | None:
    """As `_indexed_head`; None when it is damaged."""
    try:
        return _indexed_head(rows, table, key, id_)
    except StoreDamaged:
        return None


def _all(rows: Rows, table: Table, start: bytes) -> list[Any]:
    return [codec.decode(table, key, value) for key, value in rows.scan(table, start)]
