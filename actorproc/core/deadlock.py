"""A wait-for graph over lock requests; a cycle of waiting is the only deadlock there is.

Nodes are waiting requests. A request waits for its blockers; a blocker of another tree is gone only when
that whole tree has ended, so the request waits for every waiting member of it; a blocker in its own tree
is out of the way when the branch below their common ancestor has ended, so it waits for the waiting
members of that branch. Trees that hold nothing cannot be part of a cycle.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from actorproc.core.lock_table import LockTable

__all__ = ["find_cycle"]


def find_cycle(
    start: str,
    table: LockTable,
    *,
    tree_of: Callable[[str], str],
    lineage_of: Callable[[str], tuple[str, ...]],
    waiting_in: Callable[[str], Iterable[str]],
) -> list[str]:
    """Procedures of a cycle of waiting through `start`, in order; empty when there is none.

    `lineage_of` gives a procedure and its ancestors, nearest first; `waiting_in` the lock-waiting members of a tree.
    """
    path: list[str] = []
    seen: set[str] = set()

    def visit(waiter: str) -> bool:
        seen.add(waiter)
        path.append(waiter)
        for blocker in table.blockers(waiter):
            for other in _held_up_by(waiter, blocker, tree_of, lineage_of, waiting_in):
                if other == start:
                    return True
                if other not in seen and visit(other):
                    return True
        path.pop()
        return False

    return path if table.is_waiting(start) and visit(start) else []


def _held_up_by(
    waiter: str,
    blocker: str,
    tree_of: Callable[[str], str],
    lineage_of: Callable[[str], tuple[str, ...]],
    waiting_in: Callable[[str], Iterable[str]],
) -> list[str]:
    """The waiting procedures that must move before `blocker` is out of the way of `waiter`."""
    tree = tree_of(blocker)
    members = list(waiting_in(tree))
    if tree != tree_of(waiter):
        return members
    ours = set(lineage_of(waiter))
    branch = blocker
    for ancestor in lineage_of(blocker):
        if ancestor in ours:
            break
        branch = ancestor
    return [member for member in members if branch in lineage_of(member)]
