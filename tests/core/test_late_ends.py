"""Steps that end after their tree has begun to fail, and what a retry of them sees."""

from __future__ import annotations

from itertools import pairwise

from actorproc.model.ids import Mode, WorkerId
from actorproc.model.messages.events import (
    AbortRequested,
    CrashReport,
    Published,
    RetryRequested,
    Signalled,
    Tick,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Advanced, Finished, Poisoned, StepRequests, Suspended, Waited
from actorproc.model.rows.records import ErrorInfo, NewProcedure
from actorproc.model.rows.writes import PutProcedure
from actorproc.model.states import ProcedureState
from tests.core.harness import CoreHarness, boom, difference, image_of, later

DONE = Finished(state=b"")
SUCCESS = ProcedureState.SUCCESS


def _find_late(harness: CoreHarness, *children: NewProcedure) -> None:
    """`p` suspends on these, its worker leaves, and the next one comes at 11.0, before the clock tells of a deadline."""
    harness.submit(harness.new("p"))
    harness.handle(WorkerReady(WorkerId(0, 1)))
    harness.answer("p", Suspended(state=b"", children=children))
    harness.handle(WorkerLost(WorkerId(0, 1), CrashReport(kind="stopped", message="stopped"), crashed=False))
    harness.inbox.clear()
    harness.now = 11.0
    harness.handle(WorkerReady(WorkerId(0, 2)))


def test_who_ended_with_its_tree_when_two_of_it_were_late_does_not_fail_once_more() -> None:
    harness = CoreHarness(0)
    _find_late(harness, harness.new("a", deadline=10.0), harness.new("b", deadline=10.0))

    assert set(harness.resolved()) == {"p", "a", "b"}
    harness.handle(RetryRequested("p", 2))
    assert difference(harness) is None
    harness.answer("a", DONE)
    harness.answer("b", DONE)
    harness.answer("p", DONE)
    assert harness.resolved() == dict.fromkeys(("p", "a", "b"), SUCCESS)


def test_a_last_step_that_ended_too_late_to_count_sees_in_a_retry_what_it_saw() -> None:
    harness = CoreHarness(4)
    harness.submit(harness.new("r"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("p"), harness.new("w"), harness.new("z"))))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c"),)))
    harness.answer("w", Waited(state=b"", event="go"))
    harness.answer("c", DONE)
    harness.handle(Signalled("w", b"what it waited for", 2))
    before = harness.inbox["p"].token, harness.inbox["w"].token

    harness.answer("z", boom())
    harness.answer("p", DONE)
    harness.answer("w", DONE)
    harness.handle(RetryRequested("r", 3))

    p, w = harness.inbox["p"], harness.inbox["w"]
    assert (p.token.step, p.children_step, p.replayed) == (2, 1, True)
    assert (w.token.step, w.event, w.replayed) == (2, b"what it waited for", True)
    assert (p.token, w.token) != before  # an answer of the run before that comes twice is none of this run
    assert difference(harness) is None


def test_a_last_step_that_ended_too_late_to_count_is_found_in_a_retry_by_the_state_that_it_runs_from() -> None:
    harness = CoreHarness(3)
    harness.submit(harness.new("r"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("p", searchable=("at=1",)), harness.new("z"))))
    harness.answer("z", boom())
    harness.answer("p", Finished(state=b"2", requests=StepRequests(searchable=("at=2",))))
    harness.handle(RetryRequested("r", 3))

    assert harness.inbox["p"].token.step == 1
    puts = [write for write in harness.writes if isinstance(write, PutProcedure) and write.record.id == "p"]
    texts = [write.record.searchable for write in puts]
    assert ("at=2",) in texts
    assert texts[-1] == ("at=1",)
    for before, after in pairwise(puts):
        assert after.was is not None
        assert after.was.searchable == before.record.searchable
    assert difference(harness) is None


def test_an_on_timeout_that_ended_too_late_to_count_is_no_step_that_got_its_signal_after_a_retry() -> None:
    harness = CoreHarness(3)
    harness.register("Late", has_on_timeout=True)
    harness.submit(harness.new("r"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("w", "Late"), harness.new("z"))))
    harness.answer("w", Waited(state=b"", event="go", timeout=5.0))
    harness.now = 5.0
    harness.handle(Tick())
    assert harness.inbox["w"].token.mode is Mode.ON_TIMEOUT

    harness.answer("z", boom())
    harness.answer("w", DONE)
    harness.handle(RetryRequested("r", 2))
    assert "w" not in harness.inbox
    harness.handle(Published("go", b"now", 3))

    assert (harness.inbox["w"].token.step, harness.inbox["w"].event) == (2, b"now")
    assert difference(harness) is None


def test_a_last_step_that_ended_too_late_to_count_has_its_keys_poisoned_again_in_a_retry() -> None:
    harness = CoreHarness(3)
    harness.submit(harness.new("r"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("p"), harness.new("z"))))
    harness.answer("p", Advanced(state=b"", poisons=("k",)))
    harness.answer("z", boom())
    harness.answer("p", Finished(state=b"", poisons=()))
    assert image_of(harness).poisons == {}

    harness.handle(RetryRequested("r", 2))
    assert set(image_of(harness).poisons) == {"k"}
    assert difference(harness) is None

    harness.answer("p", Finished(state=b"", poisons=()))
    assert image_of(harness).poisons == {}


def test_a_poisoned_step_sees_in_a_retry_what_it_saw() -> None:
    half_done = Poisoned(state=b"", keys=("k",), error=ErrorInfo("poisoned", "Poisoned", "half done"))
    harness = CoreHarness(2)
    harness.submit(harness.new("r"), harness.new("w"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("c"),)))
    harness.answer("c", DONE)
    harness.answer("r", half_done)
    harness.answer("w", Waited(state=b"", event="go"))
    harness.handle(Published("go", b"what it waited for", 2))
    harness.answer("w", half_done)

    harness.handle(RetryRequested("r", 3))
    harness.handle(RetryRequested("w", 4))

    assert harness.inbox["r"].children_step == 1
    assert harness.inbox["w"].event == b"what it waited for"
    assert difference(harness) is None


def test_an_undo_that_a_wider_failure_takes_over_knows_that_it_was_begun_before() -> None:
    harness = CoreHarness(2, rollback_supported=True)
    harness.register("R", rollback_supported=True, on_child_failure="resume")
    harness.submit(harness.new("r", "R", unit=""))
    harness.answer("r", Suspended(state=b"", unit="", children=(harness.new("c", unit=""), harness.new("d", unit=""))))
    harness.answer("c", boom())
    before = harness.inbox["c"].token
    assert (before.mode, before.attempt) == (Mode.ROLLBACK, 1)
    harness.answer("c", later())

    harness.handle(AbortRequested("r", 2))
    harness.answer("d", DONE)
    assert harness.inbox["d"].token.attempt == 1
    harness.answer("d", DONE)

    again = harness.inbox["c"]
    assert (again.token.mode, again.token.attempt, again.replayed) == (Mode.ROLLBACK, 2, True)
    assert difference(harness) is None
    assert harness.undo_all() == ["c:", "r:"]


def test_whose_turn_comes_late_goes_on_when_a_relative_passes_the_point_of_no_return_in_the_same_moment() -> None:
    harness = CoreHarness(0)
    _find_late(harness, harness.new("late", deadline=10.0), harness.new("b", no_return=True))

    assert set(harness.inbox) == {"b"}
    assert difference(harness) is None
    harness.answer("b", DONE)
    harness.answer("late", DONE)
    harness.answer("p", DONE)
    assert harness.resolved() == dict.fromkeys(("p", "late", "b"), SUCCESS)
