"""The row of a schedule: its declaration, and how far it has come."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import Literal, Protocol

import msgspec

from actorproc.model.ids import firing_id
from actorproc.model.rows.records import NewProcedure

__all__ = ["FIRING_TAG", "CatchUp", "Leap", "Overlap", "Rule", "RuleOf", "ScheduleRecord", "newest"]

CatchUp = Literal["last", "all", "none"]
Overlap = Literal["skip", "queue", "cancel-running"]
FIRING_TAG = "schedule:"
"""Beginning of the tag that all firings of a schedule have; the id of the schedule is the rest."""


class Rule(Protocol):
    """Instants that come, each later than the one before: a cron expression, an interval, a calendar."""

    def next(self, after: float) -> int | None:
        """The first instant later than `after`, in whole seconds since 1970; None: there is none."""
        ...


RuleOf = Callable[[str, str, int], Rule]
"""Gives the rule of a spec, a time zone and an anchor; raises ValueError where this machine cannot have it."""


class Leap(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A moment at which the clock was more than a day later than a schedule was due."""

    at: float
    """Epoch seconds by that clock."""
    watermark: float
    """`ScheduleRecord.watermark` before it: the truth, should the clock turn out to have been wrong."""


class ScheduleRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True, gc=False):
    """One schedule. Times are epoch seconds; instants are whole ones."""

    id: str
    spec: str
    """The rule as one text (`actorproc.support.recurrence`)."""
    timezone: str = "UTC"
    """Time zone in which the wall times of the rule are meant."""
    new: NewProcedure
    """The procedure that each firing starts; its id is that of the schedule."""
    catch_up: CatchUp = "last"
    """Instants that are made up for when they could not fire in time."""
    catch_up_within: float | None = None
    """Seconds after which a missed instant is not made up for; None: it always is."""
    overlap: Overlap = "skip"
    """Policy for an instant that comes while the firing before has not ended."""
    jitter: float = 0.0
    """Seconds by which the start of a firing is put off at most."""
    until: float | None = None
    """No instant later than this one fires; None: they go on for ever."""
    deadline: float | None = None
    """Seconds after which a firing misses its deadline; None: it has none."""

    # How far it has come.
    anchor: int = 0
    """Instant from which an interval is counted: when the rule was declared."""
    declared_at: float = 0.0
    """Time of the declaration that last changed it."""
    epoch: int = 0
    """Life of the manager in which it was declared last; in later ones it is undeclared."""
    watermark: float = 0.0
    """Instants up to this one are over: they fired, were passed over, or are earlier than the rule."""
    fired: int = 0
    """The last instant that started a procedure; 0: none did."""
    due: int | None = None
    """The next instant as it was computed last; None: there is none."""
    waiting: tuple[int, ...] = ()
    """Instants that wait for the firing before to end, the earliest first."""
    paused: str | None = None
    """Reason for which an operator paused it; None: it is not paused."""
    fault: str | None = None
    """Reason for which it does not fire as it should; None: all is well."""
    firings: int = 0
    """Procedures that it has started."""
    passed: int = 0
    """Instants that came and started none."""
    leaps: tuple[Leap, ...] = ()
    """Leaps of the clock that may have been mistakes, the earliest first."""
    again_until: float = 0.0
    """Instants up to this one may have fired by a clock that was wrong: those that have ended are started again."""

    def id_of(self, at: float) -> str:
        """The id of the procedure that it starts for an instant."""
        return firing_id(self.id, at)

    def next_due(self, rule: Rule) -> int | None:
        """The first instant behind the watermark; None: the schedule is over."""
        return next(self.upcoming(rule), None)

    def upcoming(self, rule: Rule) -> Iterator[int]:
        """The instants behind the watermark, up to the last one that fires."""
        until = math.inf if self.until is None else self.until
        return takewhile(lambda at: at <= until, _instants(rule, self.watermark))

    def come_by(self, rule: Rule, now: float, most: int) -> list[int]:
        """The newest instants behind the watermark that have come by now."""
        return newest(rule, self.watermark, now if self.until is None else min(now, self.until), most)


def newest(rule: Rule, after: float, until: float, most: int) -> list[int]:
    """The newest instants of a rule later than `after`, up to `until`, at most so many.

    It costs what `most` instants cost, however long the time is.
    """
    span = 60
    while True:
        start = max(after, until - span)
        found = list(takewhile(lambda at: at <= until, _instants(rule, start)))
        if len(found) >= most or start == after:
            return found[-most:]
        span *= 2


def _instants(rule: Rule, after: float) -> Iterator[int]:
    at = rule.next(after)
    while at is not None:
        yield at
        at = rule.next(at)
