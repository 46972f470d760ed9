"""The durable facts that an engine state holds in memory, in a form that can be compared."""

from __future__ import annotations

import copy
from typing import Any

import msgspec

from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.residents import ResidentSet
from actorproc.core.state.tree import Tree
from actorproc.model.rows.cold_trees import is_debounced
from actorproc.model.states import TERMINAL

__all__ = ["facts_of", "fingerprint"]

_encode = msgspec.msgpack.Encoder().encode


def fingerprint(state: EngineState) -> dict[str, Any]:
    """Equal for engine states with the same durable facts; trees that may leave memory are left out. Stays as it is."""
    return copy.deepcopy(facts_of(state))


def facts_of(state: EngineState) -> dict[str, Any]:
    """The same to be compared at once and not to be changed: much of it is the state's own, not a copy."""
    # A question about an abort is not asked again of one that has ended: what only waits for its answer knows no more
    # than a tree that has left memory.
    hot = {
        root: tree
        for root, tree in state.residents.trees.items()
        if not (tree.is_finished or tree.is_cold_when_answered)
    }
    hot.update(
        (name, Tree(name, record))
        for name, record in state.queues.run_queue.cold.items()
        if name not in state.residents.procs
    )
    heads, units, scopes, held, still = {}, {}, {}, {}, {}
    for root, tree in hot.items():
        for name, record in tree.members.items():
            if record.state not in TERMINAL:
                heads[name] = _encode(record)
        still[root] = tree.still
        is_bare = tree.is_bare  # then to look would make what is not there, and the tree would be bare no more
        units[root] = () if is_bare else tuple(tree.units)
        scopes[root] = frozenset(() if is_bare else tree.scopes)
        held[root] = {} if is_bare or not tree.held else {name: tuple(row) for name, row in tree.held.items()}
    locks, timers = state.locks.table, state.timers.entries()
    return {
        "heads": heads,
        "units": units,
        "scopes": scopes,
        "held": held,
        "at work": {name for name in _at_work(state) if name in heads},
        "locks": locks.holders(),
        "lock queue": {name: (row.ticket, row.privileged) for name, row in locks.waiting().items()},
        "due": {(at, name) for at, name in timers if name in heads and _is_due_at(state, name, at)},
        "inherited": state.locks.inherited,
        "poisons": state.locks.poisons,
        "acknowledged": state.ended.acknowledged,
        "removals": set(state.ended.removals),
        "schedules": state.schedules.records,
        "buffered": {target: tuple(rows) for target, rows in state.signals.buffered.items() if rows},
        "taken": state.signals.taken,
        "switches": (state.switches.paused, state.counters.audits),
        "still": still,
        "numbers": (state.counters.next_seq, state.counters.next_ticket),
    }


def _is_due_at(state: EngineState, name: str, at: float) -> bool:
    """True if a timer belongs to the present wait; one that a removed procedure of this id left behind does not.

    A debounced root that is overdue has had its timer, and gets another one with a restart.
    """
    record = state.residents.procs.get(name)
    if record is None or record.due_at != at:
        return False
    return at > state.decision.now or not is_debounced(record)


def _at_work(state: EngineState) -> set[str]:
    """Procedures that wait for anything but the outside, or are in a worker's hands."""
    queued = state.queues.run_queue.members()
    queued.update(
        state.workers.table.in_hand,
        state.queues.awaiting_worker.names(),
        state.queues.key_limits.names(),
        state.queues.admission.names(),
    )
    if state.follow_ups.asking:
        queued.difference_update(state.follow_ups.asking)
    # One that ended while it was asked about its abort may have left memory before the answer.
    return {
        name
        for name in queued
        if name in state.queues.run_queue.cold
        or (name in state.residents.procs and not _stands_still(state.residents, name))
    }


def _stands_still(residents: ResidentSet, name: str) -> bool:
    """It has a step in a worker's hands, but no other will follow by itself: paused, or to be bypassed."""
    record = residents.procs[name]
    if record.bypassing:
        return True
    tree = residents.trees[record.root]
    return bool(tree.still) and tree.is_still(name)
