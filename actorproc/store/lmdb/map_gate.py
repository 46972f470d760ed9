"""Map lock: many readers or one change of the map, as LMDB's map must not move under an open transaction.

Readers are threads of the host, and in its main thread Ctrl-C may raise `KeyboardInterrupt` between any two calls.
That may be in the middle of `enter` or just before a ``with`` begins. So those inside are known by weak references:
one that was lost that way is gone with its pass, and delays no other.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["MapGate", "Pass"]

_LOOK_AGAIN = 0.05
"""Seconds after which a thread that wants to be alone looks for passes that were lost without notice."""


class MapGate:
    """Readers pass at any time, except while a thread is `alone`; one that wants to be alone waits for those inside.

    Readers stay for one short snapshot and never wait for anything while inside.
    """

    def __init__(self) -> None:
        # Readers take the lock itself: a condition is entered in Python, and could be interrupted while it is held.
        # Reentrant, for a signal handler may read in the middle of its thread's coming or going.
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._inside: set[weakref.ref[Pass]] = set()
        self._closed = False

    def enter(self) -> Pass:
        """Go in as a reader, until the pass is given back."""
        return Pass(self)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Be the only thread inside during this block."""
        is_mine = False
        try:
            with self._lock:
                while self._closed:
                    self._changed.wait()
                is_mine = self._closed = True
                while self._inside:
                    self._changed.wait(_LOOK_AGAIN)
                    self._inside = {one for one in self._inside if one() is not None}
            yield
        finally:
            if is_mine:
                with self._lock:
                    self._closed = False
                    self._changed.notify_all()


class Pass:
    """A reader that is inside."""

    __slots__ = ("__weakref__", "_gate", "_self")

    def __init__(self, gate: MapGate) -> None:
        self._gate = gate
        self._self = weakref.ref(self)
        with gate._lock:
            while gate._closed:
                gate._changed.wait()
            gate._inside.add(self._self)

    def leave(self) -> None:
        """Leave as a reader. Idempotent."""
        gate = self._gate
        with gate._lock:
            gate._inside.discard(self._self)
            if gate._closed and not gate._inside:
                gate._changed.notify_all()
