"""Ear for the local workers: what they say is heard by the manager's own thread, and by the pool's where that is busy.

A message that changes threads costs a wake-up. So the thread that acts on what workers say waits for it itself. While
it is away for more than some milliseconds, in a commit on a slow disk for example, the pool's thread hears for it.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading
from collections.abc import Callable

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
        hear: Handles what can be read; under the lock.
        failed: Told of a failure of `hear` on the attendant's thread.
    """

    def __init__(
        self, call: Callable[[], None], hear: Callable[[Heard], None], failed: Callable[[BaseException], None]
    ) -> None:
        self.lock = threading.Lock()
        self.selector = selectors.DefaultSelector()
        self.attendance = Attendance(call)
        self._call = call
        self._hear = hear
        self._failed = failed
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

    def listen(self, is_due: Callable[[], bool]) -> Heard:
        """Wait until a worker says something, or there is something else to do; for the attendant."""
        attendance = self.attendance
        attendance.come()
        try:
            if self.is_over:
                return []
            self._waits = True
            heard = self.selector.select(0 if is_due() else None)
            self._waits = False
            return heard
        finally:
            attendance.leave()

    def take(self, heard: Heard, is_due: Callable[[], bool]) -> bool:
        """Handle what `listen` found; False: it was nothing, or the pool's thread is at it for long."""
        while not self.lock.acquire(timeout=_PATIENCE):
            if is_due():
                return False
        try:
            return not self.is_over and self._take(heard)
        except BaseException as error:  # noqa: BLE001 - it ends the pool, on its own thread
            self._failed(error)
            return True
        finally:
            self.lock.release()

    def _take(self, heard: Heard) -> bool:
        said = [one for one in heard if one[0].data is not None]
        if len(said) < len(heard):
            with contextlib.suppress(BlockingIOError):  # the pool's thread was faster
                self._wake_out.recv(4096)
        if said:
            self._hear(said)
        return bool(said)

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
    def hear(self) -> None:
        """Handle what can be read now; under the lock."""
        heard = self.selector.select(0)
        if any(key.data is None for key, _ in heard) and self.attendance.is_away():
            with contextlib.suppress(BlockingIOError):
                self._wake_out.recv(4096)
            if not self.attendance.is_away():  # it has come meanwhile, and what woke it was taken away
                self._wake_in.send(b"\0")
        self._hear([one for one in heard if one[0].data is not None])

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
