"""Moments at which a procedure starts or goes on: `submit(at=…)` and `Status.sleep_until`."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, timezone

import pytest

from actorproc import Phase, Procedure, Status
from actorproc.model.messages.outcomes import Slept
from actorproc.testing import InlineManager
from tests.core.harness import CoreHarness
from tests.kit.waiting import wait_until


@dataclass
class Until(Procedure):
    at: float
    slept: bool = False

    def execute(self, ctx):
        if self.slept:
            return Status.done(ctx.step)
        self.slept = True
        return Status.sleep_until(datetime.fromtimestamp(self.at, timezone(timedelta(hours=5, minutes=45))))


@dataclass
class Once(Procedure):
    def execute(self, ctx):
        return Status.done("ran")


@pytest.mark.parametrize("ahead", [timedelta(days=3), timedelta(0), timedelta(days=-3)])
def test_a_step_sleeps_until_a_moment_and_no_longer_than_that(ahead) -> None:
    with InlineManager() as manager:
        at = manager.clock.wall() + ahead.total_seconds()
        handle = manager.submit(Until(at))
        if ahead > timedelta(0):
            wait_until(lambda: manager.info(handle.id).phase is Phase.SLEEPING)
            assert manager.info(handle.id).due_at == pytest.approx(at, abs=1e-3)
            manager.clock.advance(ahead)
        assert handle.result(timeout=60) == 2


def test_a_submit_may_name_the_moment_of_its_start() -> None:
    with InlineManager() as manager:
        at = datetime.fromtimestamp(manager.clock.wall(), UTC) + timedelta(days=40)
        handles = [manager.submit(Once(), at=at), *manager.submit_many([Once()], at=at.timestamp())]
        assert {manager.info(handle.id).due_at for handle in handles} == {at.timestamp()}
        manager.clock.advance(timedelta(days=41))
        assert [handle.result(timeout=60) for handle in handles] == ["ran", "ran"]
        assert manager.run(Once(), at=at, timeout=60) == "ran", "one that has passed is no obstacle"


@pytest.mark.parametrize(
    ("options", "error", "says"),
    [
        ({"at": datetime(2027, 3, 1)}, ValueError, "no time zone"),  # noqa: DTZ001 - that it has none is the point
        ({"at": 60}, ValueError, "delay=60"),
        ({"at": "2027-03-01"}, TypeError, "at is a datetime"),
        ({"at": datetime(2027, 3, 1, tzinfo=UTC), "delay": 5}, ValueError, "give one of them"),
    ],
)
def test_a_moment_that_makes_no_sense_is_refused(options, error, says) -> None:
    with InlineManager() as manager, pytest.raises(error, match=says):
        manager.submit(Once(), **options)


def test_the_moment_counts_by_the_clock_of_the_manager() -> None:
    harness = CoreHarness(workers=1)
    harness.submit(harness.new("a"))
    harness.now = 100.0
    harness.answer("a", Slept(state=b"", seconds=0.0, until=160.0))
    assert harness.core.next_deadline() == 160.0
