"""Priority inheritance: a tree that holds locks has the priority of the most urgent procedure that waits for them.

Else a step of low priority would keep a lock while steps between the two run (priority inversion; Sha, Rajkumar and
Lehoczky 1990). A lent priority counts in the run queue and in the queues for slots. It ends when the tree gives up its
last lock. Where all have one priority nothing of this costs anything.
"""

from __future__ import annotations

from itertools import islice

from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.tree import Tree
from actorproc.model.rows.records import ProcedureRecord

__all__ = ["inherit_priority", "lend_priority"]

_MOST = 100
"""Procedures looked at, at most, for one wait or one grant."""


def lend_priority(state: EngineState, waiter: ProcedureRecord, priority: int) -> None:
    """A procedure begins to wait for locks: those in its way hurry, and those that these wait for."""
    _lend(state, waiter.id, priority, {waiter.root})


def _lend(state: EngineState, waiter: str, priority: int, seen: set[str]) -> None:
    for name in islice(state.locks.table.obstacles(waiter), _MOST):
        holder = state.residents.procs.get(name)
        if holder is None or (root := holder.root) in seen:
            continue  # one that is not in memory waits for something else, and inherits when it is loaded
        seen.add(root)
        _raise(state, state.residents.trees[root], priority, seen)


def inherit_priority(state: EngineState, tree: Tree) -> None:
    """A tree has new locks, or comes into memory with some: it hurries for the most urgent one that waits for them."""
    own = state.residents.procs[tree.root].priority
    if not state.locks.waiters or (len(state.locks.waiters) == 1 and own in state.locks.waiters):
        return
    for priority in sorted((each for each in state.locks.waiters if each > own), reverse=True):
        for name in islice(state.locks.waiters[priority], _MOST):
            if not state.locks.table.is_waiting(name):
                continue  # it was granted its locks together with this one
            if any(other in tree.members for other in state.locks.table.obstacles(name)):
                _raise(state, tree, priority, {tree.root})
                return


def _raise(state: EngineState, tree: Tree, priority: int, seen: set[str]) -> None:
    """Lend the tree this priority, where that is more than it has; what it waits for itself gets it as well."""
    own = state.residents.procs[tree.root].priority
    if priority <= (own if tree.lent is None else tree.lent):
        return
    tree.lent = priority
    state.follow_ups.hurried[tree.root] = None
    for name in list(tree.waiting):
        if state.locks.table.is_waiting(name) and state.locks.ranks[name] < priority:
            state.locks.note_waiter(name, priority)
            _lend(state, name, priority, seen)
