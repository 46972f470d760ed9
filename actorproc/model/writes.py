"""What a decision stores. A batch of writes is applied atomically, in order."""

from __future__ import annotations

import msgspec

from actorproc.model.records import (
    ChildRecord,
    EventRecord,
    LockRecord,
    NoteRecord,
    PoisonRecord,
    ProcedureRecord,
    StepRecord,
    UndoRecord,
)
from actorproc.model.states import ProcedureState

__all__ = [
    "DeleteEvent",
    "DeleteLock",
    "DeletePoison",
    "DeleteProcedure",
    "DeleteUndo",
    "PutChild",
    "PutEvent",
    "PutLock",
    "PutNote",
    "PutPoison",
    "PutProcedure",
    "PutStep",
    "PutUndo",
    "Was",
    "Write",
]


class Was(msgspec.Struct, frozen=True, gc=False):
    """The indexed fields of a head as they are stored now; the store moves index rows by it."""

    state: ProcedureState
    due_at: float | None
    finished_at: float | None


class PutProcedure(msgspec.Struct, frozen=True, gc=False):
    """Store a head. `was` is None for a new one; `record` is a snapshot nobody changes any more."""

    record: ProcedureRecord
    was: Was | None


class PutStep(msgspec.Struct, frozen=True, gc=False):
    record: StepRecord


class PutChild(msgspec.Struct, frozen=True, gc=False):
    record: ChildRecord


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


class PutNote(msgspec.Struct, frozen=True, gc=False):
    record: NoteRecord


class DeleteProcedure(msgspec.Struct, frozen=True, gc=False):
    """Remove one terminal procedure with its steps, links, notes and index rows, in this one transaction.

    In a removal spread over several transactions the closing record and the head are the last to go.
    """

    record: ProcedureRecord


Write = (
    PutProcedure
    | PutStep
    | PutChild
    | PutUndo
    | DeleteUndo
    | PutLock
    | DeleteLock
    | PutPoison
    | DeletePoison
    | PutEvent
    | DeleteEvent
    | PutNote
    | DeleteProcedure
)
