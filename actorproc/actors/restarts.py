"""How often a worker slot may fail before it is given up (Erlang/OTP's restart intensity, with backoff)."""

from __future__ import annotations

import random
from collections import deque

__all__ = ["RestartWindow"]


class RestartWindow:
    """A sliding window of failures: `limit` of them within `period` seconds are too many."""

    def __init__(self, limit: int = 5, period: float = 30.0, base: float = 0.1, cap: float = 10.0) -> None:
        self._limit = limit
        self._period = period
        self._base = base
        self._cap = cap
        self._failures: deque[float] = deque()

    def failed(self, now: float) -> float | None:
        """Record a failure at `now`; the seconds to wait before the next start, None when the slot is to be parked."""
        failures = self._failures
        failures.append(now)
        while failures[0] <= now - self._period:
            failures.popleft()
        if len(failures) >= self._limit:
            return None
        delay = min(self._cap, self._base * 2.0 ** (len(failures) - 1))
        return delay * random.uniform(0.75, 1.25)  # noqa: S311 - jitter, so that slots do not restart in step
