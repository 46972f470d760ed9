"""Watchdog of a manager that leads: it says whether the manager's thread still answers.

A manager that does not answer for a while need not hang. It may decide on a great many procedures at once, or wait for
its database, and its stand-in for the processor. So the stacks of the threads that have the manager's turn, or work for
its store, are looked at, too. A thread that is not where it was at the last look goes on, and one inside a wait for the
database is the database's affair. Neither excuse counts for ever.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection
from concurrent.futures import Future
from types import CodeType, FrameType

from actorproc.errors import ActorprocError

__all__ = ["ManagerWatchdog"]

_LONGEST = 12
"""Number of limits after which a manager that does not answer hangs, whatever its stack says."""
_WAITING = "/store/postgres/"
"""Part of the names of the files whose code waits for the database."""


class ManagerWatchdog:
    """Asks a manager now and then whether it answers. For one thread.

    Args:
        ask: Asks the manager a question; the future of its answer.
        busy: Code of the functions in which a thread of the manager is at work.
        limit: Seconds without an answer after which it may hang.
    """

    def __init__(self, ask: Callable[[], Future[object]], busy: Collection[CodeType], limit: float) -> None:
        self._ask = ask
        self._busy = busy
        self._limit = limit
        self._asked = 0.0
        self._answer: Future[object] | None = None
        self._stack: tuple[int, ...] = ()

    def __call__(self) -> bool:
        """True while the manager lives."""
        now = time.monotonic()
        answer = self._answer
        if answer is None or answer.done():
            self._asked, self._stack = now, ()
            try:
                self._answer = self._ask()
            except ActorprocError:  # it has ended, perhaps by a bug: another manager may have its place
                self._answer = None
                return False
            return True
        silent_for = now - self._asked
        if silent_for <= self._limit:
            self._stack = self._where()[0]
            return True
        stack, waits = self._where()
        moved, self._stack = stack != self._stack, stack
        return (moved or waits) and silent_for <= _LONGEST * self._limit

    def _where(self) -> tuple[tuple[int, ...], bool]:
        """The places in the code of the threads that are at work, and whether one waits for the database there."""
        all_places: tuple[int, ...] = ()
        one_waits = False
        for frame in sys._current_frames().values():
            places: list[int] = []
            waits = False
            inner: FrameType | None = frame
            while inner is not None:
                places += (id(inner.f_code), inner.f_lasti)
                waits = waits or _WAITING in inner.f_code.co_filename
                if inner.f_code in self._busy:
                    all_places += tuple(places)
                    one_waits = one_waits or waits
                    break
                inner = inner.f_back
        return all_places, one_waits
