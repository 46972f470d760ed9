"""Threads of a worker that runs several steps at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue

from actorproc.workers.protocol.frames import Run

__all__ = ["StepThreads"]


class StepThreads:
    """As many threads as steps have ever run at once. Used by the main thread, except `work`, which the threads run."""

    def __init__(self, work: Callable[[Run], None]) -> None:
        self._work = work
        self._queue: SimpleQueue[Run | None] = SimpleQueue()
        self._threads = 0
        self._busy = 0
        self._idle = threading.Condition()

    def give(self, run: Run) -> None:
        """Run this step on a thread that has nothing else to do."""
        with self._idle:
            self._busy += 1
            if self._busy > self._threads:
                self._threads += 1
                threading.Thread(target=self._serve, name=f"actorproc-step-{self._threads}", daemon=True).start()
        self._queue.put(run)

    def wait_until_idle(self) -> None:
        """Return when no step runs on a thread."""
        with self._idle:
            while self._busy:
                self._idle.wait()

    def dismiss(self) -> None:
        """End the threads, each after the step it runs."""
        for _ in range(self._threads):
            self._queue.put(None)

    def _serve(self) -> None:
        # Signals are for the main thread, which the kernel prefers. They are not blocked here, because programs that
        # steps start inherit that, and could not be terminated.
        while True:
            run = self._queue.get()
            if run is None:
                return
            try:
                self._work(run)
            finally:
                with self._idle:
                    self._busy -= 1
                    self._idle.notify_all()
