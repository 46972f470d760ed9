"""Table of callers that wait for the answer to a verb.

Futures are our own, not Pykka's, so that a stop can fail all of them.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any, NamedTuple

from actorproc.engine.end_waiters import EndWaiters, OpenWait, fail_future, once_more, settle_future
from actorproc.engine.messages import Ending, EndWaiter, Patience
from actorproc.errors import ActorprocError, NotAllowed

__all__ = ["Promise", "ReplyRouter"]


class Promise(NamedTuple):
    """Waiters for the ends of what a message submits, in its order: their waits begin with the reply."""

    waiters: Sequence[EndWaiter]
    patience: Patience


class ReplyRouter:
    """Callers waiting for an answer. Thread-safe; once closed it refuses and fails everything with one error.

    Without a lock, for a signal handler that stops the engine may run in the middle of any of this. An added caller is
    followed by a look whether the table was closed; `close` marks it closed first.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, Future[Any]] = {}
        self._promised: dict[int, Promise] = {}
        self.ends = EndWaiters()
        """Waits for ends of procedures, which a stop fails, too."""
        self._numbers = itertools.count(1)
        self._closed: list[ActorprocError] = []
        """Reasons for closing it; the first counts."""
        self.answered_by: set[int] = set()
        """The threads that give the answers at this moment, and must not wait for one."""

    def open(self) -> tuple[int, Future[Any]]:
        """A number for the event and the future its answer comes in."""
        future: Future[Any] = Future()
        return self._keep(future), future

    def add(self, future: Future[Any]) -> int:
        """Keep a caller's own future, so that a stop fails it; returns its number."""
        number = self._keep(future)
        future.add_done_callback(lambda _: self._waiting.pop(number, None))
        return number

    def refuse_here(self) -> None:
        """Raise `NotAllowed` on a thread that gives the answers at this moment."""
        if threading.get_ident() in self.answered_by and not self._closed:
            msg = (
                "this was asked on the manager's own thread, by a log handler or in __del__, and would wait there for "
                "an answer of that thread for ever; have a thread of yours ask"
            )
            raise NotAllowed(msg)

    def _keep(self, future: Future[Any]) -> int:
        self.refuse_here()
        number = next(self._numbers)
        self._waiting[number] = future
        if self._closed:
            self._waiting.pop(number, None)
            raise once_more(self._closed[0])
        return number

    def promise(self, number: int, waiters: Sequence[EndWaiter], patience: Patience) -> None:
        """Have these told the ends of what the message with this reply submits; they stay untold if it is refused."""
        self._promised[number] = Promise(waiters, patience)

    def wait(self, ends: Sequence[tuple[str, EndWaiter]], patience: Patience) -> None:
        """Keep these waits for ends, so that a stop tells them. Raises when the table is closed."""
        self.ends.keep(ends, patience)
        if self._closed:
            self.ends.drop(waiter for _, waiter in ends)
            raise once_more(self._closed[0])

    def future_end(self, id: str, patience: Patience) -> Future[Ending]:
        """A future of a procedure's end, which is to be asked for."""
        self.refuse_here()
        future: Future[Ending] = Future()
        self.wait([(id, future)], patience)
        return future

    def settle(self, number: int, value: object) -> Promise | None:
        """Answer with a value; unknown numbers are ignored (the caller was failed before).

        Returns the waiters that were promised the ends of what was submitted; None: there are none.
        """
        future = self._waiting.pop(number, None)
        promise = self._promised.pop(number, None) if self._promised else None
        if future is not None:
            settle_future(future, value)
        return promise

    def fail(self, number: int, error: ActorprocError) -> None:
        """Answer with an error."""
        future = self._waiting.pop(number, None)
        self._promised.pop(number, None)
        if future is not None:
            fail_future(future, error)

    def close_but_for_ends(self, error: ActorprocError) -> list[OpenWait]:
        """As `close`, but for those who wait for an end, which are returned and not told."""
        self._closed.append(error)
        left = self.ends.take_all()
        self.close(error)
        return left

    def close(self, error: ActorprocError) -> None:
        """Fail every waiting caller and all who come later. The first error stays."""
        self._closed.append(error)
        waiting = list(self._waiting.copy().values())
        self._waiting.clear()
        self._promised.clear()
        for future in waiting:
            fail_future(future, self._closed[0])
        self.ends.close(self._closed[0])
