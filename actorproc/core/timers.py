"""Deadlines in a heap. Entries are never removed early: whoever pops one checks whether it still holds."""

from __future__ import annotations

import heapq

__all__ = ["Timers"]


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
                found.append((procedure, root))
                frontier.extend(child for child in (2 * place + 1, 2 * place + 2) if child < len(self._heap))
        return found

    def pop_due(self, now: float) -> list[str]:
        """Remove and return the procedures due at `now`, earliest first."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            at, procedure, _ = heapq.heappop(self._heap)
            self._known.discard((at, procedure))
            found.append(procedure)
        return found

    def entries(self) -> set[tuple[float, str]]:
        """All (due time, procedure) pairs."""
        return set(self._known)
