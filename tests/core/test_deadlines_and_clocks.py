"""Deadlines, time limits and clocks that were set back."""

from __future__ import annotations

from actorproc.core.queues.timers import SLICE, TimerQueue
from actorproc.model.messages.events import (
    Published,
    Signalled,
    Tick,
)
from actorproc.model.messages.outcomes import (
    Finished,
    Suspended,
    Waited,
)
from actorproc.model.states import ProcedureState
from tests.core.harness import CoreHarness, heads_of, image_of, restarted

DONE = Finished(state=b"")


def test_a_deadline_kills_the_running_child_also_when_its_suspended_parent_is_looked_at_first() -> None:
    harness = CoreHarness(workers=2)
    harness.submit(harness.new("a", deadline=10.0))
    harness.answer("a", Suspended(state=b"", children=(harness.new("b"), harness.new("c"))))

    harness.now = 11.0
    harness.handle(Tick())

    assert {kill.token.procedure for kill in harness.kills()} == {"b", "c"}


def test_a_step_killed_for_the_deadline_of_its_tree_is_charged_to_nobody() -> None:
    harness = CoreHarness(workers=1)
    harness.submit(harness.new("a", deadline=10.0))
    harness.answer("a", Suspended(state=b"", children=(harness.new("b"),)))
    harness.now = 11.0
    harness.handle(Tick())

    harness.kill(0)

    assert heads_of(harness)["b"].crashes == 0
    assert harness.state("a") == harness.state("b") == ProcedureState.FAILED, "neither has a rollback"


def _settle(harness: CoreHarness) -> None:
    harness.core.settle(harness.core.seal())


def test_deadlines_of_finished_procedures_are_forgotten() -> None:
    harness = CoreHarness()
    for n in range(1000):
        harness.submit(harness.new(f"p{n}", deadline=1e9 + n))
        harness.answer(f"p{n}", DONE)
        _settle(harness)

    timers = harness.core._state.timers
    assert len(timers.entries()) == 0
    assert len(timers._heap) < 200
    assert harness.core.next_deadline() is None


def test_time_limits_of_waits_that_ended_in_time_are_forgotten() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    for n in range(1000):
        harness.answer("p", Waited(state=b"", event="go", timeout=1e6 + n))
        harness.handle(Signalled("p", b"", reply=n))

    assert len(harness.core._state.timers._heap) < 200


def test_a_deadline_stays_when_a_wait_ends_that_was_due_at_the_same_time() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p", deadline=100.0))
    harness.answer("p", Waited(state=b"", event="go", timeout=100.0))
    harness.handle(Signalled("p", b"", reply=1))
    harness.answer("p", Waited(state=b"", event="again"))

    harness.now = 100.0
    harness.handle(Tick())

    assert harness.state("p") == ProcedureState.FAILED
    assert heads_of(harness)["p"].error.kind == "deadline"


def test_a_signal_takes_nobodys_number_when_the_clock_was_set_back_before_a_restart() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p"))
    for number, at in enumerate((100.0, 50.0)):
        harness.now = at
        harness.answer("p", Waited(state=b"", event="go"))
        harness.handle(Published("go", b"", 2, dedup=f"id-{number}"))

    again = restarted(harness, after=1.0)
    again.handle(Published("go", b"", 3, dedup="id-2"))

    harness.writes += again.writes
    assert image_of(harness).events.keys() == {("event go", 1), ("event go", 2), ("event go", 3)}


def test_what_is_due_next_is_what_goes_off_next_also_when_a_time_was_noted_again() -> None:
    timers = TimerQueue()
    for at, name in ((1.0, "first"), (2.0, "again")):
        timers.add(at, name)
    timers.discard(2.0, "again")
    timers.add(2.0, "again")
    for number in range(SLICE):
        timers.add(3.0, f"other-{number}")

    assert timers.due(4.0) == timers.pop_due(4.0)


def test_a_deadline_that_passed_before_the_clock_was_set_back_is_not_forgotten() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p", deadline=10.0))
    harness.now = 11.0
    harness.handle(Tick())
    assert harness.kills()

    # When its answer comes before the kill, and it waits now.
    harness.now = 5.0
    harness.answer("p", Waited(state=b"", event="never"))

    assert harness.core.next_deadline() == 10.0
    harness.now = 10.0
    harness.handle(Tick())
    assert harness.resolved()["p"] is ProcedureState.FAILED
