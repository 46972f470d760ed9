"""Comparison of the engine's memory with a core that is restored from the store and the pending writes."""

from __future__ import annotations

from typing import Any

from actorproc.core import recovery
from actorproc.core.coordinator import Coordinator
from actorproc.core.state.fingerprint import facts_of
from actorproc.model.ids import Mode
from actorproc.model.policies import Scheduling
from actorproc.store.base import RecordStore
from actorproc.testing.histories.image import Image

__all__ = ["compare_loads", "compare_with_restored"]


def compare_with_restored(core: Coordinator, image: Image) -> str | None:
    """None when memory equals `restore(store + pending writes)`, else both fingerprints."""
    # Classes are registered again right after a restart; a core without them would park everything.
    state, busy = recovery.rebuild(image.snapshot(), core._state.decision.now, (), core._state.settings.scheduling)
    state.types.metas = core._state.types.metas
    recovery.resume(state, busy)
    restored = Coordinator(state)
    live, again = _comparable(core), _comparable(restored)
    is_known = live == again or _undo_waits_for_a_running_step(core) or _is_asked_before_it_waits(core)
    if is_known or _runs_without_its_class(core):
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
        "listeners": state.signals.subscribers.entries(),
        "open roots": state.residents.open_roots,
        "running roots": state.queues.admission.holders,
        "slots": state.queues.key_limits.holders,
        "resident": set(state.residents.procs),
    }


def _undo_waits_for_a_running_step(core: Coordinator) -> bool:
    """An undo is locked out by another failing scope whose step still runs: a restart finds that scope at rest."""
    return any(
        tree.undoing is not None and tree.undoing in tree.waiting and any(tree.runs_below(top) for top in tree.scopes)
        for tree in core._state.residents.trees.values()
    )


def _runs_without_its_class(core: Coordinator) -> bool:
    """A host that has not joined has a step of a class that this manager does not know: after a restart it is parked."""
    procs, types = core._state.residents.procs, core._state.types.metas
    return any(name in procs and procs[name].type_name not in types for name in core._state.workers.table.in_hand)


def _is_asked_before_it_waits(core: Coordinator) -> bool:
    """A procedure asks for locks or slots only when a worker has answered for its `abort`: after a restart at once.

    Those above it keep their slots as long as it does not wait for any.
    """
    state = core._state
    asked = {
        name for name, worker in state.workers.table.in_hand.items() if worker.queue[name].token.mode is Mode.ASK_ABORT
    }
    asked |= state.follow_ups.asking.keys()  # the question came back unanswered, and no worker is there to ask it again
    records = [state.residents.procs[name] for name in asked if name in state.residents.procs]
    return any(
        not (record.locked or record.rolling or state.locks.table.is_waiting(record.id))
        or (state.queues.key_limits.concerns(record) and record.id not in state.queues.key_limits)
        for record in records
    )


def _comparable(core: Coordinator) -> dict[str, Any]:
    """The facts of a fingerprint, whose "at work" names only what a restart would queue again.

    Left out: who is asked about an abort (asked anew), steps of a failing scope that are still running (their
    answers are lost), steps of classes that are not registered again yet.
    """
    procs, types = core._state.residents.procs, core._state.types.metas
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
