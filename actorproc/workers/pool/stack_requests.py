"""The stacks of running steps: who waits for one, and how a worker that does not answer is made to tell it."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future, InvalidStateError
from functools import partial

from actorproc.workers.base import STACK_SECONDS
from actorproc.workers.os.timers import PoolTimers
from actorproc.workers.pool.worker_link import WorkerLink

__all__ = ["StackRequests"]

_PATIENCE = 0.25
"""Seconds a worker has to tell the stack of its step itself."""


class StackRequests:
    """Numbered questions and their answers. `open` and `answered` are for any thread, the rest for the pool's."""

    def __init__(self, timers: PoolTimers) -> None:
        self._timers = timers
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[str]] = {}
        self._lock = threading.Lock()

    def open(self) -> tuple[int, Future[str]]:
        """A new question: its number, and where the answer comes."""
        future: Future[str] = Future()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = future
        return number, future

    def answered(self, number: int, text: str) -> None:
        """The first answer counts."""
        with self._lock:
            future = self._waiting.pop(number, None)
        if future is not None:
            try:
                future.set_result(text)
            except InvalidStateError:  # who asked has given up
                return

    def asked(self, link: WorkerLink, number: int) -> None:
        """The worker was asked; after a while its stack is had by a signal."""
        self._timers.after(_PATIENCE, partial(self._force, link, number))

    def _force(self, link: WorkerLink, number: int) -> None:
        if link.dead or link.process is None or number not in self._waiting:
            self.answered(number, "")
            return
        link.process.take_stack()
        link.process.ask_for_stacks()
        self._timers.after(STACK_SECONDS, partial(self._collect, link, number))

    def _collect(self, link: WorkerLink, number: int) -> None:
        process = link.process
        self.answered(number, process.take_stack() if process is not None and not link.dead else "")
