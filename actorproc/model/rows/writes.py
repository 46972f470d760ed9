"""Writes of a decision. A batch of them is applied atomically, in order."""

from __future__ import annotations

import msgspec

from actorproc.model.rows.asks import ReplyRecord
from actorproc.model.rows.enqueued import EnqueuedRecord
from actorproc.model.rows.records import (
    AcknowledgementRecord,
    AttemptRecord,
    AuditRecord,
    ChildRecord,
    EventRecord,
    ExposedRecord,
    LockRecord,
    NoteRecord,
    PoisonRecord,
    ProcedureRecord,
    RemovalRecord,
    StartRecord,
    StepRecord,
    UndoRecord,
)
from actorproc.model.rows.schedules import ScheduleRecord
from actorproc.model.states import ProcedureState

__all__ = [
    "DeleteAcknowledgement",
    "DeleteEnqueued",
    "DeleteEvent",
    "DeleteLinks",
    "DeleteLock",
    "DeletePoison",
    "DeleteProcedure",
    "DeleteRemoval",
    "DeleteReply",
    "DeleteSchedule",
    "DeleteUndo",
    "PutAcknowledgement",
    "PutAttempt",
    "PutAudit",
    "PutChild",
    "PutEnqueued",
    "PutEvent",
    "PutExposed",
    "PutLock",
    "PutNote",
    "PutPoison",
    "PutProcedure",
    "PutRemoval",
    "PutReply",
    "PutSchedule",
    "PutStart",
    "PutStep",
    "PutSwitch",
    "PutUndo",
    "TrimLog",
    "Was",
    "Write",
]


class Was(msgspec.Struct, frozen=True, gc=False):
    """The indexed fields of a head as they are stored now; the store moves index rows by it."""

    state: ProcedureState
    due_at: float | None
    finished_at: float | None
    tags: tuple[str, ...] = ()
    searchable: tuple[str, ...] = ()

    @classmethod
    def of(cls, record: ProcedureRecord) -> Was:
        """The indexed fields of a head that the store has as it is."""
        return cls(record.state, record.due_at, record.finished_at, record.tags, record.searchable)


class PutProcedure(msgspec.Struct, frozen=True, gc=False):
    """Store a head. `was` is None for a new one; `record` is a snapshot that does not change any more."""

    record: ProcedureRecord
    was: Was | None


class PutStep(msgspec.Struct, frozen=True, gc=False):
    record: StepRecord


class PutChild(msgspec.Struct, frozen=True, gc=False):
    record: ChildRecord


class PutAttempt(msgspec.Struct, frozen=True, gc=False):
    """Store a failed attempt in its place, where an older one may be."""

    record: AttemptRecord


class PutUndo(msgspec.Struct, frozen=True, gc=False):
    record: UndoRecord


class DeleteUndo(msgspec.Struct, frozen=True, gc=False):
    root: str
    seq: int


class PutLock(msgspec.Struct, frozen=True, gc=False):
    record: LockRecord


class DeleteLock(msgspec.Struct, frozen=True, gc=False):
    path: str
    holder: str


class PutPoison(msgspec.Struct, frozen=True, gc=False):
    record: PoisonRecord


class DeletePoison(msgspec.Struct, frozen=True, gc=False):
    path: str


class PutEvent(msgspec.Struct, frozen=True, gc=False):
    record: EventRecord


class DeleteEvent(msgspec.Struct, frozen=True, gc=False):
    target: str
    seq: int


class PutReply(msgspec.Struct, frozen=True, gc=False):
    record: ReplyRecord


class DeleteReply(msgspec.Struct, frozen=True, gc=False):
    procedure: str
    mark: str


class PutExposed(msgspec.Struct, frozen=True, gc=False):
    record: ExposedRecord


class PutNote(msgspec.Struct, frozen=True, gc=False):
    record: NoteRecord


class DeleteProcedure(msgspec.Struct, frozen=True, gc=False):
    """Remove one terminal procedure with its steps, links, notes and index rows, in this one transaction.

    In a removal spread over several transactions the closing record and the head are the last to go.
    """

    record: ProcedureRecord


class PutAudit(msgspec.Struct, frozen=True, gc=False):
    record: AuditRecord


class PutSwitch(msgspec.Struct, frozen=True, gc=False):
    """The switch of the whole manager, and how many rows of the audit log are about the manager."""

    paused: str | None
    """Reason of the pause; None: it is not paused."""
    audits: int


class PutAcknowledgement(msgspec.Struct, frozen=True, gc=False):
    record: AcknowledgementRecord


class DeleteAcknowledgement(msgspec.Struct, frozen=True, gc=False):
    root: str


class PutRemoval(msgspec.Struct, frozen=True, gc=False):
    """From this commit on no reader sees any procedure of the tree; its rows go in the commits that follow."""

    record: RemovalRecord


class DeleteRemoval(msgspec.Struct, frozen=True, gc=False):
    """The last row of the tree went in this transaction."""

    root: str


class PutSchedule(msgspec.Struct, frozen=True, gc=False):
    """Store a schedule as it is now; with a firing, in the commit that submits its procedure."""

    record: ScheduleRecord


class DeleteSchedule(msgspec.Struct, frozen=True, gc=False):
    id: str


class PutEnqueued(msgspec.Struct, frozen=True, gc=False):
    """Keep a row that was refused, with the reason."""

    record: EnqueuedRecord


class DeleteEnqueued(msgspec.Struct, frozen=True, gc=False):
    """Take a row out; in the commit that creates its procedure, or that keeps it as refused."""

    key: bytes


class TrimLog(msgspec.Struct, frozen=True, gc=False):
    """Remove the records `first` to `last` of a step log, and the notes and failed attempts of steps before `step`."""

    procedure: str
    first: int
    last: int
    step: int


class DeleteLinks(msgspec.Struct, frozen=True, gc=False):
    """Remove the links of a parent to all its children; these have ended, and are removed later."""

    parent: str


class PutStart(msgspec.Struct, frozen=True, gc=False):
    record: StartRecord


Write = (
    PutProcedure
    | PutStep
    | PutChild
    | PutAttempt
    | PutUndo
    | DeleteUndo
    | PutLock
    | DeleteLock
    | PutPoison
    | DeletePoison
    | PutEvent
    | DeleteEvent
    | PutNote
    | PutExposed
    | PutReply
    | DeleteReply
    | PutStart
    | PutAudit
    | PutSwitch
    | DeleteProcedure
    | PutAcknowledgement
    | DeleteAcknowledgement
    | PutRemoval
    | DeleteRemoval
    | TrimLog
    | DeleteLinks
    | PutSchedule
    | DeleteSchedule
    | PutEnqueued
    | DeleteEnqueued
)
