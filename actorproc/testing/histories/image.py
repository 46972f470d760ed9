"""Contents of a store once every pending write is in.

An `Image` follows the writes one by one, so no store has to be cloned; that it does follow the store is
checked at the end of each history.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from actorproc.model.rows.records import ProcedureRecord, UndoRecord, copied
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.rows.writes import (
    DeleteAcknowledgement,
    DeleteEvent,
    DeleteLock,
    DeletePoison,
    DeleteProcedure,
    DeleteRemoval,
    DeleteSchedule,
    DeleteUndo,
    PutAcknowledgement,
    PutEvent,
    PutLock,
    PutPoison,
    PutProcedure,
    PutRemoval,
    PutSchedule,
    PutStart,
    PutSwitch,
    PutUndo,
    Write,
)
from actorproc.model.states import TERMINAL

__all__ = ["Image"]

_seq = attrgetter("seq")


class Image:
    """Contents of the store once every pending write is in: kept up to date write by write."""

    def __init__(self, snapshot: RecoverySnapshot) -> None:
        self.epoch = snapshot.epoch
        self.paused, self.audits = snapshot.paused, snapshot.audits
        self.next_seq = snapshot.next_seq
        self.next_ticket = snapshot.next_ticket
        self.heads = {record.id: copied(record) for record in snapshot.procedures}
        self.units = {(unit.root, unit.seq): unit for unit in snapshot.units}
        self.locks = {(lock.path, lock.holder): lock for lock in snapshot.locks}
        self.poisons = {poison.path: poison for poison in snapshot.poisons}
        self.events = {(event.target, event.seq): event for event in snapshot.events}
        self.acknowledgements = {row.root: row for row in snapshot.acknowledgements}
        self.removals = {row.root: row for row in snapshot.removals}
        self.schedules = {row.id: row for row in snapshot.schedules}
        self.starts = {(start.key, start.place): start for start in snapshot.starts}

    def copy(self) -> Image:
        """Another one with the same content; a head is never changed, only replaced."""
        other = copy.copy(self)
        for name, rows in vars(self).items():
            if isinstance(rows, dict):
                setattr(other, name, dict(rows))
        return other

    def adopt(self, members: Sequence[ProcedureRecord], units: Sequence[UndoRecord]) -> None:
        """A stored tree that had left memory is read again; one that is known stays as it is."""
        if members and members[0].root not in self.heads:
            self.heads.update((record.id, copied(record)) for record in members)
            self.units.update(((unit.root, unit.seq), unit) for unit in units)

    def apply(self, writes: list[Write]) -> None:
        """Apply the writes of a decision, in order."""
        for write in writes:
            apply = _APPLY.get(type(write))
            if apply is not None:
                apply(self, write)

    def _put_head(self, write: PutProcedure) -> None:
        record = write.record
        known = self.heads.get(record.id)
        # A ticket that a head had before may be of an older life; one that was opened again has drawn it anew.
        if known is None or known.ticket != record.ticket or _was_opened_again(known, record):
            self.next_ticket = max(self.next_ticket, record.ticket + 1)
        self.heads[record.id] = record
        self.next_seq = max(self.next_seq, record.seq + 1)

    def _put_unit(self, write: PutUndo) -> None:
        self.units[write.record.root, write.record.seq] = write.record

    def _delete_unit(self, write: DeleteUndo) -> None:
        self.units.pop((write.root, write.seq), None)

    def _put_lock(self, write: PutLock) -> None:
        self.locks[write.record.path, write.record.holder] = write.record

    def _delete_lock(self, write: DeleteLock) -> None:
        self.locks.pop((write.path, write.holder), None)

    def _put_poison(self, write: PutPoison) -> None:
        self.poisons[write.record.path] = write.record

    def _delete_poison(self, write: DeletePoison) -> None:
        self.poisons.pop(write.path, None)

    def _put_event(self, write: PutEvent) -> None:
        self.events[write.record.target, write.record.seq] = write.record

    def _delete_event(self, write: DeleteEvent) -> None:
        self.events.pop((write.target, write.seq), None)

    def _put_switch(self, write: PutSwitch) -> None:
        self.paused, self.audits = write.paused, write.audits

    def _put_start(self, write: PutStart) -> None:
        self.starts[write.record.key, write.record.place] = write.record

    def _delete_head(self, write: DeleteProcedure) -> None:
        gone = write.record.id
        self.heads.pop(gone, None)
        self.acknowledgements.pop(gone, None)
        self.units = {key: unit for key, unit in self.units.items() if unit.root != gone}
        self.events = {key: event for key, event in self.events.items() if event.target != gone}

    def _put_acknowledgement(self, write: PutAcknowledgement) -> None:
        self.acknowledgements[write.record.root] = write.record

    def _delete_acknowledgement(self, write: DeleteAcknowledgement) -> None:
        self.acknowledgements.pop(write.root, None)

    def _put_removal(self, write: PutRemoval) -> None:
        self.removals[write.record.root] = write.record

    def _delete_removal(self, write: DeleteRemoval) -> None:
        self.removals.pop(write.root, None)

    def _put_schedule(self, write: PutSchedule) -> None:
        self.schedules[write.record.id] = write.record

    def _delete_schedule(self, write: DeleteSchedule) -> None:
        self.schedules.pop(write.id, None)

    def snapshot(self) -> RecoverySnapshot:
        """Snapshot that `ProcedureStore.load` would give after one more commit."""
        heads = self.heads
        live = {record.root for record in heads.values() if record.state not in TERMINAL}
        procedures = [copied(record) for record in heads.values() if record.root in live]
        procedures.sort(key=_seq)
        return RecoverySnapshot(
            epoch=self.epoch,
            next_seq=self.next_seq,
            next_ticket=self.next_ticket,
            procedures=procedures,
            units=[unit for unit in self.units.values() if unit.root in live],
            locks=list(self.locks.values()),
            poisons=list(self.poisons.values()),
            events=list(self.events.values()),
            damage=[],
            paused=self.paused,
            audits=self.audits,
            acknowledgements=list(self.acknowledgements.values()),
            removals=list(self.removals.values()),
            starts=list(self.starts.values()),
            schedules=list(self.schedules.values()),
        )

    def content(self) -> tuple[list[Any], ...]:
        """The snapshot in an order that depends on nothing but the content."""
        snapshot = self.snapshot()
        return (
            sorted(snapshot.procedures, key=_seq),
            sorted(snapshot.units, key=lambda unit: (unit.root, unit.seq)),
            sorted(snapshot.locks, key=lambda lock: (lock.path, lock.holder)),
            sorted(snapshot.poisons, key=lambda poison: poison.path),
            sorted(snapshot.events, key=lambda event: (event.target, event.seq)),
            sorted(snapshot.acknowledgements, key=lambda row: row.root),
            sorted(snapshot.removals, key=lambda row: row.root),
            sorted(snapshot.starts, key=lambda row: (row.key, row.place)),
            sorted(snapshot.schedules, key=lambda row: row.id),
            [snapshot.paused, snapshot.audits],
        )


_APPLY: dict[type[Write], Callable[[Image, Any], None]] = {
    PutProcedure: Image._put_head,
    DeleteProcedure: Image._delete_head,
    PutUndo: Image._put_unit,
    DeleteUndo: Image._delete_unit,
    PutLock: Image._put_lock,
    DeleteLock: Image._delete_lock,
    PutPoison: Image._put_poison,
    DeletePoison: Image._delete_poison,
    PutEvent: Image._put_event,
    DeleteEvent: Image._delete_event,
    PutSwitch: Image._put_switch,
    PutStart: Image._put_start,
    PutAcknowledgement: Image._put_acknowledgement,
    DeleteAcknowledgement: Image._delete_acknowledgement,
    PutRemoval: Image._put_removal,
    DeleteRemoval: Image._delete_removal,
    PutSchedule: Image._put_schedule,
    DeleteSchedule: Image._delete_schedule,
}
"""Changes of a core's memory by type of write; steps, links, notes and audit rows change nothing."""


def _was_opened_again(known: ProcedureRecord, record: ProcedureRecord) -> bool:
    """True if it had ended and goes on, or was retried and ended at once; a bypass alone opens nothing."""
    if known.state not in TERMINAL:
        return False
    return record.state not in TERMINAL or (known.run != record.run and not record.bypassed)
