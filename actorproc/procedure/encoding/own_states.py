"""Long pickled states that this process has signed itself and has had in its memory since.

The signature of a state is for the time in the store, where others may have written. It costs a hash of all bytes, so
who gives a worker the very object that was signed here a moment ago says so, and the worker need not check it.
"""

from __future__ import annotations

import os
import threading

from actorproc.procedure.encoding.pickles import LARGE

__all__ = ["OWN_STATES", "OwnStates"]


class OwnStates:
    """The newest states by procedure, at most `most_bytes` of them. May be used from any thread."""

    def __init__(self, most_bytes: int = 32 * 1024 * 1024) -> None:
        self._most_bytes = most_bytes
        self._bytes = 0
        self._states: dict[str, bytes] = {}
        self._lock = threading.RLock()  # a signal handler may stop the manager in the middle

    def note(self, procedure: str, state: bytes, codec: str) -> None:
        """This state was signed for this procedure, just now."""
        if codec != "pickle" or not LARGE <= len(state) <= self._most_bytes:
            return
        with self._lock:
            self._drop(procedure)
            self._states[procedure] = state
            self._bytes += len(state)
            while self._bytes > self._most_bytes:
                self._drop(next(iter(self._states)))

    def take(self, procedure: str, state: bytes) -> bool:
        """True if it is this very object, and not an equal one that was read. It is forgotten with that."""
        with self._lock:
            return self._drop(procedure) is state

    def clear(self) -> None:
        """Keep none: states are checked again."""
        with self._lock:
            self._states.clear()
            self._bytes = 0

    def forget_in_fork(self) -> None:
        """In a forked copy, where the thread that held the lock does not exist."""
        self._lock = threading.RLock()
        self.clear()

    def _drop(self, procedure: str) -> bytes | None:
        state = self._states.pop(procedure, None)
        if state is not None:
            self._bytes -= len(state)
        return state


OWN_STATES = OwnStates()
"""Those of this process."""
os.register_at_fork(after_in_child=OWN_STATES.forget_in_fork)
