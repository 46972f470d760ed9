"""Clocks for tests."""

from __future__ import annotations

__all__ = ["HandClock"]


class HandClock:
    """A clock that is set by hand."""

    now = 0.0

    def wall(self):
        return self.now

    monotonic = wall
