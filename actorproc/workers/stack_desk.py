"""Who waits for the stack of a running step."""

from __future__ import annotations

import itertools
import threading
from concurrent.futures import Future, InvalidStateError

__all__ = ["StackDesk"]


class StackDesk:
    """Numbered questions and their answers. Any thread."""

    def __init__(self) -> None:
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

    def is_waiting(self, number: int) -> bool:
        """Nobody has answered this one."""
        return number in self._waiting

    def answered(self, number: int, text: str) -> None:
        """The first answer counts."""
        with self._lock:
            future = self._waiting.pop(number, None)
        if future is not None:
            try:
                future.set_result(text)
            except InvalidStateError:  # who asked has given up
                return
