"""Snapshot that the store gives the core at a start, or after a failed commit."""

from __future__ import annotations

import msgspec

from actorproc.model.rows.cold_trees import ColdTrees
from actorproc.model.rows.records import (
    AcknowledgementRecord,
    EventRecord,
    LockRecord,
    PoisonRecord,
    ProcedureRecord,
    RemovalRecord,
    StartRecord,
    UndoRecord,
)
from actorproc.model.rows.schedules import ScheduleRecord

__all__ = ["Damage", "FinishedTree", "RecoverySnapshot"]


class Damage(msgspec.Struct, frozen=True):
    """A record that fails its checksum or does not decode: its procedure is parked, the rest runs."""

    table: str
    key: str
    reason: str


class RecoverySnapshot(msgspec.Struct):
    """Stored facts that recovery needs, read in one transaction.

    `procedures` holds, in submit order, every head of every tree whose root has not finished, but for trees that are
    `cold`. `units` and finished members are included for all those trees (the core keeps what it needs).
    """

    epoch: int
    next_seq: int
    """One more than the highest submit number ever given."""
    next_ticket: int
    """One more than the highest lock ticket stored in any head."""
    procedures: list[ProcedureRecord]
    units: list[UndoRecord]
    locks: list[LockRecord]
    poisons: list[PoisonRecord]
    events: list[EventRecord]
    damage: list[Damage]
    batch: int = 0
    """Number of the last batch its present owner committed; 0: none yet."""
    last_batch: int = 0
    """Number of the last batch that the owner before committed; 0: none."""
    paused: str | None = None
    """Reason for which an operator paused the whole manager; None: it is not paused."""
    audits: int = 0
    """Rows of the audit log about the manager itself."""
    acknowledgements: list[AcknowledgementRecord] = msgspec.field(default_factory=list)
    """Finished roots whose results were taken, the first acknowledged first."""
    removals: list[RemovalRecord] = msgspec.field(default_factory=list)
    """Trees that are half removed."""
    starts: list[StartRecord] = msgspec.field(default_factory=list)
    """Starts that rate limits count."""
    schedules: list[ScheduleRecord] = msgspec.field(default_factory=list)
    """Schedules, by id."""
    cold: ColdTrees = msgspec.field(default_factory=ColdTrees)
    """Trees that are left in the store until something moves them; empty when the whole was asked for."""

    def release(self) -> None:
        """Forget the rows: the core has what it needs of them, and lets go of it when a tree ends."""
        self.procedures, self.units, self.events, self.cold = [], [], [], ColdTrees()


class FinishedTree(msgspec.Struct, frozen=True):
    """A finished tree, or the first part of a large one, as its removal needs it."""

    members: tuple[ProcedureRecord, ...]
    """Heads in submit order, the root first."""
    more: bool = False
    """There are more members than these."""
    units: bool = False
    """Undo units are left: its rollback gave up, or it cannot be undone."""
    surplus: bool = False
    """Newer roots than `Retention.count` have finished since."""
