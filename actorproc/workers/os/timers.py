"""Timers of the pool."""

from __future__ import annotations

import heapq
import itertools
import time
from collections.abc import Callable

__all__ = ["PoolTimers"]

_LONGEST = 3600.0
"""Seconds: the system counts a longer wait in milliseconds, of which it can hold no more than 25 days."""


class PoolTimers:
    """Calls due at a moment of the monotonic clock. One thread at a time; no cancelling, calls check for themselves.

    `earlier`, if given, is called when the next call is due earlier than it was: the thread that waits is to know.
    """

    def __init__(self, earlier: Callable[[], None] | None = None) -> None:
        self._earlier = earlier
        self._heap: list[tuple[float, int, Callable[[], None]]] = []
        self._count = itertools.count()

    def after(self, seconds: float, call: Callable[[], None]) -> None:
        """Call it `seconds` from now."""
        timer = (time.monotonic() + seconds, next(self._count), call)
        heapq.heappush(self._heap, timer)
        if self._earlier is not None and self._heap[0] is timer:
            self._earlier()

    def wait(self) -> float | None:
        """Seconds until it is to be looked what is due; None when there is nothing."""
        try:
            return min(max(0.0, self._heap[0][0] - time.monotonic()), _LONGEST)
        except IndexError:  # also where another thread has just made the last call
            return None

    def run_due(self) -> None:
        """Make the calls that are due now."""
        while self._heap and self._heap[0][0] <= time.monotonic():
            heapq.heappop(self._heap)[2]()
