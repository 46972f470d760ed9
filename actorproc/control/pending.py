"""A call of a client that waits for its answer."""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import msgspec

from actorproc.control.wire import RemoteCall
from actorproc.engine.end_waiters import fail_future
from actorproc.errors import OutcomeUnknown, StorageUnavailable

__all__ = ["Pending"]


class Pending:
    """A call that has no answer yet."""

    def __init__(self, call: RemoteCall, gives: Any, deadline: float, *, repeatable: bool) -> None:
        self.call = call
        self.gives = gives
        self.deadline = deadline
        """Time at which it is given up if there is no connection; monotonic."""
        self.repeatable = repeatable
        self.on_change: Callable[[msgspec.Raw], None] | None = None
        """Gets what a stream brings, on the reading thread."""
        self.renew: Callable[[], bytes] | None = None
        """The body when the call is sent again."""
        self.future: Future[Any] = Future()
        self.sent = False
        self.lost_one = False
        """It was sent over the last connection, which did not stand for long."""
        self.refusals = 0
        """Number of times that a manager could not take it at the moment."""

    def waits_out(self, error: BaseException) -> bool:
        """The error is one of the moment: the manager has not taken it, or it may be asked again without harm.

        Args:
            error: The manager's answer.

        Returns:
            True for a request that the store of the manager does not take just now.
        """
        if self.call.kind != "request" or time.monotonic() >= self.deadline:
            return False
        return isinstance(error, StorageUnavailable) or (self.repeatable and isinstance(error, OutcomeUnknown))

    def fail(self, error: BaseException) -> None:
        """It ends with this error, unless it has ended."""
        fail_future(self.future, error)
