"""Fork hooks of the package, behind one that keeps threads out of log handlers.

`logging` makes the locks of its handlers anew in a forked copy, but not what a handler has under its lock. The buffer
of a file stays locked for ever there, if another thread was writing to it. The engine's threads log through the
program's handlers, so a program with one thread of its own would meet this as well.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import threading
import time
from collections.abc import Callable
from typing import Any

__all__ = ["at_fork"]

_PATIENCE = 1.0
"""Seconds that a fork waits at most for handlers in which threads are: one may be stuck in a network."""
_TURN = 0.02
"""Seconds of one try. Between two the locks are let go, as a handler may wait for another one, or for the module."""
_HELD = 0.25
"""Seconds that handlers are held at most. A fork may wait for longer, for a lock of the program whose thread logs."""
_RLOCK: Any = type(threading.RLock())


class _Hold(threading.Thread):
    """Keeps all other threads out of the handlers for the moment of a fork.

    It is a thread, as the one that forks cannot let go while it waits in a later hook.
    """

    def __init__(self, locks: list[Any]) -> None:
        super().__init__(name="actorproc-fork", daemon=True)
        self.locks = locks
        self.is_ready = threading.Event()
        self.is_over = threading.Event()

    def run(self) -> None:
        until = time.monotonic() + _PATIENCE
        while len(held := self._taken()) < len(self.locks):
            if time.monotonic() >= until:
                held += [lock for lock in self.locks[len(held) :] if lock.acquire(timeout=0)]
                break
            _release(held)
            time.sleep(_TURN / 10)
        self.is_ready.set()
        self.is_over.wait(_HELD)
        _release(held)

    def _taken(self) -> list[Any]:
        """The locks, up to one that another thread has."""
        return list(itertools.takewhile(lambda lock: lock.acquire(timeout=_TURN), self.locks))


def _release(locks: list[Any]) -> None:
    for lock in reversed(locks):
        lock.release()


_here = threading.local()


def _before_fork() -> None:
    _here.hold = None
    if not any(thread.name.startswith("actorproc") for thread in threading.enumerate()):
        return  # all that log are threads of the program
    handlers = [reference() for reference in list(getattr(logging, "_handlerList", ()))]
    locks = [getattr(handler, "lock", None) for handler in handlers]
    # Other kinds of locks, of programs that replace them, are left alone. A handler may fork as well.
    hold = _Hold([lock for lock in locks if isinstance(lock, _RLOCK) and not lock._is_owned()])
    with contextlib.suppress(RuntimeError):  # no thread can start: forked without
        hold.start()
        _here.hold = hold
        hold.is_ready.wait(2 * _PATIENCE)


def _in_parent() -> None:
    if _here.hold is not None:
        _here.hold.is_over.set()


def _in_child() -> None:
    if _here.hold is not None:
        for lock in _here.hold.locks:  # as `logging` does for those that it has made
            lock._at_fork_reinit()


os.register_at_fork(before=_before_fork, after_in_parent=_in_parent, after_in_child=_in_child)


def at_fork(*, before: Callable[[], object], in_parent: Callable[[], object], in_child: Callable[[], object]) -> None:
    """Register hooks as `os.register_at_fork` does. A thread that `before` waits for may log."""
    os.register_at_fork(before=before, after_in_parent=in_parent, after_in_child=in_child)
