"""What the store tells the core at a start, or after a failed commit."""

from __future__ import annotations

import msgspec

from actorproc.model.records import EventRecord, LockRecord, PoisonRecord, ProcedureRecord, UndoRecord

__all__ = ["Damage", "Snapshot"]


class Damage(msgspec.Struct, frozen=True):
    """A record that fails its checksum or does not decode: its procedure is parked, the rest runs."""

    table: str
    key: str
    reason: str


class Snapshot(msgspec.Struct):
    """What recovery needs, read in one transaction.

    `procedures` holds, in submit order, every head of every tree whose root has not finished.
    `units` and finished members are included for all those trees (the core keeps what it needs).
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
