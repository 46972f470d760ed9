"""Durations and moments: what is taken and what is refused is the same wherever one is asked for."""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from types import SimpleNamespace

import pytest

from actorproc import (
    Config,
    InvalidStatus,
    Limits,
    Procedure,
    ProcedureClient,
    ProcedureExecutor,
    RetryLater,
    RetryPolicy,
    Status,
    StoreReader,
    UsageError,
)
from actorproc.embedding import EngineActor
from actorproc.support.durations import in_seconds, moment
from actorproc.testing.crashes.survival import survives_crashes
from actorproc.testing.inline import InlineManager, VirtualClock

SPAN = timedelta(minutes=1, milliseconds=500)
CONFIGURED = (
    "stop_timeout", "boot_timeout", "restart_period", "parked_for", "recycle_age", "commit_backoff",
    "commit_backoff_cap", "retain_for", "retain_failed_for", "retain_acknowledged", "sweep_interval",
    "priority_ageing", "stuck_after", "extra_worker_idle",
)  # fmt: skip
KEPT = {
    **{f"Config.{name}": lambda given, name=name: getattr(Config(**{name: given}), name) for name in CONFIGURED},
    "Config.rate": lambda given: Config(rate={"a": (1, given)})._scheduling(1, 1).rate["a"][1],
    **{
        f"Limits.{name}": lambda given, name=name: getattr(Limits(**{name: given}).of_step, name)
        for name in ("wall_time", "cpu_time", "grace")
    },
    **{
        f"RetryPolicy.{name}": lambda given, name=name: getattr(RetryPolicy(**{name: given}).backoff, name)
        for name in ("base", "cap", "max_elapsed")
    },
    "RetryLater.after": lambda given: RetryLater(after=given).after,
    "Status.sleep": lambda given: Status.sleep(given).seconds,
    "Status.executing": lambda given: Status.executing(after=given).after,
    "Status.wait": lambda given: Status.wait("event", timeout=given).timeout,
}


def _advanced(given):
    clock = VirtualClock()
    clock.advance(given)
    return clock._ahead


KEPT["VirtualClock.advance"] = _advanced


@dataclass
class Part(Procedure):
    def execute(self, ctx):
        return Status.done("done")


@pytest.fixture
def manager():
    with InlineManager([Part]) as manager:
        yield manager


@pytest.mark.parametrize("take", KEPT.values(), ids=KEPT)
def test_a_duration_is_seconds_or_a_timedelta_and_kept_as_a_plain_float(take):
    class Number(float):
        pass

    assert take(SPAN) == take(60.5) == take(Number(60.5)) == 60.5
    assert take(60) == 60.0
    assert type(take(SPAN)) is type(take(60)) is type(take(Number(60.5))) is float


@pytest.mark.parametrize("take", KEPT.values(), ids=KEPT)
@pytest.mark.parametrize("wrong", ["5", "5m", True, [5], math.nan, -1, timedelta(seconds=-1), date(2026, 1, 1)])
def test_what_is_no_duration_is_refused(take, wrong):
    with pytest.raises((TypeError, ValueError, UsageError), match=r"seconds|duration") as caught:
        take(wrong)
    assert repr(wrong) in str(caught.value)


@pytest.mark.parametrize("huge", [10**400, -(10**400)])
def test_a_number_beyond_any_float_is_refused_in_words(huge):
    with pytest.raises(ValueError, match="delay is a number of seconds"):
        in_seconds(huge, "delay")
    with pytest.raises(InvalidStatus):
        Status.sleep(huge)
    with pytest.raises(ValueError, match="deadline"):
        moment(huge, "deadline")


