"""Many readers or one change of the map: LMDB's map must not move under an open transaction."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["Gate"]


class Gate:
    """Readers pass at any time, except while somebody is `alone`; who wants to be alone waits for those inside.

    Readers stay for one short snapshot and never wait for anything while inside.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition(threading.Lock())
        self._inside = 0
        self._closed = False

    def enter(self) -> None:
        """Go in as a reader."""
        with self._changed:
            while self._closed:
                self._changed.wait()
            self._inside += 1

    def leave(self) -> None:
        """Leave as a reader."""
        with self._changed:
            self._inside -= 1
            if self._closed and not self._inside:
                self._changed.notify_all()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Nobody else is inside during this block."""
        with self._changed:
            while self._closed:
                self._changed.wait()
            self._closed = True
            while self._inside:
                self._changed.wait()
        try:
            yield
        finally:
            with self._changed:
                self._closed = False
                self._changed.notify_all()
