"""Evidence of a history: the contents of the store at its end, and the broken promises."""

from __future__ import annotations

import msgspec

from actorproc.errors import StoreDamaged
from actorproc.model.rows.asks import ReplyRecord
from actorproc.model.rows.records import (
    AttemptRecord,
    ExposedRecord,
    LockRecord,
    PoisonRecord,
    ProcedureRecord,
    StepRecord,
)
from actorproc.store.base import RecordStore

__all__ = ["StoreDump", "Violation", "steps_that_are_there"]


class Violation(msgspec.Struct, frozen=True):
    """A broken promise: the number of the invariant and what was seen."""

    number: int
    text: str


class StoreDump(msgspec.Struct):
    """Everything in a store at the end of a history."""

    heads: dict[str, ProcedureRecord]
    steps: dict[str, list[StepRecord]]
    locks: list[LockRecord]
    poisons: list[PoisonRecord]
    attempts: dict[str, list[AttemptRecord]] | None = None
    """Failed attempts by procedure; None: they were not read."""
    exposed: dict[str, list[ExposedRecord]] | None = None
    """Values that procedures show; None: they were not read."""
    replies: dict[str, list[ReplyRecord]] | None = None
    """Replies to asks by procedure; None: they were not read."""
    lists: dict[str, list[str]] | None = None
    """Ids that lists find, by ``tag TEXT`` and ``field TEXT``, and wrong rows of their index; None: not read."""

    @classmethod
    def of(cls, store: RecordStore) -> StoreDump:
        """Read a whole store through its protocol."""
        heads = {head.id: head for head in store.scan()}
        steps = {name: steps_that_are_there(store, head) for name, head in heads.items()}
        attempts = {name: store.attempts(name) for name in heads}
        return cls(heads, steps, store.locks(), store.poisons(), attempts, store.exposed(list(heads)))


def steps_that_are_there(store: RecordStore, head: ProcedureRecord) -> list[StepRecord]:
    """The step log as far as it is there: what is missing of it is for the judges to tell."""
    try:
        return store.steps(head.id)
    except StoreDamaged:
        found = (store.step(head.id, number) for number in range(1, head.records + 1))
        return [record for record in found if record is not None]
