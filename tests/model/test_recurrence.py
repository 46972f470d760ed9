"""Recurrence rules against the time zone data: each instant of two years, in all zones that have changed lately."""

from __future__ import annotations

import re
import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from functools import cache
from pathlib import Path

import pytest

from actorproc.model.ids import firing_id
from actorproc.model.rows.schedules import newest
from actorproc.support.instants import instant_of
from actorproc.support.recurrence import Calendar, advice, rule_of, spec_of

FROM, UNTIL = datetime(2025, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)
SIX_HOURS = 6 * 3600
RECENT = {
    # Half an hour; three quarters; midnight that is missing; a month without; a zone that gave it up; a day that is.
    "Australia/Lord_Howe": FROM,
    "Pacific/Chatham": FROM,
    "Africa/Cairo": FROM,
    "America/Santiago": FROM,
    "Asia/Beirut": FROM,
    "Africa/Casablanca": FROM,
    "America/Nuuk": datetime(2023, 1, 1, tzinfo=UTC),
    "America/Mexico_City": datetime(2022, 1, 1, tzinfo=UTC),
    "Asia/Amman": datetime(2022, 1, 1, tzinfo=UTC),
    "Asia/Tehran": datetime(2022, 1, 1, tzinfo=UTC),
    "Asia/Almaty": datetime(2024, 1, 1, tzinfo=UTC),
    "Pacific/Apia": datetime(2011, 6, 1, tzinfo=UTC),
    "America/Caracas": datetime(2016, 1, 1, tzinfo=UTC),
    "Asia/Pyongyang": datetime(2018, 1, 1, tzinfo=UTC),
}


@cache
def changes(zone: str, begin: datetime = FROM, years: int = 2) -> tuple[tuple[int, int, int], ...]:
    """Instants at which the offset of a zone changes, with the offsets before and after, to the minute."""
    info, found = zoneinfo.ZoneInfo(zone), []
    at, end = int(begin.timestamp()), int((begin + timedelta(days=366 * years)).timestamp())
    before = offset(at, info)
    while at < end:
        at += SIX_HOURS
        after = offset(at, info)
        if after != before:
            minute = next(t for t in range(at - SIX_HOURS + 60, at + 60, 60) if offset(t, info) == after)
            found.append((minute, before, after))
            before = after
    return tuple(found)


def offset(at: int, info: zoneinfo.ZoneInfo) -> int:
    found = datetime.fromtimestamp(at, info).utcoffset()
    assert found is not None
    return int(found.total_seconds())


def distinct_zones() -> Iterator[str]:
    """One name of each group of zones that change alike in these two years."""
    seen = set()
    for name in sorted(zoneinfo.available_timezones()):
        if "/" not in name or name.startswith(("posix", "right", "Etc")):
            continue
        behaviour = changes(name)
        if behaviour and behaviour not in seen:
            seen.add(behaviour)
            yield name


