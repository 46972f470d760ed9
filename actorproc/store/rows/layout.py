"""Layout of the store: the named databases, their keys, and how a write becomes rows.

All stores share this page, so a store is only something that keeps sorted rows of bytes::

    database     key                                  value
    ----------   ----------------------------------   ---------------------
    meta         name                                 number or text
    procedures   id                                   ProcedureRecord
    steps        number id                            StepRecord
    children     parent NUL step index                ChildRecord
    members      root NUL seq                         id
    undo         root NUL seq                         UndoRecord
    locks        path NUL holder                      LockRecord
    poison       path                                 PoisonRecord
    timers       due_at NUL id                        root
    events       target NUL seq                       EventRecord
    notes        id NUL step NUL key                  NoteRecord
    attempts     id NUL step place                    AttemptRecord
    exposed      id NUL key                           ExposedRecord
    replies      id NUL mark                          ReplyRecord
    starts       limit key NUL place                  StartRecord
    audit        id NUL number                        AuditRecord; the id is empty for the manager's own
    order        seq                                  id
    finished     finished_at NUL root                 root
    by_state     state NUL seq                        id, unless it failed or was rolled back
    failed       seq                                  id
    rolled_back  seq                                  id
    by_type      type NUL seq                         id
    by_tag       tag NUL seq                          id; also under FE and a text of a searchable field,
                                                      and under ``debounce KEY``
    acknowledged root                                 AcknowledgementRecord
    removals     root                                 RemovalRecord
    schedules    id                                   ScheduleRecord
    enqueued     "w" or "r" time random               EnqueuedRecord; w: it waits, r: it was refused

Numbers are 8 bytes, big-endian, so that byte order is numeric order; times are whole microseconds since
the epoch. Ids hold no NUL (`check_id`), so ``id NUL`` is a prefix that no other id shares. Text that is
long or holds NUL is cut and ends in its hash, which keeps every key within LMDB's 511 bytes
(`actorproc.store.rows.keys`). Why the number comes first in the step log: `actorproc.store.rows.step_log`.

Index rows move by `PutProcedure.was`; storing a head never reads. The root, the seq and the type of a procedure
never change, so their index rows are written once. `failed` and `rolled_back` are tables of their own,
because the length of a table is known in constant time.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, NamedTuple

from actorproc.model.ids import debounce_name
from actorproc.model.rows.cold_trees import debounce_of
from actorproc.model.rows.records import ProcedureRecord, StepRecord
from actorproc.model.rows.writes import (
    DeleteAcknowledgement,
    DeleteEnqueued,
    DeleteEvent,
    DeleteLinks,
    DeleteLock,
    DeletePoison,
    DeleteProcedure,
    DeleteRemoval,
    DeleteReply,
    DeleteSchedule,
    DeleteUndo,
    PutAcknowledgement,
    PutAttempt,
    PutAudit,
    PutChild,
    PutEnqueued,
    PutEvent,
    PutExposed,
    PutLock,
    PutNote,
    PutPoison,
    PutProcedure,
    PutRemoval,
    PutReply,
    PutSchedule,
    PutStart,
    PutStep,
    PutSwitch,
    PutUndo,
    TrimLog,
    Write,
)
from actorproc.model.states import ProcedureState
from actorproc.store.rows import codec
from actorproc.store.rows.keys import field_key, head_key, prefix, tag_key, text_key, time_key
from actorproc.store.rows.step_log import step_key
from actorproc.store.rows.tables import Table

__all__ = [
    "AUDITS",
    "COPIED_FROM",
    "EPOCH",
    "FORMAT",
    "FORMAT_KEY",
    "KEPT_AUDITS",
    "LARGEST",
    "LAST_BATCH",
    "MOVED_TO",
    "NEXT_SEQ",
    "PAUSED",
    "STATE_INDEX",
    "STORE_ID",
    "SWEEP",
    "PutOutside",
    "Row",
    "Sweep",
    "Until",
    "WholeLog",
    "index_rows",
    "key_of",
    "meta_of",
    "rows_of",
]

FORMAT = 4
"""Version of this layout. A store with another one is refused. With 2 the keys of the step log begin with the number.
With 3 the target of a published event is no id. With 4 a long pickled state is hashed as a whole."""

FORMAT_KEY = b"format"
STORE_ID = b"store_id"
EPOCH = b"epoch"
BATCH = b"batch"
LAST_BATCH = b"last_batch"
NEXT_SEQ = b"next_seq"
PAUSED = b"paused"
AUDITS = b"audits"
KEPT_AUDITS = 100_000
"""Rows of the manager in the audit log; the oldest goes with each one more."""
COPIED_FROM = b"copied_from"
MOVED_TO = b"moved_to"
LARGEST = 2**53
"""Beyond any number that is counted; one more than the largest of 64 bits could not be stored."""
_TEXTS = {STORE_ID, PAUSED, COPIED_FROM, MOVED_TO}
"""Rows about the store itself that are texts; the others are numbers."""

# Looked up once: CPython 3.11 runs Python code for every member that is taken from its enum.
_PROCEDURES, _STEPS = Table.PROCEDURES, Table.STEPS
_ORDER, _MEMBERS, _BY_TYPE = Table.ORDER, Table.MEMBERS, Table.BY_TYPE
_type_key = functools.lru_cache(maxsize=1024)(text_key)
_pack = struct.Struct(">Q").pack
_pack_two = struct.Struct(">QQ").pack


class Sweep(Enum):
    """The value of a row that deletes every key beginning with the row's key."""

    SWEEP = 0


