"""Memory is a cache of the store: after every commit it must equal a core restored from store and pending writes.

An `Image` follows the writes one by one, so no store has to be cloned; that it does follow the store is
checked at the end of each history.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

from actorproc.core import recovery
from actorproc.core.coordinator import Coordinator
from actorproc.core.state.fingerprint import facts_of
from actorproc.model.ids import Mode
from actorproc.model.policies import Scheduling
from actorproc.model.rows.records import ProcedureRecord, UndoRecord, copied
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.rows.writes import (
    DeleteAcknowledgement,
    DeleteEvent,
    DeleteLock,
    DeletePoison,
    DeleteProcedure,
    DeleteRemoval,
    DeleteUndo,
    PutAcknowledgement,
    PutEvent,
    PutLock,
    PutPoison,
    PutProcedure,
    PutRemoval,
    PutStart,
    PutSwitch,
    PutUndo,
    Write,
)
from actorproc.model.states import TERMINAL
from actorproc.store.base import RecordStore

__all__ = ["Image", "compare_loads", "compare_with_restored"]

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
}
"""Changes of a core's memory by type of write; steps, links, notes and audit rows change nothing."""


def _was_opened_again(known: ProcedureRecord, record: ProcedureRecord) -> bool:
    """True if it had ended and goes on, or was retried and ended at once; a bypass alone opens nothing."""
    if known.state not in TERMINAL:
        return False
    return record.state not in TERMINAL or (known.run != record.run and not record.bypassed)


def compare_with_restored(core: Coordinator, image: Image) -> str | None:
    """None when memory equals `restore(store + pending writes)`, else both fingerprints."""
    # Classes are registered again right after a restart; a core without them would park everything.
    state, busy = recovery.rebuild(image.snapshot(), core._state.now, (), core._state.scheduling)
    state.types = core._state.types
    recovery.resume(state, busy)
    restored = Coordinator(state)
    live, again = _comparable(core), _comparable(restored)
    if live == again or _undo_waits_for_a_running_step(core) or _is_asked_before_it_waits(core):
        return None
    rows = [f"  {name}: memory {live[name]}, restored {again[name]}" for name in live if live[name] != again[name]]
    return "\n".join(["memory is not what a restart would give:", *rows])


def compare_loads(store: RecordStore, now: float, scheduling: Scheduling) -> str | None:
    """None when memory that left the cold trees in the store knows what one that loaded them knows; else the rows."""
    found = []
    for whole in (True, False):
        core = Coordinator.rebuilt(store.load(whole=whole), now, scheduling=scheduling)
        core.settle(core.seal())
        found.append(_known(core))
    loaded, left = found
    rows = [f"  {name}: {loaded[name]}, left in the store {left[name]}" for name in left if loaded[name] != left[name]]
    return "\n".join(["memory differs when cold trees are not loaded:", *rows]) if rows else None


def _known(core: Coordinator) -> dict[str, object]:
    state = core._state
    return {
        "durable": core.fingerprint(),
        "timers": state.timers.entries(),
        "listeners": state.subscribers.entries(),
        "open roots": state.open_roots,
        "running roots": state.admission.running,
        "slots": state.key_limits.holders,
        "resident": set(state.procs),
    }


def _undo_waits_for_a_running_step(core: Coordinator) -> bool:
    """An undo is locked out by another failing scope whose step still runs: a restart finds that scope at rest."""
    return any(
        tree.undoing is not None and tree.undoing in tree.waiting and any(tree.runs_below(top) for top in tree.scopes)
        for tree in core._state.trees.values()
    )


def _is_asked_before_it_waits(core: Coordinator) -> bool:
    """A procedure asks for locks or slots only when a worker has answered for its `abort`: after a restart at once.

    Those above it keep their slots as long as it does not wait for any.
    """
    state = core._state
    asked = {
        name for name, worker in state.worker_table.in_hand.items() if worker.queue[name].token.mode is Mode.ASK_ABORT
    }
    asked |= state.asking.keys()  # the question came back unanswered, and no worker is there to ask it again
    records = [state.procs[name] for name in asked if name in state.procs]
    return any(
        not (record.locked or record.rolling or state.locks.is_waiting(record.id))
        or (state.key_limits.concerns(record) and record.id not in state.key_limits)
        for record in records
    )


def _comparable(core: Coordinator) -> dict[str, Any]:
    """The facts of a fingerprint, whose "at work" names only what a restart would queue again.

    Left out: who is asked about an abort (asked anew), steps of a failing scope that are still running (their
    answers are lost), steps of classes that are not registered again yet.
    """
    procs, types = core._state.procs, core._state.types
    found = facts_of(core._state)
    at_work = set()
    for name in found["at work"]:
        record = core.view(name)
        assert record is not None
        if not record.aborting and (record.undoing or not record.rolling) and record.type_name in types:
            at_work.add(name)
    found["at work"] = at_work
    # Whether a waiter goes before those of trees without locks is fairness, not a fact that must survive.
    found["lock queue"] = set(found["lock queue"])
    if found["due"]:
        found["due"] = {
            (at, name) for at, name in found["due"] if procs[name].type_name in types and not procs[name].aborting
        }
    return found
