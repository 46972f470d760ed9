"""Writes of small records by short names, for tests of a store."""

from __future__ import annotations

from typing import Any

import msgspec

from actorproc.model.ids import Mode
from actorproc.model.policies import LockMode
from actorproc.model.rows.asks import ReplyRecord
from actorproc.model.rows.records import (
    AttemptRecord,
    ChildRecord,
    ErrorInfo,
    EventRecord,
    ExposedRecord,
    LockRecord,
    NoteRecord,
    PoisonRecord,
    ProcedureRecord,
    StepKind,
    StepRecord,
    UndoRecord,
)
from actorproc.model.rows.writes import (
    PutAttempt,
    PutChild,
    PutEvent,
    PutExposed,
    PutLock,
    PutNote,
    PutPoison,
    PutProcedure,
    PutReply,
    PutStep,
    PutUndo,
    Was,
)
from actorproc.model.states import ProcedureState

__all__ = ["Writes"]


class Writes:
    """Makes records, and the writes that store them. All fields that are not given have plain values."""

    @staticmethod
    def head(
        id: str,
        seq: int,
        *,
        root: str | None = None,
        parent: str | None = None,
        state: ProcedureState = ProcedureState.RUNNABLE,
        **fields: Any,
    ) -> ProcedureRecord:
        """The head of a procedure; its own root unless `root` names another."""
        values: dict[str, Any] = {"type_name": "shop.Order", "version": 1, "digest": b"d"} | fields
        return ProcedureRecord(id=id, seq=seq, root=root or id, parent=parent, state=state, **values)

    @classmethod
    def new(cls, id: str, seq: int, **fields: Any) -> PutProcedure:
        """The write of a head that is new."""
        return PutProcedure(cls.head(id, seq, **fields), None)

    @staticmethod
    def put(record: ProcedureRecord) -> PutProcedure:
        """The write of a given head that is new."""
        return PutProcedure(record, None)

    @staticmethod
    def change(record: ProcedureRecord, **fields: Any) -> tuple[PutProcedure, ProcedureRecord]:
        """The write that stores a stored head with other fields, and the head it leaves."""
        was = Was.of(record)
        changed = msgspec.structs.replace(record, **fields)
        return PutProcedure(changed, was), changed

    @staticmethod
    def step(procedure: str, number: int, kind: StepKind = StepKind.STEP, **fields: Any) -> PutStep:
        """A record of the step log."""
        return PutStep(StepRecord(procedure=procedure, number=number, kind=kind, at=1.5, state=b"state", **fields))

    @staticmethod
    def child(parent: str, step: int, index: int, child: str) -> PutChild:
        """The link of a parent to a child."""
        return PutChild(ChildRecord(parent, step, index, child))

    @staticmethod
    def undo(root: str, seq: int, procedure: str = "p") -> PutUndo:
        """An undo unit."""
        return PutUndo(UndoRecord(root, seq, procedure, "label", 1))

    @staticmethod
    def lock(path: str, holder: str) -> PutLock:
        """A granted lock."""
        return PutLock(LockRecord(path, LockMode.WRITE, holder, holder, 2.5))

    @staticmethod
    def poison(path: str) -> PutPoison:
        """A poisoned key."""
        return PutPoison(PoisonRecord(path, "p", "p", 3.5, "rollback gave up"))

    @staticmethod
    def event(target: str, seq: int, payload: bytes = b"x") -> PutEvent:
        """A signal or an event."""
        return PutEvent(EventRecord(target, seq, payload, None, 4.5))

    @staticmethod
    def attempt(procedure: str, step: int, attempt: int = 1) -> PutAttempt:
        """A failed attempt of a step."""
        error = ErrorInfo("error", "ValueError", "no", procedure=procedure, step=step)
        at = float(attempt)
        return PutAttempt(AttemptRecord(procedure, step, Mode.EXECUTE, attempt, 1, at, at + 0.5, 0, 1, 77, error))

    @staticmethod
    def exposed(procedure: str, key: str, value: bytes = b"\x01") -> PutExposed:
        """A value that a procedure showed."""
        return PutExposed(ExposedRecord(procedure, key, value, 5.5))

    @staticmethod
    def reply(procedure: str, ask: str, name: str = "price", value: bytes = b"\x01") -> PutReply:
        """A reply to an ask."""
        return PutReply(ReplyRecord(procedure, name, ask, value, 6.5, 2))

    @staticmethod
    def note(procedure: str, number: int, key: str) -> PutNote:
        """A write-ahead note of a step."""
        return PutNote(NoteRecord(procedure, number, key, b"value"))