SWEEP = Sweep.SWEEP


class WholeLog(NamedTuple):
    """The value of a row that deletes the step log of a procedure, from the record with the number `last` on down."""

    id: str
    last: int
    trimmed: int = 0


class Until(NamedTuple):
    """The value of a row that deletes every key from the row's key on that is less than `key`."""

    key: bytes


class PutOutside(NamedTuple):
    """A `PutStep` whose long field stands in a file, and is empty in the record."""

    record: StepRecord
    reference: codec.Reference


_LONG = 256 * 1024
"""Bytes of a state from which on one copy less is worth another kind of value."""

Row = tuple[Table, bytes, bytes | bytearray | int | Sweep | WholeLog | Until | None]
"""Database, key, and the change of its value:

- bytes, or a bytearray of many: put;
- None: delete;
- `SWEEP`: delete all keys with this prefix;
- `WholeLog`, `Until`: delete the rows that they name;
- an int: raise the number stored under this key to at least this.
"""


STATE_INDEX: dict[ProcedureState, tuple[Table, bytes]] = {
    state: (Table.BY_STATE, state.value.encode() + b"\0") for state in ProcedureState
} | {ProcedureState.FAILED: (Table.FAILED, b""), ProcedureState.ROLLEDBACK: (Table.ROLLED_BACK, b"")}
"""Table and beginning of the keys of the index rows of each state; the seq is the rest of a key."""


def rows_of(writes: Sequence[Write | PutOutside], batch: int = 0) -> list[Row]:
    """The rows that store `writes`, in order, and the number of the batch they are (0: not numbered)."""
    rows: list[Row] = []
    for write in writes:
        _ROWS[type(write)](write, rows)
    if batch:
        rows.append((Table.META, BATCH, codec.encode(Table.META, BATCH, batch)))
    return rows


def meta_of(key: bytes, value: bytes) -> int | str:
    """A row about the store itself. Raises `StoreDamaged`, also for a text in the place of a number."""
    found: int | str = codec.decode(Table.META, key, value)
    if isinstance(found, str) != (key in _TEXTS) or (isinstance(found, int) and not 0 <= found <= LARGEST):
        raise codec.damaged(Table.META, key, f"it cannot be {found!r:.60}")
    return found


def key_of(table: Table, record: Any) -> bytes:
    """The key under which a record of this table belongs."""
    rows: list[Row] = []
    put = _PUTS[table]
    _ROWS[put](put(record, None) if put is PutProcedure else put(record), rows)
    return rows[0][1]


def _put_procedure(write: PutProcedure, rows: list[Row]) -> None:
    record, was = write.record, write.was
    id_ = record.id.encode()
    rows.append((_PROCEDURES, id_, codec.encode(_PROCEDURES, id_, record)))
    if was is None:
        rows.extend(index_rows(record))
        return
    if was.state is not record.state:
        seq = _pack(record.seq)
        table, start = STATE_INDEX[was.state]
        rows.append((table, start + seq, None))
        table, start = STATE_INDEX[record.state]
        rows.append((table, start + seq, id_))
    if was.due_at != record.due_at:
        _move(Table.TIMERS, was.due_at, record.due_at, record, rows)
    if was.finished_at != record.finished_at and record.root == record.id:
        _move(Table.FINISHED, was.finished_at, record.finished_at, record, rows)
    if was.tags != record.tags:
        _move_texts(tag_key, was.tags, record.tags, record, rows)
        rows.extend(_debounce_rows(record))  # a tag that went may have had the same text
    if was.searchable or record.past is not None:
        _move_texts(field_key, was.searchable, record.searchable, record, rows)


