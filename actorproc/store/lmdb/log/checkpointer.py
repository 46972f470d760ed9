"""The thread that writes checkpoints: what is in the log goes into the data file, while commits go on."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

__all__ = ["Checkpointer"]

_EVERY = 2.0
"""Seconds after the first commit that is in the log alone."""
_PATIENCE = 60.0
"""Seconds for the end of a checkpoint when the store is closed, or opened again."""


class Checkpointer:
    """Runs checkpoints on a thread of its own, which is started by the first commit."""

    def __init__(self, checkpoint: Callable[[], None]) -> None:
        """``checkpoint`` writes one, and raises nothing."""
        self._checkpoint = checkpoint
        self._changed = threading.Condition()
        self._due: float | None = None
        self._stopping = False
        self._thread: threading.Thread | None = None

    def tell(self, *, now: bool = False) -> None:
        """There is a commit in the log. `now`: and so many that the next checkpoint is due."""
        if self._due is not None and not now:
            return
        with self._changed:
            due = 0.0 if now else time.monotonic() + _EVERY
            self._due = due if self._due is None else min(self._due, due)
            self._changed.notify()
            if self._thread is None and not self._stopping:
                thread = threading.Thread(target=self._run, name="actorproc-checkpoint", daemon=True)
                with contextlib.suppress(RuntimeError):  # no more threads: the log is written out when it is full
                    thread.start()
                    self._thread = thread

    def stop(self) -> bool:
        """End the thread, and say whether it has ended: it has not while the disk hangs.

        Idempotent. It can be told again afterwards.
        """
        with self._changed:
            self._stopping = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_PATIENCE)
            if self._thread.is_alive():
                return False
        self._thread = None
        self._stopping = False
        self._due = None
        return True

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._stopping and (self._due is None or self._due > time.monotonic()):
                    self._changed.wait(None if self._due is None else self._due - time.monotonic())
                if self._stopping:
                    return
                self._due = None
            self._checkpoint()