def test_where_callers_wait_a_timedelta_is_a_time_limit(manager, tmp_path):
    short, soon = timedelta(milliseconds=10), timedelta(seconds=30)
    sleeper = manager.submit(Part(), delay=timedelta(days=1))
    watch = manager.watch(sleeper.id)
    watch.next(soon)

    for wait in (sleeper.result, sleeper.exception, watch.next):
        with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
            wait(timeout=short)
    assert sleeper.wait(short) is False
    with pytest.raises(TimeoutError, match=r"within 0\.01 s"):
        manager.run(Part(), delay=60, timeout=short)
    assert manager.run(Part(), timeout=soon) == "done"
    assert manager.finish(manager.submit(Part()), timeout=soon).result(soon) == "done"
    assert survives_crashes(Part(), timeout=soon).differences == []
    manager.stop(timeout=soon)
    ProcedureClient(tmp_path / "none", patience=short).close()
    assert EngineActor(tmp_path / "none", stop_timeout=soon)._stop_timeout == 30.0


def test_the_futures_of_an_executor_take_a_timedelta(tmp_path):
    soon = timedelta(seconds=60)
    with ProcedureExecutor(tmp_path / "store", max_workers=1) as pool:
        future = pool.submit(abs, -3)
        assert future.durable(soon).result(soon) == 3
        assert future.exception(soon) is None
        assert list(pool.map(abs, [-1, -2], timeout=soon)) == [1, 2]
        assert pool.submit(time.sleep, 60).cancel() in (True, False)
        slow = pool.submit(time.sleep, 0.5)
        with pytest.raises(TimeoutError):
            slow.result(timedelta(0))


# ---------------------------------------------------------------------- moments
NOW = time.time()
ASKED = {
    "deadline": lambda manager, given: manager.submit(Part(), deadline=given),
    "deadline of many": lambda manager, given: manager.submit_many([Part()], deadline=given),
    "deadline of run": lambda manager, given: manager.run(Part(), deadline=given),
    **{
        name: lambda manager, given, name=name: manager.list(**{name: given})
        for name in ("created_since", "created_until", "updated_since", "updated_until")
    },
    "finished_roots": lambda manager, given: StoreReader.finished_roots(_Closed(), given),
}


class _Closed:
    """Has no store: what is refused is refused before anything is read."""

    _lock = contextlib.nullcontext()
    _store = SimpleNamespace(finished=lambda before: [])


WRONG = [
    (30, "a duration is no moment"),
    (0, "a duration is no moment"),
    (-5, "a duration is no moment"),
    (999_999_999.9, "a duration is no moment"),
    (math.nan, "no moment"),
    (1_790_000_000_000, "not milliseconds"),
    (math.inf, "beyond the year 9999"),
    (datetime(2026, 11, 21, 12), "has no time zone"),  # noqa: DTZ001
    (datetime.now(), "has no time zone"),  # noqa: DTZ005
    ("2026-11-21", "a datetime with a time zone"),
    (date(2026, 11, 21), "a datetime with a time zone"),
    (True, "a datetime with a time zone"),
]


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize(("wrong", "said"), WRONG, ids=map(str, range(len(WRONG))))
def test_what_is_no_moment_is_refused_wherever_one_is_asked_for(manager, ask, wrong, said):
    with pytest.raises((TypeError, ValueError), match=said):
        ask(manager, wrong)


@pytest.mark.parametrize("ask", ASKED.values(), ids=ASKED)
@pytest.mark.parametrize(
    "right",
    [
        NOW + 3600,
        int(NOW) + 3600,
        datetime.now(UTC) + timedelta(1),
        datetime.now(timezone(timedelta(hours=9))) + timedelta(1),
    ],
    ids=["float", "int", "UTC", "another zone"],
)
def test_a_moment_is_a_number_since_1970_or_a_datetime_with_a_zone(manager, ask, right):
    ask(manager, right)


def test_a_number_that_was_meant_as_a_duration_is_told_how_to_say_so(manager):
    with pytest.raises(ValueError, match=r"give timedelta\(seconds=30\)"):
        manager.submit(Part(), deadline=30)

    due = manager.submit(Part(), delay=9, deadline=timedelta(seconds=30)).info().deadline
    assert due - manager.clock.wall() == pytest.approx(30, abs=10)
