"""Who gets the next free place on a worker: priority first, then work already begun, then age."""

from __future__ import annotations

import heapq

__all__ = ["ReadyQueue"]


class ReadyQueue:
    """Procedures that could run now. An entry that was discarded stays in the heap and is skipped."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, int, str]] = []
        self._live: dict[str, int] = {}
        self._count = 0
        self._front = 0

    def __len__(self) -> int:
        return len(self._live)

    def __contains__(self, procedure: str) -> bool:
        return procedure in self._live

    def push(self, procedure: str, *, priority: int, is_new_root: bool) -> None:
        """Queue a procedure; one that is queued already keeps its place.

        Children and started procedures go before new roots (as HBase's addFront for children).
        """
        if procedure in self._live:
            return
        self._count += 1
        self._live[procedure] = self._count
        heapq.heappush(self._heap, (-priority, int(is_new_root), self._count, procedure))

    def put_back(self, procedure: str, *, priority: int, is_new_root: bool) -> None:
        """Return a procedure that was popped and not handed out to the head of its class."""
        self._front -= 1
        self._live[procedure] = self._front
        heapq.heappush(self._heap, (-priority, int(is_new_root), self._front, procedure))

    def discard(self, procedure: str) -> None:
        """Take a procedure out, if it is in."""
        self._live.pop(procedure, None)

    def pop(self) -> str | None:
        """The next procedure, None when the queue is empty."""
        while self._heap:
            _, _, number, procedure = heapq.heappop(self._heap)
            if self._live.get(procedure) == number:
                del self._live[procedure]
                return procedure
        return None

    def members(self) -> set[str]:
        """All queued procedures."""
        return set(self._live)
