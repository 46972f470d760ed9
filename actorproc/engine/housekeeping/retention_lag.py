"""Backlog of retention: finished roots that are older than they should become, and by how long.

Counted along the store's index of finish times, each row once, so that the count costs a fraction of the removal.
Roots that a whole pass has left alone stay for a reason of their own and are not overdue.
"""

from __future__ import annotations

import contextlib

from actorproc.errors import EngineError
from actorproc.model.policies import Retention
from actorproc.report.health import RetentionHealth
from actorproc.store.base import RecordStore
from actorproc.support.engine_log import engine_logger

__all__ = ["RetentionLag"]

logger = engine_logger("actorproc")

_COUNTED = 4096
"""Rows of the index that are counted in one go."""
_EVERY = 1.0
"""Seconds between two counts."""
_LATE, _TOO_LATE = 1.5, 5.0
"""Units by which the oldest root is overdue: from the first on the pressure grows, and at the second it is whole."""


class RetentionLag:
    """Used by `RetentionSweeper` alone.

    `unit` is how many seconds a root is late when all goes well; times are wall times.
    """

    def __init__(self, store: RecordStore, retention: Retention, unit: float) -> None:
        self._store = store
        self._retention = retention
        self._unit = unit
        self._judged_until = 0.0
        """The finish time up to which a whole pass has looked at every root."""
        self._cutoff = 0.0
        """The same of the pass under way."""
        self._place: tuple[str, float] | None = None
        """The last row that was counted."""
        self._count = 0
        self._next_count = 0.0
        self._began: float | None = None
        """Time at which the pass under way began; None: there is none."""
        self._lag = 0.0
        self._is_told = False

    def begin(self, at: float) -> None:
        """A pass begins."""
        self._began = at
        self._cutoff = at - self._retention.seconds if self._retention.seconds is not None else 0.0
        self._place, self._count, self._next_count = ("", self._judged_until), 0, at

    def end(self, *, whole: bool) -> None:
        """The pass is over; `whole`: it came to its end."""
        if whole:
            self._judged_until = self._cutoff
        self._began, self._count, self._lag = None, 0, 0.0
        if self._is_told:
            self._is_told = False
            logger.info("retention has caught up: no finished procedure is overdue")

    def judged(self, ended: float) -> None:
        """A root of the index was looked at, which finished then."""
        if self._judged_until < ended <= self._cutoff and self._count:
            self._count -= 1

    def look(self, at: float, oldest: float | None) -> None:
        """The overdue trees as of now; `oldest` is when the root finished that comes next in the pass."""
        seconds = self._retention.seconds
        if seconds is None or oldest is None or oldest <= self._judged_until:
            self._lag = 0.0 if self._began is None else max(0.0, at - self._began)
        else:
            self._lag = max(0.0, at - seconds - oldest)
        if seconds is not None and at >= self._next_count:
            found = self._store.finished(after=self._place, before=at - seconds, limit=_COUNTED)
            self._count += len(found)
            if found:
                self._place = found[-1]
            if len(found) < _COUNTED:
                self._next_count = at + _EVERY
        if self.is_behind and not self._is_told:
            self._is_told = True
            logger.warning("%s", self.health().in_words())

    @property
    def pressure(self) -> float:
        """From 0, removal is in time, to 1, it needs all the time there is."""
        return min(1.0, max(0.0, (self._lag / self._unit - _LATE) / (_TOO_LATE - _LATE)))

    @property
    def is_behind(self) -> bool:
        """So late that people should know."""
        return self._lag >= 2 * _TOO_LATE * self._unit

    def health(self) -> RetentionHealth:
        """The same for callers."""
        count = self._count
        if self._retention.count is not None and self._began is not None:
            with contextlib.suppress(EngineError):  # the store cannot be asked: as far as is known
                count = max(count, self._store.size().finished - self._retention.count)
        return RetentionHealth(backlog=count, lag=self._lag, is_behind=self.is_behind)
