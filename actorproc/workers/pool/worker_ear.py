"""Ear for the local workers: what they say is heard by the manager's own thread, and by the pool's where that is busy.

A message that changes threads costs a wake-up. So the thread that acts on what workers say waits for it itself. While
it is away for more than some milliseconds, in a commit on a slow disk for example, the pool's thread hears for it.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any

from actorproc.support.attendance import Attendance

__all__ = ["WorkerEar"]

_PATIENCE = 0.02
"""Seconds for which the attendant waits for the pool's thread, before it looks for something else to do."""
_END = 1.0
"""Seconds for the attendant to leave when the pool ends."""

Heard = list[tuple[selectors.SelectorKey, int]]


class WorkerEar:
    """Selector over all that workers say. All use of what belongs to the pool is under `lock`.

    Args:
        call: Wakes the pool's thread.
        handle: Handles one thing that can be read; under the lock.
        failed: Told of a failure of `handle` on the attendant's thread.
    """

    def __init__(
        self,
        call: Callable[[], None],
        handle: Callable[[Any, int], object],
        failed: Callable[[BaseException], object],
    ) -> None:
        self.lock = threading.Lock()
        self.selector = selectors.DefaultSelector()
        self.attendance = Attendance(call)
        self._call = call
        self.handle = handle
        self.failed = failed
        self._relieve: Callable[[], None] = _nothing
        self._waits = False
        """The attendant waits, or is about to; set by itself alone, as another thread may come late with that."""
        self.is_over = False
        self._wake_in, self._wake_out = socket.socketpair()
        self._wake_in.setblocking(False)
        self._wake_out.setblocking(False)
        self.selector.register(self._wake_out, selectors.EVENT_READ, None)

    # ------------------------------------------------------------ the attendant
    def attend(self, relieve: Callable[[], None]) -> None:
        """Another thread, the attendant, listens from now on.

        Args:
            relieve: Called by the pool's thread while the attendant is missed: does of its work what can be done.
        """
        self._relieve = relieve
        self.attendance.is_expected = True
        self._call()

    def listen(self, due: Sequence[Collection[object]]) -> Heard:
        """Wait until a worker says something, or there is something in one of these; for the attendant.

        The caller handles what it gets and releases the lock, which is taken if that is anything.
        """
        attendance = self.attendance
        attendance.comings += 1
        attendance.is_here = True
        heard: Heard = []
        if not self.is_over:
            self._waits = True
            heard = self.selector.select(0 if any(due) else None)
            self._waits = False
        attendance.is_here = False
        if attendance.is_off:
            attendance.is_off = False
            attendance.call()
        if not heard:
            return heard
        while not self.lock.acquire(timeout=_PATIENCE):
            if any(due):
                return []
        if self.is_over:
            heard = []
        for place, (key, _) in enumerate(heard):
            if key.data is None:
                del heard[place]
                with contextlib.suppress(BlockingIOError):  # the pool's thread was faster
                    self._wake_out.recv(4096)
                break
        if not heard:
            self.lock.release()
        return heard

    def wake(self) -> None:
        """There is something to do for the attendant; for any thread."""
        if self._waits:
            with contextlib.suppress(OSError):  # full: it is awake anyway; closed: it has ended
                self._wake_in.send(b"\0")
        elif self.attendance.stands_in:
            self._call()

    def quit(self) -> None:
        """The attendant listens no more."""
        self.attendance.is_expected = False
        self._relieve = _nothing
        self._call()

    # ------------------------------------------------------------ the pool's thread
    def heard(self) -> Heard:
        """All that can be read now, for the pool's thread; under the lock."""
        heard = self.selector.select(0)
        if any(key.data is None for key, _ in heard) and self.attendance.is_away():
            with contextlib.suppress(BlockingIOError):
                self._wake_out.recv(4096)
            if not self.attendance.is_away():  # it has come meanwhile, and what woke it was taken away
                self._wake_in.send(b"\0")
        return [one for one in heard if one[0].data is not None]

    def relieve(self) -> None:
        """Do what the attendant would have to do, if it is missed."""
        if self.attendance.stands_in and self.attendance.is_away():
            self._relieve()

    def close(self) -> None:
        """Hear nothing more. The attendant must not sleep in what is closed."""
        self.is_over = True
        self._relieve = _nothing
        if self.attendance.is_here:
            self._see_off()
        self.selector.close()
        self._wake_in.close()
        self._wake_out.close()

    def _see_off(self) -> None:
        gone = threading.Event()
        for _ in range(int(_END / 0.001)):
            with contextlib.suppress(OSError):
                self._wake_in.send(b"\0")
            if not self.attendance.is_here:
                return
            gone.wait(0.001)


def _nothing() -> None:
    """There is no attendant."""
