"""Ear of an actor whose messages all come through its inbox, and the thread that stands in for it."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

from actorproc.support.attendance import Attendance

__all__ = ["Ear", "InboxEar"]


class Ear(Protocol):
    """Place at which an actor's own thread waits when it has nothing to do; a pool may have one (`LocalPool.ear`)."""

    is_over: bool
    """It hears nothing more."""

    lock: threading.Lock
    """Held from a `listen` that heard something until that was handled."""

    def attend(self, relieve: Callable[[], None]) -> None:
        """The actor listens from now on; `relieve` does what it has to do, while it is away for long."""
        ...

    def listen(self, due: Sequence[Collection[object]]) -> Sequence[tuple[Any, int]]:
        """Wait until something is heard, or one of these has something in it."""
        ...

    @property
    def handle(self) -> Callable[[Any, int], object]:
        """Handles one thing that was heard."""
        ...

    @property
    def failed(self) -> Callable[[BaseException], object]:
        """Told of a failure of `handle`."""
        ...

    def wake(self) -> None:
        """There is something to do; from any thread."""
        ...

    def quit(self) -> None:
        """The actor listens no more."""
        ...


class InboxEar:
    """Hears nothing but `wake`. Its stand-in has a thread, which is started when one is to be expected."""

    def __init__(self) -> None:
        self._arrivals: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._calls: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._attendance = Attendance(self._call)
        self._relieve: Callable[[], None] | None = None
        self._waits = False
        self.is_over = False
        self.lock = threading.Lock()

    def handle(self, data: Any, mask: int) -> None:
        """Handle nothing: nothing is heard here."""

    def failed(self, error: BaseException) -> None:
        """Nothing is handled, and nothing fails."""

    def attend(self, relieve: Callable[[], None]) -> None:
        """The actor listens from now on, and is relieved while it is away for long."""
        self._relieve = relieve
        self._attendance.is_expected = True
        threading.Thread(target=self._stand_in, name="actorproc-relief", daemon=True).start()

    def listen(self, due: Sequence[Collection[object]]) -> Sequence[tuple[Any, int]]:
        """Wait until there is something in one of these."""
        self._attendance.come()
        self._waits = True
        if not any(due):
            self._arrivals.get()
        self._waits = False
        self._attendance.leave()
        return ()

    def wake(self) -> None:
        """There is something to do."""
        if self._waits:
            self._arrivals.put(None)
        elif self._attendance.stands_in:
            self._call()

    def quit(self) -> None:
        """The actor listens no more."""
        self._attendance.is_expected, self._relieve = False, None
        self._call()

    def _call(self) -> None:
        self._calls.put(None)

    def _stand_in(self) -> None:
        while (relieve := self._relieve) is not None:
            with contextlib.suppress(queue.Empty):
                self._calls.get(timeout=self._attendance.look())
            if self._attendance.stands_in:
                relieve()
