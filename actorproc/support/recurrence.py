"""Recurrence rules of schedules: which instants come, in which time zone. Pure arithmetic, told the time.

A rule is one text, its *spec*: a cron expression, an interval, or a calendar. Its instants are whole seconds since
1970, UTC, and are only ever computed forward from an instant. So the repeated hour cannot lead back.

Daylight saving, as in Debian's cron. Fixed times in a gap come once, at its end. Fixed times in an overlap come once,
in its first pass. With a ``*`` in the field of minutes or hours they come in both. Intervals are elapsed time from an
anchor, so no change of a clock moves them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any

from actorproc.support.durations import in_seconds

__all__ = ["Calendar", "advice", "rule_of", "spec_of", "zone_name"]

_DAY = 86_400
_LATEST = 250_000_000_000
"""Seconds since 1970 behind which no instant is looked for: the year 9892."""
_YEARS = 50
"""Years after which a rule is taken for one that never comes."""
_NEEDS = "pip install 'actorproc[schedules]'"
_NICKNAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
_WEEKDAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_LONG_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")


# ---------------------------------------------------------------------- what users give
@dataclass(frozen=True)
class Calendar:
    """Fixed times of the day on some days, as a schedule takes them; needs no cron library.

    A day counts if it is among all that are given: ``weekdays``, ``days`` and ``months``.

    Args:
        at: Times of the day, as ``"02:00"``, ``"02:00:30"`` or a `datetime.time`; one or several. Default: midnight.
        weekdays: Names of weekdays, such as ``"mon"`` or ``"monday"``; one or several. Default: all.
        days: Days of the month, 1 to 31; -1 is the last one, -2 the one before. Default: all.
        months: Numbers of months, 1 to 12. Default: all.

    Raises:
        ValueError: A value is none of these, or no day can ever be among all.
        TypeError: A value is of the wrong kind.
    """

    at: str | time | Iterable[str | time] = "00:00"
    weekdays: str | Iterable[str] = ()
    days: int | Iterable[int] = ()
    months: int | Iterable[int] = ()

    def __post_init__(self) -> None:
        times = sorted({_time_of(text) for text in _several(self.at, "at")})
        if not times:
            msg = "Calendar(at=…) names no time of the day"
            raise ValueError(msg)
        object.__setattr__(self, "at", tuple(moment.isoformat() for moment in times))
        names = [_weekday(name) for name in _several(self.weekdays, "weekdays")]
        object.__setattr__(self, "weekdays", tuple(name for name in _WEEKDAYS if name in names))
        for field, least, most in (("days", -31, 31), ("months", 1, 12)):
            numbers = _several(getattr(self, field), field)
            for number in numbers:
                if isinstance(number, bool) or not isinstance(number, int):
                    msg = f"Calendar({field}=…) are whole numbers, not {number!r:.60}"
                    raise TypeError(msg)
                if not least <= number <= most or number == 0:
                    msg = f"Calendar({field}=…) has {number}; allowed are {least} to {most}" + ", but not 0" * (
                        least < 0
                    )
                    raise ValueError(msg)
            object.__setattr__(self, field, tuple(sorted(set(numbers))))
        if next(self._times_after(datetime(2000, 1, 1)), None) is None:  # noqa: DTZ001 - wall times have no zone here
            msg = f"Calendar(days=…, months=…) has no day that ever comes: {self.spec!r}"
            raise ValueError(msg)

    @property
    def spec(self) -> str:
        """The rule as one text."""
        parts = [",".join(_several(self.at, "at"))]
        given = {"weekdays": self.weekdays, "days": self.days, "months": self.months}
        parts += [f"{field}={','.join(map(str, _several(values, field)))}" for field, values in given.items() if values]
        return "calendar " + " ".join(parts)

    def _times_after(self, wall: datetime) -> Iterator[datetime]:
        """Its wall times later than one, in order; ends where none has come for 50 years."""
        times = [time.fromisoformat(text) for text in _several(self.at, "at")]
        months = _several(self.months, "months")
        day, last = wall.date(), wall.year + _YEARS
        while day.year <= last:
            if months and day.month not in months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
                continue
            if self._has(day):
                last = day.year + _YEARS
                found = (datetime.combine(day, moment) for moment in times)
                yield from (at for at in found if at > wall)
            day += timedelta(days=1)

    def _has(self, day: date) -> bool:
        if self.weekdays and _WEEKDAYS[day.weekday()] not in self.weekdays:
            return False
        days = _several(self.days, "days")
        left = (day.replace(day=28) + timedelta(days=4)).replace(day=1) - day
        return not days or day.day in days or -left.days in days


def _several(given: Any, field: str) -> tuple[Any, ...]:
    if isinstance(given, str | int | time):
        return (given,)
    if not isinstance(given, Iterable):
        msg = f"Calendar({field}=…) is one value or a list of them, not {given!r:.60}"
        raise TypeError(msg)
    return tuple(given)


def _time_of(text: Any) -> time:
    if isinstance(text, time):
        text = text.isoformat()
    try:
        moment = time.fromisoformat(text)
    except (TypeError, ValueError):
        moment = time(microsecond=1)
    if moment.microsecond or moment.tzinfo is not None:
        msg = f"Calendar(at=…) are times of the day such as '02:00' or '02:00:30', not {text!r:.60}"
        raise ValueError(msg)
    return moment


def _weekday(name: Any) -> str:
    word = name.strip().lower() if isinstance(name, str) else ""
    if word not in _WEEKDAYS and word not in _LONG_WEEKDAYS:
        msg = f"Calendar(weekdays=…) are names such as 'mon' or 'monday', one or a list of them, not {name!r:.60}"
        raise ValueError(msg)
    return word[:3]


def spec_of(when: Any, *, seconds: bool = False) -> str:
    """The rule that a user gives as one text; it is checked by `rule_of`.

    Args:
        when: A cron expression, a duration, or a `Calendar`.
        seconds: The cron expression has six fields, of which the first is seconds. Default: False.

    Raises:
        TypeError: ``when`` is none of these.
        ValueError: The number of fields is not as said, or the interval is no whole number of seconds.
    """
    if isinstance(when, Calendar):
        return when.spec
    if isinstance(when, str):
        return _cron_spec(when, seconds=seconds)
    if isinstance(when, bool) or not isinstance(when, int | float | timedelta):
        msg = f"a schedule is a cron expression, a timedelta, a number of seconds or a Calendar, not {when!r:.60}"
        raise TypeError(msg)
    every = in_seconds(when, "the interval of a schedule", least="above zero")
    if every != int(every) or every > _LATEST:
        msg = f"the interval of a schedule is a whole number of seconds, at least 1, not {when!r:.60}"
        raise ValueError(msg)
    return f"every {int(every)}"


def _cron_spec(text: str, *, seconds: bool) -> str:
    named = text.strip().lower()
    if named.startswith("@"):
        if named not in _NICKNAMES:
            msg = f"the cron expression {text!r:.60} is not known here; {', '.join(_NICKNAMES)} are"
            raise ValueError(msg)
        if seconds:
            msg = f"the cron expression {text!r:.60} has no field for seconds: leave seconds=True out"
            raise ValueError(msg)
        return f"cron {_NICKNAMES[named]}"
    fields = text.split()
    if len(fields) != (6 if seconds else 5):
        hint = "six fields begin with seconds, and need seconds=True" if len(fields) == 6 else "see man 5 crontab"
        wanted = "second minute hour day month weekday" if seconds else "minute hour day month weekday"
        msg = f"the cron expression {text!r:.60} has {len(fields)} fields, and should have: {wanted}; {hint}"
        raise ValueError(msg)
    return f"cron{'-seconds' * seconds} {' '.join(fields).upper()}"


def zone_name(zone: Any) -> str:
    """The name of a time zone that a user gives, as it is stored; raises TypeError."""
    if zone is UTC:
        return "UTC"
    name = getattr(zone, "key", zone)
    if not isinstance(name, str) or not name:
        msg = f"timezone is the name of a time zone, such as 'Europe/Berlin', or a ZoneInfo of one, not {zone!r:.60}"
        raise TypeError(msg)
    return name


def advice(spec: str) -> str | None:
    """Words on a rule that may mean something else than its author thinks; None: there are none."""
    kind, _, text = spec.partition(" ")
    if not kind.startswith("cron"):
        return None
    *_, day, _, weekday = text.split()
    if day == "*" or weekday == "*":
        return None
    if day.startswith("*") or weekday.startswith("*"):
        return f"{text!r}: with a * in one of them, the day of the month and the weekday must both match"
    return f"{text!r}: with both given, a day comes when the day of the month or the weekday matches"


# ---------------------------------------------------------------------- rules
_Walls = Callable[[datetime], Iterator[datetime]]
"""Wall times later than one, in order."""


@functools.lru_cache(maxsize=4096)
def rule_of(spec: str, timezone: str = "UTC", anchor: int = 0) -> _Interval | _FixedTimes | _OpenTimes:
    """The rule of a spec.

    Args:
        spec: As `spec_of` makes it.
        timezone: Name of the time zone of wall times. Default: UTC.
        anchor: Instant from which intervals are counted. Default: 0.

    Raises:
        ValueError: The spec, or the time zone, is wrong or not known on this machine; the message says what to do.
    """
    kind, _, text = spec.partition(" ")
    zone = _zone(timezone)
    if kind == "every":
        return _Interval(int(text), anchor)
    if kind == "calendar":
        return _FixedTimes(_calendar(text)._times_after, zone)
    if kind not in {"cron", "cron-seconds"}:
        msg = f"this version does not know the schedule {spec!r:.80}"
        raise ValueError(msg)
    minute, hour = text.split()[-5:-3]
    is_open = minute.startswith("*") or hour.startswith("*")
    return (_OpenTimes if is_open else _FixedTimes)(_cron(text), zone)


def _zone(name: str) -> tzinfo:
    if name == "UTC":
        return UTC
    import zoneinfo  # noqa: PLC0415 - no manager without schedules in time zones need wait for it

    has_leaps = name.startswith("right/")
    if has_leaps or name in {"localtime", "posixrules"}:
        why = "counts leap seconds, as clocks do not" if has_leaps else "is another one on each machine"
        msg = f"the time zone {name!r:.60} {why}; name a place, such as Europe/Berlin"
        raise ValueError(msg)
    try:
        return zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, ValueError, OSError) as error:
        import difflib  # noqa: PLC0415

        known = zoneinfo.available_timezones()
        near = difflib.get_close_matches(name, known, 3, 0.6)
        hint = f"similar are {', '.join(near)}" if near else "names are such as Europe/Berlin"
        if not known:
            hint = f"this machine knows no time zones: {_NEEDS}"
        msg = f"the time zone {name!r:.60} is not known here; {hint}"
        raise ValueError(msg) from error


def _calendar(text: str) -> Calendar:
    at, *others = text.split()
    given: dict[str, Any] = {"at": at.split(",")}
    for part in others:
        field, _, values = part.partition("=")
        given[field] = values.split(",") if field == "weekdays" else [int(value) for value in values.split(",")]
    return Calendar(**given)


def _cron(text: str) -> _Walls:
    try:
        from cronsim import CronSim, CronSimError  # noqa: PLC0415 - an extra: only cron expressions need it
    except ImportError as error:
        msg = f"cron expressions need the extra 'schedules': {_NEEDS}; intervals and Calendar(…) need no extra"
        raise ValueError(msg) from error
    try:
        CronSim(text, datetime(2000, 1, 1))  # noqa: DTZ001 - wall times have no zone here
    except (CronSimError, ValueError) as error:
        msg = f"the cron expression {text!r:.60} is wrong: {str(error).replace('Bad', 'bad')}"
        raise ValueError(msg) from error
    return functools.partial(CronSim, text)


@dataclass(frozen=True)
class _Interval:
    every: int
    anchor: int

    def next(self, after: float) -> int | None:
        at = self.anchor + (math.floor((after - self.anchor) / self.every) + 1) * self.every
        return at if at <= _LATEST else None


@dataclass(frozen=True)
class _FixedTimes:
    """Wall times that come once each: at the end of a gap, and in the first pass of an overlap."""

    walls: _Walls
    zone: tzinfo

    def next(self, after: float) -> int | None:
        # Wall times of a second pass come out behind: they are passed over until the instants are later again.
        for wall in _bounded(self.walls(_wall(after, self.zone))):
            if (at := _instant(wall, self.zone)) > after:
                return at
        return None


@dataclass(frozen=True)
class _OpenTimes:
    """Wall times that come whenever the clocks show them: never in a gap, and twice in an overlap."""

    walls: _Walls
    zone: tzinfo

    def next(self, after: float) -> int | None:
        while True:
            wall, offset = _wall(after, self.zone), _offset(after, self.zone)
            found = next(_bounded(self.walls(wall)), None)
            if found is None:
                return None
            at = _seconds(found) - offset
            change = _change(after, at, self.zone)
            if change is None:
                return at
            # Nothing came before the change; from it on the clocks show other times.
            moved = _offset(change, self.zone)
            found = next(_bounded(self.walls(_wall(change, self.zone) - timedelta(seconds=1))), None)
            if found is not None and _seconds(found) - moved == change:
                return change
            after = change


# ---------------------------------------------------------------------- wall times
def _wall(at: float, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(math.floor(at), zone).replace(tzinfo=None, fold=0)


def _seconds(wall: datetime) -> int:
    """A wall time as if it were UTC."""
    return int(wall.replace(tzinfo=UTC).timestamp())


def _offset(at: float, zone: tzinfo) -> int:
    found = datetime.fromtimestamp(math.floor(at), zone).utcoffset()
    return 0 if found is None else int(found.total_seconds())


def _instant(wall: datetime, zone: tzinfo) -> int:
    """The instant of a fixed wall time: the first one that shows it; in a gap the end of the gap."""
    at = int(wall.replace(tzinfo=zone, fold=0).timestamp())
    if _wall(at, zone) == wall:
        return at
    change = _change(int(wall.replace(tzinfo=zone, fold=1).timestamp()), at, zone)
    return at if change is None else change


def _change(after: float, until: int, zone: tzinfo) -> int | None:
    """The first instant later than `after`, up to `until`, from which on the zone has another offset."""
    if zone is UTC:
        return None
    low = math.floor(after)
    offset = _offset(low, zone)
    while low < until:
        high = min(low + _DAY, until)  # no zone goes back to an offset within a day
        if _offset(high, zone) != offset:
            while high - low > 1:
                middle = (low + high) // 2
                low, high = (middle, high) if _offset(middle, zone) == offset else (low, middle)
            return high
        low = high
    return None


def _bounded(walls: Iterator[datetime]) -> Iterator[datetime]:
    """The same, ended where dates end."""
    try:
        for wall in walls:
            if wall.year > 9890:
                return
            yield wall
    except OverflowError:
        return