def fixed_by_walking(zone: str, minutes: set[int], begin: int, end: int) -> list[int]:
    """Instants of fixed times of each day, found by looking at every minute: first pass, or the end of a gap."""
    info, found = zoneinfo.ZoneInfo(zone), []
    before = offset(begin - 60, info)
    for at in range(begin, end, 60):
        now = offset(at, info)
        wall = datetime.fromtimestamp(at, info)
        missed = range(at + before, at + now, 60) if now > before else ()
        hits = {(moment % 86_400) // 60 for moment in missed} & minutes
        if hits or ((wall.hour * 60 + wall.minute) in minutes and not wall.fold):
            found.append(at)
        before = now
    return found


def open_by_walking(zone: str, every: int, begin: int, end: int) -> list[int]:
    """Instants at which the clocks show a multiple of so many minutes: in both passes, and never in a gap."""
    info = zoneinfo.ZoneInfo(zone)
    return [at for at in range(begin, end, 60) if datetime.fromtimestamp(at, info).minute % every == 0]


def instants(spec: str, zone: str, begin: int, end: int) -> list[int]:
    rule, at, found = rule_of(spec, zone), begin - 1, []
    while (following := rule.next(at)) is not None and following < end:
        assert following > at, "strictly rising"
        found.append(at := following)
    return found


def near_changes(zone: str, begin: datetime = FROM) -> list[tuple[int, int]]:
    return [(at - 3 * 3600 - 26 * 3600, at + 5 * 3600) for at, _, _ in changes(zone, begin)]


@pytest.mark.parametrize("zone", RECENT)
def test_fixed_and_open_times_near_each_change_of_zones_that_changed_lately(zone):
    assert near_changes(zone, RECENT[zone]), "it changes in these years"
    for begin, end in near_changes(zone, RECENT[zone]):
        fixed = {0, 30, 90, 120, 150, 180, 1430}
        spec = Calendar([f"{minute // 60:02}:{minute % 60:02}" for minute in fixed]).spec
        assert instants(spec, zone, begin, end) == fixed_by_walking(zone, fixed, begin, end)
        assert instants("cron 0,30 0-3 * * *", zone, begin, end) == fixed_by_walking(
            zone, {0, 30, 60, 90, 120, 150, 180, 210}, begin, end
        )
        assert instants("cron */15 * * * *", zone, begin, end) == open_by_walking(zone, 15, begin, end)


def test_a_daily_time_comes_once_a_day_in_every_zone_that_changes():
    zones = list(distinct_zones())
    assert len(zones) >= 25
    for zone in zones:
        for begin, end in near_changes(zone):
            for minute in (30, 90, 120, 150):
                spec = f"cron {minute % 60} {minute // 60} * * *"
                assert instants(spec, zone, begin, end) == fixed_by_walking(zone, {minute}, begin, end), (zone, minute)


@pytest.mark.parametrize("zone", ["America/New_York", "Australia/Lord_Howe", "Africa/Cairo", "Europe/Dublin"])
@pytest.mark.parametrize("spec", ["cron 30 1 * * *", "cron 0 0 * * *", "cron */20 * * * *", "cron 15 * * * *"])
def test_an_instant_is_later_than_any_base_near_a_change(zone, spec):
    rule = rule_of(spec, zone)
    for at, _, _ in changes(zone):
        for base in range(at - 7200, at + 7200, 300):
            following = rule.next(base)
            assert following is not None
            assert following > base
            between = rule.next(following - 1)
            assert between == following, "nothing lies between that a later base would find"


EDGES = [
    # zone, rule, base, what comes
    ("America/New_York", "cron 30 2 * * *", "2025-03-08T12:00", ["2025-03-09T07:00", "2025-03-10T06:30"]),
    ("America/New_York", "cron 30 1 * * *", "2025-11-02T06:10", ["2025-11-03T06:30"]),
    ("America/New_York", "cron 0,30 * * * *", "2025-11-02T05:10", ["2025-11-02T05:30", "2025-11-02T06:00"]),
    ("Africa/Cairo", "cron 0 0 * * *", "2025-04-24T10:00", ["2025-04-24T22:00", "2025-04-25T21:00"]),
    ("America/Santiago", "cron 0 0 * * *", "2025-09-06T12:00", ["2025-09-07T04:00", "2025-09-08T03:00"]),
    ("Australia/Lord_Howe", "cron 15 2 * * *", "2025-10-04T00:00", ["2025-10-04T15:30", "2025-10-05T15:15"]),
    ("Pacific/Apia", "cron 0 12 * * *", "2011-12-29T00:00", ["2011-12-29T22:00", "2011-12-30T10:00"]),
    ("UTC", "cron 0 0 29 2 *", "2025-01-01T00:00", ["2028-02-29T00:00", "2032-02-29T00:00"]),
    ("UTC", "cron 0 0 L * *", "2027-02-01T00:00", ["2027-02-28T00:00", "2027-03-31T00:00"]),
    ("UTC", "cron 0 0 1-31 * 5", "2027-01-01T00:00", ["2027-01-02T00:00", "2027-01-03T00:00"]),
    ("UTC", "cron-seconds */20 * * * * *", "2027-01-01T00:00", ["2027-01-01T00:00:20", "2027-01-01T00:00:40"]),
    ("UTC", "calendar 00:00:00 days=-1 months=2", "2027-01-01T00:00", ["2027-02-28T00:00", "2028-02-29T00:00"]),
    ("UTC", "calendar 06:00:00 weekdays=mon days=29 months=2", "2025-01-01T00:00", ["2044-02-29T06:00"]),
]


@pytest.mark.parametrize(("zone", "spec", "base", "expected"), EDGES)
def test_edges(zone, spec, base, expected):
    rule, at, found = rule_of(spec, zone), datetime.fromisoformat(base).replace(tzinfo=UTC).timestamp(), []
    for _ in expected:
        at = rule.next(at)
        found.append(datetime.fromtimestamp(at, UTC))
    assert found == [datetime.fromisoformat(text).replace(tzinfo=UTC) for text in expected]


def test_an_interval_is_elapsed_time_whatever_the_clocks_do():
    rule = rule_of("every 7200", "Europe/Berlin", anchor=100)
    assert [rule.next(at) for at in (99, 100, 7299.5, 7300, 1e9)] == [100, 7300, 7300, 14500, 1000000900]


def test_the_newest_are_found_without_the_others():
    assert newest(rule_of("every 1"), 0, 2e9, 3) == [1999999998, 1999999999, 2000000000]
    minutes = rule_of("cron * * * * *", "Europe/Berlin")
    found = newest(minutes, 1.7e9, 2e9, 1000)
    assert (len(found), found[-1]) == (1000, 1999999980)
    assert len(newest(minutes, 1.7e9, 1.7e9 + 300, 1000)) == 5
    assert newest(minutes, 1.7e9, 1.7e9, 5) == []


def test_the_id_of_a_firing_says_its_instant():
    at = datetime(2027, 3, 28, 1, 0, 5, tzinfo=UTC)
    assert firing_id("nightly", at.timestamp()) == "nightly@2027-03-28T01:00:05Z"
    for day in range(60_000):
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=day, seconds=day)
        assert firing_id("s", moment.timestamp()) == f"s@{moment:%Y-%m-%dT%H:%M:%SZ}"
    assert instant_of(firing_id("a@b", at.timestamp())) == at
    for other in ("nightly", "nightly@2027-03-28", "nightly@2027-13-28T01:00:05Z", ""):
        assert instant_of(other) is None


