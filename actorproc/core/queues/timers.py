"""Deadlines in a heap. The code that pops one checks that it still holds.

An entry is one `bytes` object (`due_key`), in the heap and in the set of those that hold. There may be a million, and
of a sleeper nothing else is in memory. A discarded timer stays in the heap until more than half of the heap is of no
use; then the heap is made anew.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable

from actorproc.model.rows.cold_trees import due_key, named_by, time_of

__all__ = ["SLICE", "TimerQueue"]

_SPARE = 64
"""Entries of no use that are not worth making the heap anew."""
SLICE = 1024
"""Entries taken up at a time: when a great many are due at once, other events have their turn in between."""


class TimerQueue:
    """Due times of procedures, resident or not."""

    def __init__(self) -> None:
        self._heap: list[bytes] = []
        self._known: set[bytes] = set()

    def add(self, at: float, procedure: str) -> None:
        """Note that `procedure` is due at `at`; adding the same pair twice is one entry."""
        key = due_key(at, procedure)
        if key not in self._known:
            self._known.add(key)
            heapq.heappush(self._heap, key)

    def adopt(self, keys: Iterable[bytes]) -> None:
        """Note many at once, as `due_key` made them."""
        self._known.update(keys)
        self._heap = list(self._known)
        heapq.heapify(self._heap)

    def discard(self, at: float, procedure: str) -> None:
        """`procedure` is not due at `at` any more. Idempotent."""
        key = due_key(at, procedure)
        if key not in self._known:
            return
        self._known.discard(key)
        if len(self._heap) > 2 * len(self._known) + _SPARE:
            self._heap = list(self._known)
            heapq.heapify(self._heap)
        self._drop_useless()

    def next_at(self) -> float | None:
        """The earliest due time, None when nothing is due ever."""
        return time_of(self._heap[0]) if self._heap else None

    def due(self, now: float) -> list[str]:
        """The procedures that `pop_due` would give now, without removing them."""
        found: list[str] = []
        last = None
        heap = self._heap
        frontier = [(heap[0], 0)] if heap else []
        while frontier and len(found) < SLICE:
            key, place = heapq.heappop(frontier)
            if time_of(key) > now:
                break
            if key in self._known and key != last:  # one discarded and noted again is in the heap twice
                found.append(named_by(key))
            last = key
            for child in (2 * place + 1, 2 * place + 2):
                if child < len(heap):
                    heapq.heappush(frontier, (heap[child], child))
        return found

    def pop_due(self, now: float) -> list[str]:
        """Remove and return procedures due at `now`, earliest first, at most `SLICE`; the rest is due still."""
        found: list[str] = []
        while self._heap and len(found) < SLICE and time_of(self._heap[0]) <= now:
            key = heapq.heappop(self._heap)
            if key in self._known:
                self._known.discard(key)
                found.append(named_by(key))
        self._drop_useless()
        return found

    def entries(self) -> set[tuple[float, str]]:
        """All (due time, procedure) pairs."""
        return {(time_of(key), named_by(key)) for key in self._known}

    def _drop_useless(self) -> None:
        while self._heap and self._heap[0] not in self._known:
            heapq.heappop(self._heap)
