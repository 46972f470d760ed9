"""The interpreter's cycle collector, paused while very many objects are made that all stay."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

__all__ = ["collector_paused", "collector_paused_for"]

_MANY = 1000
"""Objects for which the collector is paused: fewer it has looked through a few times before they are all made."""


class _Pauses:
    """Count of pauses in all threads: the first one stops the collector, the last one sets it going."""

    def __init__(self) -> None:
        self.lock = threading.RLock()  # a signal handler may submit, too
        self.count = 0
        self.goes_on = False
        """True if the collector was on when the first pause began."""

    def begin(self) -> None:
        with self.lock:
            if not self.count:
                self.goes_on = gc.isenabled()
                gc.disable()
            self.count += 1

    def end(self) -> None:
        with self.lock:
            self.count -= 1
            if not self.count and self.goes_on:
                gc.enable()

    def give_up_in_fork(self) -> None:
        """In a forked copy of the program, which has none of the threads that paused it."""
        if self.count and self.goes_on:
            gc.enable()
        self.lock, self.count = threading.RLock(), 0


_pauses = _Pauses()
os.register_at_fork(after_in_child=_pauses.give_up_in_fork)


@contextmanager
def collector_paused() -> Iterator[None]:
    """No search for cycles meanwhile, in any thread of the host; afterwards as before. Threads may overlap in it.

    A start makes some objects for each procedure that is pending, none of them garbage. To look through them again and
    again took a fifth of what a start with 100,000 of them costs.
    """
    _pauses.begin()
    try:
        yield
    finally:
        _pauses.end()


def collector_paused_for(count: int) -> AbstractContextManager[None]:
    """Pause the cycle collector if `count` is so large that it pays. For short work, which waits for no thread.

    A third of what `submit_many` of 100,000 costs was looking through the procedures of the caller and those before.
    """
    return collector_paused() if count >= _MANY else nullcontext()
