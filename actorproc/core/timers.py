"""Deadlines in a heap. Whoever pops one checks whether it still holds.

What is discarded stays in the heap until more than half of it is of no use; then the heap is made anew.
"""

from __future__ import annotations

import heapq

__all__ = ["Timers"]

_SPARE = 64
"""Entries of no use that are not worth making the heap anew."""


class Timers:
    """Due times of procedures, resident or not; `root` says which tree to load."""

    def __init__(self) -> None:
        self._heap: list[tuple[float, str, str]] = []
        self._known: set[tuple[float, str]] = set()

    def add(self, at: float, procedure: str, root: str) -> None:
        """Note that `procedure` is due at `at`; adding the same pair twice is one entry."""
        if (at, procedure) not in self._known:
            self._known.add((at, procedure))
            heapq.heappush(self._heap, (at, procedure, root))

    def discard(self, at: float, procedure: str) -> None:
        """`procedure` is not due at `at` any more. Idempotent."""
        if (at, procedure) not in self._known:
            return
        self._known.discard((at, procedure))
        if len(self._heap) > 2 * len(self._known) + _SPARE:
            self._heap = [entry for entry in self._heap if entry[:2] in self._known]
            heapq.heapify(self._heap)
        while self._heap and self._heap[0][:2] not in self._known:
            heapq.heappop(self._heap)

    def next_at(self) -> float | None:
        """The earliest due time, None when nothing is due ever."""
        return self._heap[0][0] if self._heap else None

    def due(self, now: float) -> list[tuple[str, str]]:
        """(procedure, root) of the entries due at `now`, without removing them."""
        found = []
        frontier = [0] if self._heap else []
        while frontier:
            place = frontier.pop()
            at, procedure, root = self._heap[place]
            if at <= now:
                if (at, procedure) in self._known:
                    found.append((procedure, root))
                frontier.extend(child for child in (2 * place + 1, 2 * place + 2) if child < len(self._heap))
        return found

    def pop_due(self, now: float) -> list[str]:
        """Remove and return the procedures due at `now`, earliest first."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            at, procedure, _ = heapq.heappop(self._heap)
            if (at, procedure) in self._known:
                self._known.discard((at, procedure))
                found.append(procedure)
        while self._heap and self._heap[0][:2] not in self._known:
            heapq.heappop(self._heap)
        return found

    def entries(self) -> set[tuple[float, str]]:
        """All (due time, procedure) pairs."""
        return set(self._known)