def _move_texts(
    key_of: Callable[[str], bytes],
    old: tuple[str, ...],
    new: tuple[str, ...],
    record: ProcedureRecord,
    rows: list[Row],
) -> None:
    seq, id_ = _pack(record.seq), record.id.encode()
    rows.extend((Table.BY_TAG, key_of(text) + seq, None) for text in old if text not in new)
    rows.extend((Table.BY_TAG, key_of(text) + seq, id_) for text in new if text not in old)


def _move(table: Table, old: float | None, new: float | None, record: ProcedureRecord, rows: list[Row]) -> None:
    tail = b"\0" + record.id.encode()
    if old is not None:
        rows.append((table, time_key(old) + tail, None))
    if new is not None:
        rows.append((table, time_key(new) + tail, record.root.encode()))


def index_rows(record: ProcedureRecord) -> list[Row]:
    """Every index row of a head as it is."""
    id_, seq = record.id.encode(), _pack(record.seq)
    root = id_ if record.root == record.id else record.root.encode()
    table, start = STATE_INDEX[record.state]
    rows: list[Row] = [
        (_ORDER, seq, id_),
        (_MEMBERS, root + b"\0" + seq, id_),
        (table, start + seq, id_),
        (_BY_TYPE, _type_key(record.type_name) + b"\0" + seq, id_),
    ]
    if record.tags:
        rows.extend((Table.BY_TAG, tag_key(tag) + seq, id_) for tag in record.tags)
    if record.past is not None:
        rows.extend((Table.BY_TAG, field_key(text) + seq, id_) for text in record.past.searchable)
        rows.extend(_debounce_rows(record))
    if record.due_at is not None:
        _move(Table.TIMERS, None, record.due_at, record, rows)
    if record.finished_at is not None and record.root == record.id:
        _move(Table.FINISHED, None, record.finished_at, record, rows)
    return rows


def _debounce_rows(record: ProcedureRecord) -> list[Row]:
    mark = debounce_of(record)
    if mark is None:
        return []
    return [(Table.BY_TAG, tag_key(debounce_name(mark.key)) + _pack(record.seq), record.id.encode())]


def _delete_procedure(write: DeleteProcedure, rows: list[Row]) -> None:
    """Everything of one procedure; its closing record (the last of its steps) and its head go last.

    Locks and poisoned keys are no property of one procedure and stay.
    """
    record = write.record
    own = prefix(record.id)
    # The number of a removed procedure is never given again, even if it was the highest.
    rows.append((Table.META, NEXT_SEQ, record.seq + 1))
    rows.append((Table.NOTES, own, SWEEP))
    rows.append((Table.ATTEMPTS, own, SWEEP))
    rows.append((Table.EXPOSED, own, SWEEP))
    rows.append((Table.REPLIES, own, SWEEP))
    rows.append((Table.AUDIT, own, SWEEP))
    rows.append((Table.CHILDREN, own, SWEEP))
    rows.append((Table.EVENTS, text_key(record.id) + b"\0", SWEEP))
    if record.root == record.id:
        rows.append((Table.UNDO, own, SWEEP))
        rows.append((Table.ACKNOWLEDGED, record.id.encode(), None))
    rows.extend((table, key, None) for table, key, _ in index_rows(record))
    if record.finished_at is not None and record.root != record.id:
        _move(Table.FINISHED, record.finished_at, None, record, rows)  # older versions listed children too
    rows.append((Table.STEPS, own, WholeLog(record.id, record.records, record.trimmed)))
    rows.append((Table.PROCEDURES, record.id.encode(), None))


def _put_step(write: PutStep, rows: list[Row]) -> None:
    record = write.record
    key = step_key(record.procedure, record.number)
    encode = codec.encode if len(record.state) < _LONG else codec.encode_long
    rows.append((_STEPS, key, encode(_STEPS, key, record)))


