"""Deadlocks: looked for when a procedure begins to wait or gets a lock; broken by a jump of the queue or a victim."""

from __future__ import annotations

from functools import partial

from actorproc.core.lock_manager.requests import put_off
from actorproc.core.locks.wait_for_graph import WaitForGraph
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.tree import Tree
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import TERMINAL

__all__ = ["goes_forward", "is_closed", "keeper_in", "let_pass", "look_for_cycle", "look_for_cycles"]


def look_for_cycles(state: EngineState, tree: Tree) -> None:
    """Look at the waiters of a tree: what was granted, or who gave way, may have closed or left a cycle."""
    for name in state.locks.table.crowds.of(tree.root):
        look_for_cycle(state, state.residents.procs[name])


def look_for_cycle(state: EngineState, record: ProcedureRecord) -> None:
    """Look for a cycle at a waiting procedure; the youngest tree in it that may fail is named its victim."""
    if not state.locks.table.waiting()[record.id].privileged:
        return
    cycle = _graph(state).cycle_from(record.id)
    if not cycle:
        return
    roots = {state.residents.procs[name].root for name in cycle}
    if any(root in state.follow_ups.victims for root in roots):
        return
    # Who undoes already cannot fail once more; one that may not turn back is no victim while there is another.
    forward = {state.residents.procs[name].root for name in cycle if goes_forward(state.residents.procs[name])}
    tops = [state.residents.procs[root] for root in forward or roots]
    able = [top for top in tops if not state.residents.has_no_return(top) and not top.failing] or tops
    state.follow_ups.victims[max(able, key=lambda top: top.seq).id] = cycle


def goes_forward(record: ProcedureRecord) -> bool:
    """Neither it nor what it finished is being undone."""
    return not (record.rolling or record.undoing)


def is_closed(state: EngineState, cycle: list[str]) -> bool:
    """True if all of a cycle wait still; some may have ended since it was found, or wait no more."""
    graph = _graph(state)
    return all(graph.waits(name) for name in cycle)


def let_pass(state: EngineState, cycle: list[str]) -> bool:
    """Open a cycle by letting one of it, that only queues there, go before the others; False when none does.

    A place in a wait list is fairness alone: no procedure has to fail for it.
    """
    queued = [name for name in cycle if state.locks.table.is_waiting(name)]
    for name in sorted(queued, key=lambda name: state.residents.procs[name].ticket):
        if state.locks.table.leave_wait_lists(name):
            if not state.locks.table.is_waiting(name) or name not in _graph(state).cycle_from(name):
                return True
            state.locks.table.join_wait_lists(name)
    return False


def keeper_in(state: EngineState, cycle: list[str]) -> ProcedureRecord | None:
    """The youngest that goes forward and keeps something from an undo of its own tree, in a cycle where all undo.

    It waits for the others by its children alone. Once it fails, what it holds is no obstacle to its relatives.
    """
    graph = _graph(state)
    found = []
    for name, following in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
        for holder in graph.obstacles(name):
            record = state.residents.procs.get(holder)
            if record is None or record.root != state.residents.procs[name].root or record.state in TERMINAL:
                continue
            if (
                goes_forward(record)
                and not state.residents.has_no_return(record)
                and following in graph.held_up_by(name, holder)
            ):
                found.append(record)
    return max(found, key=lambda record: record.seq, default=None)


def _graph(state: EngineState) -> WaitForGraph:
    return WaitForGraph(
        state.locks.table,
        put_off=partial(put_off, state) if state.follow_ups.stalled else None,
        # A holder that is not in memory belongs to a cold tree, in which no procedure waits for a lock.
        tree_of=lambda name: state.residents.procs[name].root if name in state.residents.procs else "",
        lineage_of=lambda name: state.residents.trees[state.residents.procs[name].root].lineage(name),
    )
