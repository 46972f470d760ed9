"""Durations and moments that callers give, checked in one place and turned into the engine's units.

A duration is a number of seconds or a `datetime.timedelta`. A moment is a `datetime.datetime` with a time zone or a
number of seconds since 1970. The two are never taken for each other: a number below `EARLIEST` is no moment.
"""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from typing import Any, Generic, Literal, TypeVar

__all__ = [
    "EARLIEST",
    "LATEST",
    "Least",
    "OptionalSeconds",
    "Seconds",
    "in_seconds",
    "moment",
    "moment_near",
    "seconds_or_none",
]

EARLIEST = 1_000_000_000.0
"""The first number that is taken for a moment: September 2001. A smaller one was meant as a duration."""
LATEST = 253_402_300_799.0
"""The end of the year 9999, in seconds since 1970: no date can be told behind it."""
_MILLISECONDS = 1000.0

Least = Literal["zero", "above zero", "any"]
_RULES: dict[Least, str] = {"zero": "not negative", "above zero": "above 0", "any": ""}


def in_seconds(given: Any, what: str, *, least: Least = "zero", endless: bool = False) -> float:
    """A duration in seconds.

    Args:
        given: A number of seconds or a timedelta.
        what: The beginning of the error's text, such as "delay" or "Status.sleep(…)".
        least: Numbers that are allowed: from zero (default), only above zero, or any.
        endless: `math.inf` is allowed; default False.

    Returns:
        The seconds, as a plain float.

    Raises:
        TypeError: for what is neither a number nor a timedelta.
        ValueError: for a number outside of what is allowed, "not a number" included.
    """
    return _checked(given, what, least, endless=endless, end="")


def seconds_or_none(given: Any, what: str, *, least: Least = "zero", endless: bool = False) -> float | None:
    """The same of an argument that may be None."""
    return None if given is None else _checked(given, what, least, endless=endless, end=", or None")


def _checked(given: Any, what: str, least: Least, *, endless: bool, end: str) -> float:
    if isinstance(given, timedelta):
        seconds = given.total_seconds()
    elif isinstance(given, int | float) and not isinstance(given, bool):
        seconds = _as_float(given)
    else:
        raise TypeError(_refusal(given, what, least, endless=endless, end=end))
    is_low = (seconds < 0 and least == "zero") or (seconds <= 0 and least == "above zero")
    if is_low or math.isnan(seconds) or (math.isinf(seconds) and not endless):
        raise ValueError(_refusal(given, what, least, endless=endless, end=end))
    return seconds


def moment(given: Any, what: str, *, instead: str = "") -> float:
    """A moment in seconds since 1970.

    Args:
        given: A datetime with a time zone, or a number of seconds since 1970.
        what: The beginning of the error's text, such as "deadline".
        instead: Advice for a number that was meant as a duration, such as "timedelta(seconds=…) is from now".

    Raises:
        TypeError: for what is neither.
        ValueError: for a datetime without a time zone, a number below `EARLIEST`, and what is beyond the year 9999.
    """
    if isinstance(given, datetime):
        return _of_datetime(given, what)
    if isinstance(given, bool) or not isinstance(given, int | float):
        msg = f"{what} is a datetime with a time zone or a number of seconds since 1970, not {given!r:.60}"
        raise TypeError(msg)
    seconds = _as_float(given)
    if math.isnan(seconds):
        msg = f"{what}={given!r:.60} is no moment"
        raise ValueError(msg)
    if seconds < EARLIEST:
        msg = (
            f"{what}={given!r:.60} would be seconds since 1970, before September 2001: a duration is no moment. "
            f"{instead or 'Give time.time() plus or minus so many seconds, or a datetime with a time zone'}"
        )
        raise ValueError(msg)
    if seconds > LATEST:
        is_milli = seconds / _MILLISECONDS <= LATEST
        advice = "give seconds, not milliseconds" if is_milli else "leave it out when there is none"
        msg = f"{what}={given!r:.60} is beyond the year 9999; {advice}"
        raise ValueError(msg)
    return seconds


def moment_near(seconds: float) -> float:
    """The moment nearest to seconds since 1970 that are known to be no duration: those of a date, or of a span ago.

    Nothing that is stored is older than `EARLIEST`, so a filter with an older date chooses the same.
    """
    return min(max(seconds, EARLIEST), LATEST)


def _of_datetime(given: datetime, what: str) -> float:
    if given.utcoffset() is None:
        msg = (
            f"{what}={given!r} has no time zone, so it may be off by hours: write datetime.now(timezone.utc), "
            "or .astimezone() where local time was meant"
        )
        raise ValueError(msg)
    try:
        return given.timestamp()
    except (OverflowError, ValueError, OSError) as error:
        msg = f"{what}={given!r} cannot be told in seconds since 1970: {error}"
        raise ValueError(msg) from error


def _as_float(number: float) -> float:
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def _refusal(given: object, what: str, least: Least, *, endless: bool, end: str) -> str:
    rules = " and ".join(filter(None, ("" if endless else "finite", _RULES[least])))
    return f"{what} is a number of seconds or a timedelta{rules and ', '}{rules}{end}, not {given!r:.60}"


# ---------------------------------------------------------------------- fields of dataclasses
_S = TypeVar("_S", float, float | None)


class _Field(Generic[_S]):
    """A field of a dataclass without slots that takes a duration and gives seconds.

    Args:
        default: Seconds.
        least: See `in_seconds`; default "above zero".
        endless: See `in_seconds`; default True.

    Raises:
        ValueError: on assignment of what is no such duration, naming class and field.
    """

    _may_be_none = False

    def __init__(self, default: _S, *, least: Least = "above zero", endless: bool = True) -> None:
        self._default: _S = default
        self._least: Least = least
        self._endless = endless
        self._name = self._what = ""

    def __set_name__(self, owner: type, name: str) -> None:
        self._name, self._what = name, f"{owner.__name__}.{name}"

    def __get__(self, instance: object | None, owner: type) -> _S:
        """Seconds; of the class its default, for which dataclasses ask there."""
        seconds: _S = self._default if instance is None else instance.__dict__[self._name]
        return seconds

    def __set__(self, instance: object, given: _S | timedelta) -> None:
        check = seconds_or_none if self._may_be_none else in_seconds
        try:
            seconds = check(given, self._what, least=self._least, endless=self._endless)
        except TypeError as error:
            raise ValueError(str(error)) from None
        instance.__dict__[self._name] = seconds


class Seconds(_Field[float]):
    """A duration; see `_Field`."""


class OptionalSeconds(_Field[float | None]):
    """A duration or None; see `_Field`."""

    _may_be_none = True
