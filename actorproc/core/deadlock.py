"""A wait-for graph over lock requests; a cycle of waiting is the only deadlock there is.

Nodes are waiting requests. A request waits for its obstacles; an obstacle of another tree is gone only when
that whole tree has ended, so the request waits for every waiting member of it; an obstacle in its own tree
is out of the way when the branch below their common ancestor has ended, so it waits for the waiting
members of that branch. Trees that hold nothing cannot be part of a cycle.

A crowd of siblings that want the same keys counts as one node (its youngest member waits for all that the others
wait for), and the search keeps its own stack: ten thousand siblings in line for one key are no deep graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from actorproc.core.lock_table import LockTable

__all__ = ["find_cycle"]


def find_cycle(
    start: str,
    table: LockTable,
    *,
    tree_of: Callable[[str], str],
    lineage_of: Callable[[str], tuple[str, ...]],
) -> list[str]:
    """Procedures of a cycle of waiting through `start`, in order; empty when there is none.

    When `start` is in no cycle but waits for one, that one. `lineage_of` gives a procedure and its ancestors,
    nearest first.
    """
    if not table.is_waiting(start) or table.is_one_family():
        return []

    def next_of(waiter: str) -> Iterator[str]:
        for obstacle in table.obstacles(waiter):
            yield from _held_up_by(waiter, obstacle, table, tree_of, lineage_of)

    path = {start: next_of(start)}
    seen = {start}
    elsewhere: list[str] = []
    while path:
        waiter, others = next(reversed(path.items()))
        for other in others:
            if other == start:
                return list(path)
            if other in path and not elsewhere:
                line = list(path)
                elsewhere = line[line.index(other) :]
            if other not in seen:
                seen.add(other)
                path[other] = next_of(other)
                break
        else:
            del path[waiter]
    return elsewhere


def _held_up_by(
    waiter: str,
    obstacle: str,
    table: LockTable,
    tree_of: Callable[[str], str],
    lineage_of: Callable[[str], tuple[str, ...]],
) -> Iterator[str]:
    """The waiting procedures that must move before `obstacle` is out of the way of `waiter`."""
    tree = tree_of(obstacle)
    if tree != tree_of(waiter):
        yield from table.crowds(tree)
        return
    ours = set(lineage_of(waiter))
    branch = obstacle
    for ancestor in lineage_of(obstacle):
        if ancestor in ours:
            break
        branch = ancestor
    if table.is_waiting(branch):
        yield branch
    for member in table.crowds(tree):
        if member != branch and branch in lineage_of(member):
            yield member