@pytest.mark.parametrize(
    ("day_fields", "says"),
    [("1 * *", None), ("* * 5", None), ("13 * 5", "or the weekday"), ("*/2 * 5", "both match")],
)
def test_day_fields_are_explained_where_both_are_given(day_fields, says):
    found = advice(spec_of(f"0 0 {day_fields}"))
    assert (found is None) if says is None else (says in found)


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"at": "25:00"}, ValueError),
        ({"at": ()}, ValueError),
        ({"weekdays": "noday"}, ValueError),
        ({"weekdays": "sunny"}, ValueError),
        ({"weekdays": "mon,tue"}, ValueError),
        ({"weekdays": [1]}, ValueError),
        ({"days": 0}, ValueError),
        ({"days": 32}, ValueError),
        ({"months": -1}, ValueError),
        ({"days": "first"}, TypeError),
        ({"days": [1, "2"]}, TypeError),
        ({"days": [1, None]}, TypeError),
        ({"days": 31, "months": [2, 4]}, ValueError),
        ({"days": -31, "months": 6}, ValueError),
        ({"months": None}, TypeError),
    ],
)
def test_a_calendar_that_cannot_be_is_refused(given, error):
    with pytest.raises(error, match="Calendar"):
        Calendar(**given)


@pytest.mark.parametrize(
    ("given", "spec"),
    [
        ({"at": time(2)}, "calendar 02:00:00"),
        ({"at": (f"0{hour}:00" for hour in (3, 1))}, "calendar 01:00:00,03:00:00"),
        ({"weekdays": ["Sunday", "MON"]}, "calendar 00:00:00 weekdays=mon,sun"),
        ({"days": iter([-1, 1, 1])}, "calendar 00:00:00 days=-1,1"),
    ],
)
def test_a_calendar_takes_one_value_or_several_of_each_kind(given, spec):
    assert Calendar(**given).spec == spec


PAGE = Path(__file__).parents[2] / "docs" / "reference" / "managers" / "schedules.md"
ROWS = re.findall(r"^\| `(\w+/\w+)` \| `([^`]+)` \| (\S+) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize(("zone", "rule", "day", "comes"), ROWS)
def test_the_table_of_the_page_is_what_comes(zone, rule, day, comes):
    expected = [datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() for text in comes.split(", ")]
    around = datetime.fromisoformat(day).replace(tzinfo=zoneinfo.ZoneInfo(zone)).timestamp()
    found = instants(f"cron {rule}", zone, int(expected[0]), int(expected[-1]) + 60)
    assert found == expected
    assert abs(expected[0] - around) < 86_400


def test_the_page_has_such_a_table():
    assert len(ROWS) >= 6
