"""Limits and retries of single steps, in the core: which hold for the step that is handed out."""

from __future__ import annotations

import pytest

from actorproc.core.scheduler.pick import why_queued
from actorproc.model.ids import WorkerId
from actorproc.model.messages.commands import RunStep
from actorproc.model.messages.events import CrashReport, Tick, WorkerLost, WorkerReady
from actorproc.model.messages.outcomes import Advanced
from actorproc.model.policies import Backoff, StepLimits, StepPolicy
from actorproc.model.states import ProcedureState

from .harness import CoreHarness, boom, later, restarted

CLASS = {"wall_time": 60.0, "crashes": 3, "retry": Backoff(max_attempts=3, base=1.0)}
PAY = StepPolicy(limits=StepLimits(wall_time=5.0, crashes=1, memory=100), retry=Backoff(max_attempts=1))
SEND = StepPolicy(
    limits=StepLimits(wall_time=7.0, crashes=3, on=("gpu",)),
    retry=Backoff(max_attempts=9, base=30.0, jitter=0),
    retries_overtime=True,
)
STEPS = {"pay": PAY, "send": SEND}
OVERTIME = CrashReport(kind="timeout", message="it ran for too long")
SEGFAULT = CrashReport(kind="signal", message="killed by signal 11", signal="SIGSEGV")


def harness_of(**traits: object) -> CoreHarness:
    return CoreHarness(**{**CLASS, "steps": STEPS, **traits})


def go_to(harness: CoreHarness, name: str | None, unit: str | None = None) -> None:
    harness.answer("p", Advanced(state=b"1", step_name=name, unit=unit))


def test_each_step_has_its_own_wall_time_and_the_others_that_of_the_class():
    harness = harness_of(steps={"pay": PAY, "send": StepPolicy(limits=StepLimits(wall_time=7.0), retry=Backoff())})
    harness.submit(harness.new("p", step_name="reserve"))
    times = [harness.inbox["p"].wall_time]
    for name in ("pay", "pay", "close", "send", "send", None):
        go_to(harness, name)
        times.append(harness.inbox["p"].wall_time)

    assert times == [60.0, 5.0, 5.0, 60.0, 7.0, 7.0, 60.0]


def test_what_the_worker_must_set_goes_with_the_step_alone():
    harness = harness_of()
    harness.submit(harness.new("p", step_name="pay"))
    assert harness.inbox["p"].limits.memory == 100
    go_to(harness, "close")
    assert harness.inbox["p"].limits is None


def test_the_undo_of_a_step_has_the_limits_of_the_step():
    harness = harness_of(rollback_supported=True)
    harness.submit(harness.new("p", step_name="pay", unit="pay"))
    go_to(harness, "close", "close")
    harness.answer("p", boom())
    assert (harness.inbox["p"].unit, harness.inbox["p"].wall_time) == ("close", 60.0)
    harness.answer("p", Advanced(state=b"2"))
    harness.undo_all()
    undone = [command for command in harness.commands if isinstance(command, RunStep) and command.unit == "pay"]
    assert undone[-1].wall_time == 5.0


@pytest.mark.parametrize("name, tries", [("pay", 1), ("close", 3), ("send", 9)])  # noqa: PT006
def test_a_step_is_tried_as_often_as_it_says(name, tries):
    harness = harness_of(steps={"pay": PAY, "send": StepPolicy(limits=StepLimits(), retry=SEND.retry)})
    harness.submit(harness.new("p", step_name=name))
    begun = 0
    while "p" in harness.inbox:
        begun += 1
        harness.answer("p", later())
        harness.now += 10_000.0
        harness.handle(Tick())
    assert begun == tries
    assert harness.state("p") is ProcedureState.FAILED


@pytest.mark.parametrize("name, is_over", [("pay", True), ("close", False)])  # noqa: PT006
def test_a_step_may_crash_as_often_as_it_says(name, is_over):
    harness = harness_of()
    harness.submit(harness.new("p", step_name=name))
    harness.handle(WorkerLost(WorkerId(0, 1), SEGFAULT))
    assert (harness.state("p") is ProcedureState.FAILED) is is_over


@pytest.mark.parametrize("name, is_over", [("send", False), ("close", True)])  # noqa: PT006
def test_a_step_says_whether_it_is_tried_again_after_its_time(name, is_over):
    harness = harness_of(steps={"send": StepPolicy(limits=StepLimits(), retry=Backoff(), retries_overtime=True)})
    harness.submit(harness.new("p", step_name=name))
    harness.handle(WorkerLost(WorkerId(0, 1), OVERTIME, crashed=True))
    assert (harness.state("p") is ProcedureState.FAILED) is is_over


def test_a_step_waits_for_a_host_that_only_it_asks_for_and_the_next_one_does_not():
    harness = harness_of()
    harness.submit(harness.new("p", step_name="close"))
    go_to(harness, "send")
    assert "p" not in harness.inbox
    record = harness.core.view("p")
    assert record is not None
    assert "gpu" in (why_queued(harness.core._state, record) or "")


@pytest.mark.parametrize(
    "given, expected",  # noqa: PT006
    [
        (StepLimits(), {"pay": (60.0, 0), "close": (60.0, 0)}),
        (StepLimits(wall_time=1.0, given=("wall_time",)), {"pay": (1.0, 100), "close": (1.0, 0)}),
        (StepLimits(given=("wall_time",)), {"pay": (None, 100), "close": (None, 0)}),
        (StepLimits(memory=7, given=("memory",)), {"pay": (5.0, 7), "close": (60.0, 7)}),
        (StepLimits(given=()), {"pay": (5.0, 100), "close": (60.0, 0)}),
    ],
    ids=["all, of an older submit", "time", "no time", "memory", "none"],
)
def test_fields_of_the_submit_go_before_those_of_the_step_and_the_class(given, expected):
    if given.given is None:
        expected = dict.fromkeys(expected, (None, 0))
    harness = harness_of()
    harness.submit(harness.new("p", step_name="pay", limits=given))
    found = {}
    for name in ("pay", "close"):
        run = harness.inbox["p"]
        found[name] = (run.wall_time, 0 if run.limits is None else run.limits.memory)
        go_to(harness, "close")
    assert found == expected

    again = restarted(harness)
    assert again.core.view("p").limits == given


def test_limits_of_the_submit_hold_before_the_class_is_known():
    harness = harness_of()
    harness.submit(harness.new("p", "T", step_name="pay", limits=StepLimits(wall_time=1.0, given=("wall_time",))))
    again = restarted(harness)
    again.handle(WorkerReady(WorkerId(0, 2)))
    assert "p" not in again.inbox
    again.register("T", **CLASS, steps=STEPS)
    assert (again.inbox["p"].wall_time, again.inbox["p"].limits.memory) == (1.0, 100)
