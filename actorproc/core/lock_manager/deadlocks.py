"""Cycles of waiting: looked for when a procedure begins to wait or is given a lock, opened or named a victim."""

from __future__ import annotations

from functools import partial

from actorproc.core.lock_manager.requests import put_off
from actorproc.core.locks.wait_for_graph import WaitGraph
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.tree import Tree
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import TERMINAL

__all__ = ["goes_forward", "is_closed", "keeper_in", "let_pass", "look_for_cycle", "look_for_cycles"]


def look_for_cycles(book: EngineState, tree: Tree) -> None:
    """Look at the waiters of a tree: what was granted, or who gave way, may have closed or left a cycle."""
    for name in book.locks.crowds.of(tree.root):
        look_for_cycle(book, book.procs[name])


def look_for_cycle(book: EngineState, record: ProcedureRecord) -> None:
    """Look for a cycle at a waiting procedure; the youngest tree in it that may fail is named its victim."""
    if not book.locks.waiting()[record.id].privileged:
        return
    cycle = _graph(book).cycle_from(record.id)
    if not cycle:
        return
    roots = {book.procs[name].root for name in cycle}
    if any(root in book.victims for root in roots):
        return
    # Who undoes already cannot fail once more; who may not turn back is spared while there is another.
    forward = {book.procs[name].root for name in cycle if goes_forward(book.procs[name])}
    tops = [book.procs[root] for root in forward or roots]
    able = [top for top in tops if not book.has_no_return(top) and not top.failing] or tops
    book.victims[max(able, key=lambda top: top.seq).id] = cycle


def goes_forward(record: ProcedureRecord) -> bool:
    """Neither it nor what it finished is being undone."""
    return not (record.rolling or record.undoing)


def is_closed(book: EngineState, cycle: list[str]) -> bool:
    """True if all of a cycle wait still; some may have ended since it was found, or wait no more."""
    graph = _graph(book)
    return all(graph.waits(name) for name in cycle)


def let_pass(book: EngineState, cycle: list[str]) -> bool:
    """Open a cycle by letting one of it, that only stands in line there, go before the others; False when none does.

    To stand in line is fairness alone: no procedure has to fail for it.
    """
    queued = [name for name in cycle if book.locks.is_waiting(name)]
    for name in sorted(queued, key=lambda name: book.procs[name].ticket):
        if book.locks.leave_line(name):
            if not book.locks.is_waiting(name) or name not in _graph(book).cycle_from(name):
                return True
            book.locks.join_line(name)
    return False


def keeper_in(book: EngineState, cycle: list[str]) -> ProcedureRecord | None:
    """The youngest that goes forward and keeps something from an undo of its own tree, in a cycle where all undo.

    It waits for the others by its children alone. Once it fails, what it holds is no obstacle to its relatives.
    """
    graph = _graph(book)
    found = []
    for name, following in zip(cycle, (*cycle[1:], cycle[0]), strict=True):
        for holder in graph.obstacles(name):
            record = book.procs.get(holder)
            if record is None or record.root != book.procs[name].root or record.state in TERMINAL:
                continue
            if goes_forward(record) and not book.has_no_return(record) and following in graph.held_up_by(name, holder):
                found.append(record)
    return max(found, key=lambda record: record.seq, default=None)


def _graph(book: EngineState) -> WaitGraph:
    return WaitGraph(
        book.locks,
        put_off=partial(put_off, book) if book.stalled else None,
        # A holder that is not in memory belongs to a cold tree, in which no procedure waits for a lock.
        tree_of=lambda name: book.procs[name].root if name in book.procs else "",
        lineage_of=lambda name: book.trees[book.procs[name].root].lineage(name),
    )