def _put_outside(write: PutOutside, rows: list[Row]) -> None:
    record, reference = write
    key = step_key(record.procedure, record.number)
    rows.append((_STEPS, key, codec.encode_outside(_STEPS, key, record, reference)))


def _trim_log(write: TrimLog, rows: list[Row]) -> None:
    own = prefix(write.procedure)
    # Numbers that an unrecorded step had are among them, and have no row.
    rows.extend((_STEPS, step_key(write.procedure, number), None) for number in range(write.first, write.last + 1))
    rows.append((Table.NOTES, own, Until(own + _pack(write.step))))
    rows.append((Table.ATTEMPTS, own, Until(own + _pack(write.step))))


def _put_child(write: PutChild, rows: list[Row]) -> None:
    record = write.record
    key = record.parent.encode() + b"\0" + _pack_two(record.step, record.index)
    rows.append((Table.CHILDREN, key, codec.encode(Table.CHILDREN, key, record)))


def _delete_links(write: DeleteLinks, rows: list[Row]) -> None:
    rows.append((Table.CHILDREN, prefix(write.parent), SWEEP))


def _put_undo(write: PutUndo, rows: list[Row]) -> None:
    record = write.record
    key = record.root.encode() + b"\0" + _pack(record.seq)
    rows.append((Table.UNDO, key, codec.encode(Table.UNDO, key, record)))


def _delete_undo(write: DeleteUndo, rows: list[Row]) -> None:
    rows.append((Table.UNDO, prefix(write.root) + _pack(write.seq), None))


def _put_lock(write: PutLock, rows: list[Row]) -> None:
    record = write.record
    key = text_key(record.path) + b"\0" + record.holder.encode()
    rows.append((Table.LOCKS, key, codec.encode(Table.LOCKS, key, record)))


def _delete_lock(write: DeleteLock, rows: list[Row]) -> None:
    rows.append((Table.LOCKS, text_key(write.path) + b"\0" + write.holder.encode(), None))


def _put_poison(write: PutPoison, rows: list[Row]) -> None:
    key = text_key(write.record.path)
    rows.append((Table.POISON, key, codec.encode(Table.POISON, key, write.record)))


def _delete_poison(write: DeletePoison, rows: list[Row]) -> None:
    rows.append((Table.POISON, text_key(write.path), None))


def _put_event(write: PutEvent, rows: list[Row]) -> None:
    record = write.record
    key = text_key(record.target) + b"\0" + _pack(record.seq)
    rows.append((Table.EVENTS, key, codec.encode(Table.EVENTS, key, record)))


def _delete_event(write: DeleteEvent, rows: list[Row]) -> None:
    rows.append((Table.EVENTS, text_key(write.target) + b"\0" + _pack(write.seq), None))


def _put_note(write: PutNote, rows: list[Row]) -> None:
    record = write.record
    key = record.procedure.encode() + b"\0" + _pack(record.step) + b"\0" + text_key(record.key)
    rows.append((Table.NOTES, key, codec.encode(Table.NOTES, key, record)))


def _put_attempt(write: PutAttempt, rows: list[Row]) -> None:
    record = write.record
    key = record.procedure.encode() + b"\0" + _pack_two(record.step, record.place)
    rows.append((Table.ATTEMPTS, key, codec.encode(Table.ATTEMPTS, key, record)))


def _put_exposed(write: PutExposed, rows: list[Row]) -> None:
    record = write.record
    key = prefix(record.procedure) + text_key(record.key)
    rows.append((Table.EXPOSED, key, codec.encode(Table.EXPOSED, key, record)))


def _put_reply(write: PutReply, rows: list[Row]) -> None:
    record = write.record
    key = prefix(record.procedure) + text_key(record.mark)
    rows.append((Table.REPLIES, key, codec.encode(Table.REPLIES, key, record)))


def _delete_reply(write: DeleteReply, rows: list[Row]) -> None:
    rows.append((Table.REPLIES, prefix(write.procedure) + text_key(write.mark), None))


def _put_start(write: PutStart, rows: list[Row]) -> None:
    record = write.record
    key = text_key(record.key) + b"\0" + _pack(record.place)
    rows.append((Table.STARTS, key, codec.encode(Table.STARTS, key, record)))


def _put_acknowledgement(write: PutAcknowledgement, rows: list[Row]) -> None:
    key = head_key(write.record.root)
    rows.append((Table.ACKNOWLEDGED, key, codec.encode(Table.ACKNOWLEDGED, key, write.record)))


