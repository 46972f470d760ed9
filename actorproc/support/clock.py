"""Sources of time: the wall clock for what is stored, the monotonic clock for what is waited on.

A store in a database has the clock of the database, as several machines write to it one after the other. That clock is
read with each commit. In between, and where the reading differs by little, the own monotonic clock counts.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

__all__ = ["Clock", "MeasuredClock", "SystemClock", "clock_jumps"]

_SLEWED = 1.0
"""Seconds of a difference that is worn off; a greater one is a jump."""
_RATE = 0.001
"""Seconds of a difference that are worn off in a second."""


class Clock(Protocol):
    """Source of time for the engine; seconds."""

    def wall(self) -> float:
        """Epoch seconds, UTC."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump."""
        ...


class SystemClock:
    """The clocks of the operating system."""

    wall = staticmethod(time.time)
    monotonic = staticmethod(time.monotonic)


class _Course(NamedTuple):
    """Course of wall time over monotonic time: an offset that moves towards another one, and a least time."""

    offset: float
    since: float
    """Monotonic time from which on the offset moves."""
    goal: float
    least: float

    def offset_at(self, now: float) -> float:
        worn_off = _RATE * max(0.0, now - self.since)
        return self.offset + max(-worn_off, min(worn_off, self.goal - self.offset))


class MeasuredClock:
    """Wall time of another machine, measured now and then; for any thread.

    The time that it gives never goes back. A difference of a second or less is worn off, by a millisecond in each
    second. A greater one is a jump, which is logged and counted: forward it is taken at once; backward the clock
    stands still until the other one has reached its time. Until the first measurement the time is the system's.

    Args:
        monotonic: Source of seconds that never jump. Default: that of the system.
    """

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self.monotonic = monotonic
        self.jumps = 0
        """Jumps so far, in either direction."""
        now = monotonic()
        offset = time.time() - now
        self._course = _Course(offset, now, offset, 0.0)

    def wall(self) -> float:
        """Epoch seconds, UTC."""
        course, now = self._course, self.monotonic()
        return max(course.least, now + course.offset_at(now))

    def begin(self, wall: float, sent: float, answered: float) -> None:
        """Start from the other clock, whatever this one said before. For a new owner of the store.

        Args:
            wall: Time of the other clock, in epoch seconds.
            sent: Monotonic time before it was asked.
            answered: Monotonic time after it answered.
        """
        offset = wall - (sent + answered) / 2
        self._course = _Course(offset, answered, offset, 0.0)

    def measured(self, wall: float, sent: float, answered: float) -> None:
        """Take a reading of the other clock, from the thread that took the earlier ones.

        The answer may have been long under way: all offsets from one end of that time to the other fit.

        Args:
            wall: Time of the other clock, in epoch seconds.
            sent: Monotonic time before it was asked.
            answered: Monotonic time after it answered.
        """
        now = self.monotonic()
        course = self._course
        offset = course.offset_at(now)
        goal = min(max(offset, wall - answered), wall - sent)
        difference = goal - offset
        if difference == 0.0:
            if course.goal != offset:
                self._course = course._replace(offset=offset, since=now, goal=offset)
            return
        shown = max(course.least, now + offset)
        if abs(difference) <= _SLEWED:
            self._course = _Course(offset, now, goal, shown)
            return
        self.jumps += 1
        self._course = _Course(goal, now, goal, shown)
        from actorproc.support.engine_log import engine_logger  # noqa: PLC0415 - mere looks at a store need no logging

        logger = engine_logger("actorproc")
        if difference > 0:
            logger.warning("the clock of the store went forward by %.1f s; what is due by it goes on now", difference)
        else:
            logger.warning(
                "the clock of the store went back by %.1f s; the time of the engine stands still until that is reached",
                -difference,
            )


def clock_jumps(clock: Clock) -> int:
    """The jumps that a clock counted; of one that counts none, 0."""
    return int(getattr(clock, "jumps", 0))
