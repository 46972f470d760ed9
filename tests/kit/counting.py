"""Counting work instead of timing it: the same on every machine, however busy."""

from __future__ import annotations

import cProfile
from collections.abc import Callable
from typing import TypeVar

__all__ = ["calls_of"]

_T = TypeVar("_T")


def calls_of(action: Callable[[], _T]) -> tuple[int, _T]:
    """How many calls of Python and C functions `action` makes on this thread, and its result."""
    profile = cProfile.Profile()
    result = profile.runcall(action)
    return sum(entry.callcount for entry in profile.getstats()), result
