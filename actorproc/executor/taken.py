"""Calls whose results the program has taken: what is stored of them is removed, many in one commit."""

from __future__ import annotations

import contextlib
import functools
import time
from collections import deque
from concurrent.futures import Future
from typing import Any

from actorproc.api.manager import ProcedureManager
from actorproc.errors import ActorprocError
from actorproc.model.messages.events import ResultsTaken

__all__ = ["Taken"]

_TOGETHER = 256
"""Calls removed in one commit, so that it stays short."""
_FEW = 64
"""Fewer wait for others, at most for `_PATIENCE`: a commit for each call would take as long as the call."""
_PATIENCE = 0.1
"""Seconds."""
_TRIES = 10
_LAST_SECONDS = 5.0
"""Seconds that the end of an executor waits for the last removals. Results that are left stay for as long as
others."""


class Taken:
    """Ids of calls to remove. `add` may be called from any thread; all else is for one thread at a time."""

    def __init__(self, manager: ProcedureManager) -> None:
        self._manager = manager
        self._ids: deque[tuple[str, int]] = deque()
        """With how often each was asked for: one that ended a moment ago may not be at rest."""
        self._page: dict[str, int] = {}
        self._under_way: Future[Any] | None = None
        self._next_at = 0.0
        """Time from which on a few are removed, by the monotonic clock."""

    @property
    def is_busy(self) -> bool:
        """There are some, or some are being removed."""
        return bool(self._ids) or self._under_way is not None

    def add(self, id: str) -> None:
        """The program has the outcome of this call."""
        self._ids.append((id, 1))

    def drop_some(self, *, few: bool = False) -> None:
        """Have the next ones removed, unless the ones before are still being removed. Waits for nothing.

        Args:
            few: also when there are not many of them.
        """
        if self._under_way is not None:
            if not self._under_way.done():
                return
            self._look()
        if self._ids and (few or len(self._ids) >= _FEW or time.monotonic() >= self._next_at):
            self._next_at = time.monotonic() + _PATIENCE
            self._page = dict(self._ids.popleft() for _ in range(min(_TOGETHER, len(self._ids))))
            with contextlib.suppress(ActorprocError):  # a manager that was stopped removes nothing
                self._under_way = self._manager._running().ask(functools.partial(ResultsTaken, tuple(self._page)))

    def drop_all(self) -> None:
        """Have all of them removed, and wait until they are."""
        end = time.monotonic() + _LAST_SECONDS
        with contextlib.suppress(TimeoutError):
            while time.monotonic() < end:
                self.drop_some(few=True)
                if self._under_way is None:
                    return
                self._under_way.exception(end - time.monotonic())
                self._look()

    def _look(self) -> None:
        assert self._under_way is not None
        reply, self._under_way = self._under_way, None
        if reply.exception() is None:
            self._ids += ((id, tries + 1) for id in reply.result() if (tries := self._page[id]) < _TRIES)
