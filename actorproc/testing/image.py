"""Memory is a cache of the store: after every commit it must equal a core restored from store and pending writes.

An `Image` follows the writes one by one, so no store has to be cloned; that it does follow the store is
checked at the end of each history.
"""

from __future__ import annotations

import copy
from typing import Any

from actorproc.core import restoring
from actorproc.core.coordinator import Coordinator
from actorproc.model.records import ProcedureRecord
from actorproc.model.snapshot import Snapshot
from actorproc.model.states import TERMINAL
from actorproc.model.writes import (
    DeleteEvent,
    DeleteLock,
    DeletePoison,
    DeleteProcedure,
    DeleteUndo,
    PutEvent,
    PutLock,
    PutPoison,
    PutProcedure,
    PutStep,
    PutUndo,
    Write,
)

__all__ = ["Image", "compare_with_restored"]


class Image:
    """What the store will hold once every pending write is in: kept up to date write by write."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.epoch = snapshot.epoch
        self.next_seq = snapshot.next_seq
        self.next_ticket = snapshot.next_ticket
        self.heads = {record.id: copy.copy(record) for record in snapshot.procedures}
        self.units = {(unit.root, unit.seq): unit for unit in snapshot.units}
        self.locks = {(lock.path, lock.holder): lock for lock in snapshot.locks}
        self.poisons = {poison.path: poison for poison in snapshot.poisons}
        self.events = {(event.target, event.seq): event for event in snapshot.events}

    def apply(self, writes: list[Write]) -> None:
        """Apply the writes of a decision, in order."""
        for write in writes:
            if isinstance(write, PutProcedure):
                record = write.record
                self.heads[record.id] = record
                self.next_seq = max(self.next_seq, record.seq + 1)
                self.next_ticket = max(self.next_ticket, record.ticket + 1)
            elif not isinstance(write, PutStep):
                self._apply_other(write)

    def _apply_other(self, write: Write) -> None:
        if isinstance(write, PutUndo):
            self.units[write.record.root, write.record.seq] = write.record
        elif isinstance(write, DeleteUndo):
            self.units.pop((write.root, write.seq), None)
        elif isinstance(write, PutLock):
            self.locks[write.record.path, write.record.holder] = write.record
        elif isinstance(write, DeleteLock):
            self.locks.pop((write.path, write.holder), None)
        elif isinstance(write, PutPoison):
            self.poisons[write.record.path] = write.record
        elif isinstance(write, DeletePoison):
            self.poisons.pop(write.path, None)
        elif isinstance(write, PutEvent):
            self.events[write.record.target, write.record.seq] = write.record
        elif isinstance(write, DeleteEvent):
            self.events.pop((write.target, write.seq), None)
        elif isinstance(write, DeleteProcedure):
            self.heads.pop(write.record.id, None)

    def snapshot(self) -> Snapshot:
        """What `ProcedureStore.load` would give after one more commit."""
        heads = self.heads
        live = {record.root for record in heads.values() if record.state not in TERMINAL}
        procedures = [copy.copy(record) for record in heads.values() if record.root in live]
        procedures.sort(key=_seq)
        return Snapshot(
            epoch=self.epoch,
            next_seq=self.next_seq,
            next_ticket=self.next_ticket,
            procedures=procedures,
            units=[unit for unit in self.units.values() if unit.root in live],
            locks=list(self.locks.values()),
            poisons=list(self.poisons.values()),
            events=list(self.events.values()),
            damage=[],
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
        )


def _seq(record: ProcedureRecord) -> int:
    return record.seq


def compare_with_restored(core: Coordinator, image: Image) -> str | None:
    """None when memory equals `restore(store + pending writes)`, else both fingerprints."""
    # Classes are registered again right after a restart; a core without them would park everything.
    book = restoring.rebuild(image.snapshot(), core._book.now, ())
    book.types = core._book.types
    restoring.resume(book)
    restored = Coordinator(book)
    live, again = _comparable(core), _comparable(restored)
    if live == again or _undo_waits_for_a_running_step(core):
        return None
    return f"memory is not what a restart would give:\n  memory:   {live}\n  restored: {again}"


def _undo_waits_for_a_running_step(core: Coordinator) -> bool:
    """An undo is locked out by another failing scope whose step still runs: a restart finds that scope at rest."""
    return any(
        tree.undoing in tree.waiting and any(tree.runs_below(top) for top in tree.scopes)
        for tree in core._book.trees.values()
    )


def _comparable(core: Coordinator) -> Any:
    """A fingerprint whose "at work" names only what a restart would queue again.

    Left out: who is asked about an abort (asked anew), steps of a failing scope that are still running (their
    answers are lost), steps of classes that are not registered again yet.
    """
    book = core._book
    found: Any = core.fingerprint()
    found["at work"] = {
        record.id
        for record in (book.procs[name] for name in found["at work"])
        if not record.aborting and (record.undoing or not record.rolling) and record.type_name in book.types
    }
    # Whether a waiter goes before those of trees without locks is fairness, not a fact that must survive.
    found["lock queue"] = set(found["lock queue"])
    found["due"] = {
        (at, name)
        for at, name in found["due"]
        if book.procs[name].type_name in book.types and not book.procs[name].aborting
    }
    return found
