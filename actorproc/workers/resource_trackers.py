"""Resource trackers: helpers of `multiprocessing` and loky that remove what dead processes left behind.

A tracker unlinks shared memory, semaphores and temporary files when all processes that could use them have ended. So
it outlives the worker whose step started it, in a process group of its own, and nothing may kill it with that worker.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

__all__ = ["is_tracker"]

_PROGRAM = b"resource_tracker import main"
"""Part of the program text that both packages start their tracker with."""


def is_tracker(command: Iterable[str | bytes]) -> bool:
    """True if these are the arguments of a resource tracker."""
    return any(_PROGRAM in os.fsencode(part) for part in command)
