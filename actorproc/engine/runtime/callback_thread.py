"""Runs what belongs to the host (done-callbacks, log records) on a thread of its own.

The manager never waits for it.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections.abc import Callable

__all__ = ["CallbackThread"]

logger = logging.getLogger("actorproc")


class CallbackThread:
    """One daemon thread, started at the first errand; errands run in order and their errors are logged.

    An errand that is posted after `close` runs on a thread of its own, for whose end nothing waits.
    """

    def __init__(self) -> None:
        self._errands: queue.SimpleQueue[Callable[[], object] | None] = queue.SimpleQueue()
        # A finalizer may post, in the middle of another post of its thread.
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._closed = False

    def post(self, errand: Callable[[], object]) -> None:
        """Run this soon. Returns at once; may be called from any thread."""
        self._errands.put(errand)
        if self._thread is None:
            with self._lock:
                if self._thread is None:
                    self._begin()

    def _begin(self) -> None:
        """Start a thread, with the lock held."""
        thread = threading.Thread(target=self._run, name="actorproc-courier", daemon=True)
        if self._closed:
            self._errands.put(None)
        else:
            self._thread = thread  # at once: Ctrl-C may raise while it starts
        try:
            thread.start()
        except RuntimeError:  # the system has no more threads
            self._thread = None
            raise

    def close(self, timeout: float) -> None:
        """End after the errands posted so far; waits at most `timeout` seconds."""
        with self._lock:
            thread, self._thread = self._thread, None
            self._closed = True
        if thread is not None:
            self._errands.put(None)
            if thread is not threading.current_thread():
                thread.join(timeout)

    def _run(self) -> None:
        while (errand := self._errands.get()) is not None:
            try:
                errand()
            except BaseException:  # sys.exit() ends no program from here, and must not end the callbacks of others
                with contextlib.suppress(Exception):  # a log handler of the host may be what raises
                    logger.exception("a callback of the host raised")
