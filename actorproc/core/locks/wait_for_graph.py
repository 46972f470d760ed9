"""A wait-for graph over lock requests; a cycle of waiting is the only deadlock there is.

Nodes are waiting requests. A request waits for its obstacles. An obstacle of another tree is gone only when that whole
tree has ended, so the request waits for every waiting member of it. An obstacle in its own tree is gone when the
branch below their common ancestor has ended, so it waits for the waiting members of that branch. Trees that hold
nothing cannot be part of a cycle.

An undo that let another one of its tree go first, because others hold what it needs, is a node as well. It does not
stand in the queue, but all that wait for its branch wait for it.

A crowd of siblings that want the same keys counts as one node, as its youngest member waits for all that the others
wait for. The search keeps its own stack: ten thousand siblings in the wait list of one key are no deep graph.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from actorproc.core.locks.request import LockRequest
from actorproc.core.locks.view import LockView

__all__ = ["WaitForGraph"]


class WaitForGraph:
    """Wait-for graph of this moment; not to be kept.

    `put_off` gives the undos of a tree that are put off until they can have their locks, with what they would ask for.
    `lineage_of` gives a procedure and its ancestors, nearest first.
    """

    def __init__(
        self,
        table: LockView,
        *,
        put_off: Callable[[str], Mapping[str, LockRequest]] | None,
        tree_of: Callable[[str], str],
        lineage_of: Callable[[str], tuple[str, ...]],
    ) -> None:
        self._table = table
        self._ask = put_off
        self._put_off: dict[str, Mapping[str, LockRequest]] = {}
        self._tree_of = tree_of
        self._lineage_of = lineage_of

    def waits(self, name: str) -> bool:
        """True if a procedure waits for others."""
        return self._table.is_waiting(name) or (self._ask is not None and name in self._put_off_in(self._tree_of(name)))

    def cycle_from(self, start: str) -> list[str]:
        """Procedures of a cycle of waiting through `start`, in order; empty when there is none.

        When `start` is in no cycle but waits for one, that one.
        """
        if not self.waits(start) or (self._ask is None and self._table.crowds.is_one_family()):
            return []
        path = {start: self._next_of(start)}
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
                    path[other] = self._next_of(other)
                    break
            else:
                del path[waiter]
        return elsewhere

    def obstacles(self, waiter: str) -> Iterable[str]:
        """Procedures that a procedure waits for: holders of what it needs, and those before it in the queue."""
        if self._table.is_waiting(waiter):
            return self._table.obstacles(waiter)
        return self._table.holders_in_the_way(self._put_off_in(self._tree_of(waiter))[waiter])

    def held_up_by(self, waiter: str, obstacle: str) -> Iterator[str]:
        """The waiting procedures that must move before `obstacle` is out of the way of `waiter`."""
        tree = self._tree_of(obstacle)
        if tree != self._tree_of(waiter):
            yield from self._waiting_in(tree)
            return
        ours = set(self._lineage_of(waiter))
        branch = obstacle
        for ancestor in self._lineage_of(obstacle):
            if ancestor in ours:
                break
            branch = ancestor
        if self.waits(branch):
            yield branch
        for member in self._waiting_in(tree):
            if member != branch and branch in self._lineage_of(member):
                yield member

    def _next_of(self, waiter: str) -> Iterator[str]:
        for obstacle in self.obstacles(waiter):
            yield from self.held_up_by(waiter, obstacle)

    def _waiting_in(self, tree: str) -> Iterable[str]:
        """One of each crowd of a tree, and its undos that are put off."""
        waiting = self._table.crowds.of(tree)
        return waiting if self._ask is None else [*waiting, *self._put_off_in(tree)]

    def _put_off_in(self, tree: str) -> Mapping[str, LockRequest]:
        found = self._put_off.get(tree)
        if found is None:
            assert self._ask is not None
            found = self._put_off[tree] = self._ask(tree)
        return found
