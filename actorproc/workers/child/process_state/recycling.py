"""Recycling of a worker: the moment, between two steps, at which a fresh process replaces it.

Libraries leak and caches grow; a process that is replaced now and then costs a warm spare's millisecond. (The memory
rule is loky's: growth since the first step, because what a worker loads for its first step it needs anyway.)
"""

from __future__ import annotations

import resource
import sys
import time
from pathlib import Path

__all__ = ["Recycling"]

_PAGE = resource.getpagesize()
_LOOK_EVERY = 0.1
"""Seconds between looks at the memory in use."""


class Recycling:
    """Counts steps, seconds and bytes. None means that one does not matter."""

    def __init__(self, steps: int | None, age: float | None, memory: int | None) -> None:
        self._steps_left = steps
        self._until = None if age is None else time.monotonic() + age
        self._age = age
        self._memory = memory
        self._at_first: int | None = None
        self._looked = 0.0
        self.is_watched = steps is not None or age is not None or memory is not None

    def after_step(self) -> str:
        """Reason why the worker should be replaced now; "" when it should not."""
        if self._steps_left is not None:
            self._steps_left -= 1
            if self._steps_left <= 0:
                return "it ran as many steps as Config.recycle_steps allows"
        if self._until is None and self._memory is None:
            return ""
        now = time.monotonic()
        if self._until is not None and now >= self._until:
            return f"it is older than Config.recycle_age ({self._age:g} s)"
        if self._memory is not None and now >= self._looked + _LOOK_EVERY:
            self._looked = now
            return self._growth(self._memory)
        return ""

    def _growth(self, allowed: int) -> str:
        used = _resident()
        if self._at_first is None:
            self._at_first = used
        grown = used - self._at_first
        if grown <= allowed:
            return ""
        return f"it grew by {grown / 1e6:.0f} MB since its first step; Config.recycle_memory is {allowed / 1e6:.0f} MB"


def _resident() -> int:
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[1]) * _PAGE
    except (OSError, IndexError, ValueError):
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if sys.platform == "darwin" else peak * 1024
