"""A bounded queue between an actor and the code of the host, which may be slow and may raise."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar

__all__ = ["BoundedQueue"]

_T = TypeVar("_T")


class BoundedQueue(Generic[_T]):
    """Delivers items one after the other on the thread for callbacks; what does not fit is counted and dropped.

    `post` runs an errand on that thread.
    """

    def __init__(
        self, deliver: Callable[[_T], object], post: Callable[[Callable[[], object]], None], *, bound: int
    ) -> None:
        self._deliver = deliver
        self._post = post
        self.bound = bound
        """Items that wait; more are dropped."""
        self._queue: deque[_T] = deque()
        self._lock = threading.Lock()
        self._posted = False
        self.lost = 0
        """Items dropped so far."""

    def put(self, item: _T) -> None:
        """Have an item delivered soon; returns at once."""
        with self._lock:
            if len(self._queue) >= self.bound:
                self.lost += 1
                return
            self._queue.append(item)
            if self._posted:
                return
            self._posted = True
        self._post(self._empty)

    def __len__(self) -> int:
        return len(self._queue)

    def _empty(self) -> None:
        try:
            while self._has_more():
                self._deliver(self._queue.popleft())
        except BaseException:
            # sys.exit() in a hook, or a log handler that raises: what comes after is delivered all the same.
            self._post(self._empty)
            raise

    def _has_more(self) -> bool:
        with self._lock:
            self._posted = bool(self._queue)
            return self._posted
