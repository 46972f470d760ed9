"""A call of a client that waits for its answer."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import msgspec

from actorproc.control.wire import RemoteCall
from actorproc.engine.end_waiters import fail_future

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

    def fail(self, error: BaseException) -> None:
        """It ends with this error, unless it has ended."""
        fail_future(self.future, error)