def _delete_acknowledgement(write: DeleteAcknowledgement, rows: list[Row]) -> None:
    rows.append((Table.ACKNOWLEDGED, head_key(write.root), None))


def _put_removal(write: PutRemoval, rows: list[Row]) -> None:
    key = head_key(write.record.root)
    rows.append((Table.REMOVALS, key, codec.encode(Table.REMOVALS, key, write.record)))


def _delete_removal(write: DeleteRemoval, rows: list[Row]) -> None:
    rows.append((Table.REMOVALS, head_key(write.root), None))


def _put_schedule(write: PutSchedule, rows: list[Row]) -> None:
    key = head_key(write.record.id)
    rows.append((Table.SCHEDULES, key, codec.encode(Table.SCHEDULES, key, write.record)))


def _delete_schedule(write: DeleteSchedule, rows: list[Row]) -> None:
    rows.append((Table.SCHEDULES, codec.shown_key(write.id), None))  # a damaged row may have any key


def _put_enqueued(write: PutEnqueued, rows: list[Row]) -> None:
    key = write.record.key
    rows.append((Table.ENQUEUED, key, codec.encode(Table.ENQUEUED, key, write.record)))


def _delete_enqueued(write: DeleteEnqueued, rows: list[Row]) -> None:
    rows.append((Table.ENQUEUED, write.key, None))


def _put_audit(write: PutAudit, rows: list[Row]) -> None:
    record = write.record
    key = prefix(record.target) + _pack(record.number)
    rows.append((Table.AUDIT, key, codec.encode(Table.AUDIT, key, record)))
    if not record.target and record.number > KEPT_AUDITS:
        own = prefix("")
        rows.append((Table.AUDIT, own, Until(own + _pack(record.number - KEPT_AUDITS + 1))))


def _put_switch(write: PutSwitch, rows: list[Row]) -> None:
    paused = None if write.paused is None else codec.encode(Table.META, PAUSED, write.paused)
    rows.append((Table.META, PAUSED, paused))
    rows.append((Table.META, AUDITS, codec.encode(Table.META, AUDITS, write.audits)))


_ROWS: dict[type, Callable[[Any, list[Row]], None]] = {
    PutProcedure: _put_procedure,
    DeleteProcedure: _delete_procedure,
    PutStep: _put_step,
    PutOutside: _put_outside,
    PutChild: _put_child,
    PutUndo: _put_undo,
    DeleteUndo: _delete_undo,
    PutLock: _put_lock,
    DeleteLock: _delete_lock,
    PutPoison: _put_poison,
    DeletePoison: _delete_poison,
    PutEvent: _put_event,
    DeleteEvent: _delete_event,
    PutNote: _put_note,
    PutAttempt: _put_attempt,
    PutExposed: _put_exposed,
    PutReply: _put_reply,
    DeleteReply: _delete_reply,
    PutStart: _put_start,
    PutAudit: _put_audit,
    PutSwitch: _put_switch,
    PutAcknowledgement: _put_acknowledgement,
    DeleteAcknowledgement: _delete_acknowledgement,
    PutRemoval: _put_removal,
    DeleteRemoval: _delete_removal,
    TrimLog: _trim_log,
    DeleteLinks: _delete_links,
    PutSchedule: _put_schedule,
    DeleteSchedule: _delete_schedule,
    PutEnqueued: _put_enqueued,
    DeleteEnqueued: _delete_enqueued,
}
_PUTS: dict[Table, type[Any]] = {
    Table.PROCEDURES: PutProcedure,
    Table.STEPS: PutStep,
    Table.CHILDREN: PutChild,
    Table.UNDO: PutUndo,
    Table.LOCKS: PutLock,
    Table.POISON: PutPoison,
    Table.EVENTS: PutEvent,
    Table.NOTES: PutNote,
    Table.ATTEMPTS: PutAttempt,
    Table.EXPOSED: PutExposed,
    Table.REPLIES: PutReply,
    Table.STARTS: PutStart,
    Table.AUDIT: PutAudit,
    Table.ACKNOWLEDGED: PutAcknowledgement,
    Table.REMOVALS: PutRemoval,
    Table.SCHEDULES: PutSchedule,
    Table.ENQUEUED: PutEnqueued,
}
