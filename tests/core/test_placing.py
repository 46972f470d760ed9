"""A saga that today's code places before another step: nothing ran, and the engine hears what comes next."""

from __future__ import annotations

import pytest

from actorproc.model.messages.events import AbortRequested, Signalled, StepEnded, Tick
from actorproc.model.messages.outcomes import Advanced, Finished, Refused, Suspended, Waited
from actorproc.model.states import ProcedureState
from tests.core.harness import CoreHarness, boom, difference, later


def placed(unit: str | None) -> Advanced:
    return Advanced(state=b"placed", unit=unit, placed=True)


def test_the_undo_of_a_step_that_was_never_begun_goes() -> None:
    harness = CoreHarness(rollback_supported=True)
    harness.submit(harness.new("p", unit="pay"))
    harness.answer("p", Advanced(state=b"1", unit="ship"))

    harness.answer("p", placed("check"))
    assert difference(harness) is None
    harness.answer("p", boom())

    assert harness.undo_all() == ["p:check", "p:pay"]
    assert harness.state("p") is ProcedureState.ROLLEDBACK


def test_the_undo_of_a_step_that_may_have_half_run_stays() -> None:
    harness = CoreHarness(rollback_supported=True)
    harness.submit(harness.new("p", unit="ship"))
    harness.answer("p", later(after=1.0))
    harness.now = 2.0
    harness.handle(Tick())

    harness.answer("p", placed("check"))
    harness.answer("p", boom())

    assert harness.undo_all() == ["p:check", "p:ship"]
    assert difference(harness) is None


def test_the_step_that_comes_next_sees_the_event_and_the_children() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    harness.answer("p", Waited(state=b"1", event="stock"))
    harness.handle(Signalled("p", b"here", 2))
    harness.answer("p", placed(None))

    assert harness.inbox["p"].event == b"here"
    assert difference(harness) is None

    harness.answer("p", Suspended(state=b"2", children=(harness.new("c"),)))
    harness.answer("c", Finished(state=b""))
    before = harness.inbox["p"].children_step
    harness.answer("p", placed(None))

    assert harness.inbox["p"].children_step == before != 0
    assert difference(harness) is None


def test_a_tree_that_failed_meanwhile_is_undone() -> None:
    harness = CoreHarness(rollback_supported=True)
    harness.submit(harness.new("p", unit="pay"))
    harness.answer("p", Advanced(state=b"1", unit="ship"))
    harness.handle(AbortRequested("p", reply=2, force=False))

    harness.answer("p", placed("check"))

    assert harness.undo_all() == ["p:pay"]
    assert harness.state("p") is ProcedureState.ROLLEDBACK
    assert difference(harness) is None


@pytest.mark.parametrize("is_passing", [False, True])
def test_an_attempt_that_was_refused_for_the_position_needs_no_undo_and_its_answer_counts_once(
    is_passing: bool,
) -> None:
    harness = CoreHarness(rollback_supported=True)
    harness.submit(harness.new("p", unit="pay"))
    harness.answer("p", Advanced(state=b"1", unit="ship"))
    token = harness.inbox["p"].token
    refused = Refused(reason="no place", is_unbegun=True, is_passing=is_passing)
    harness.answer("p", refused)
    record = harness.core.view("p")
    assert record is not None
    assert record.parked == (None if is_passing else "no place")
    assert difference(harness) is None

    harness.now = 1.0
    harness.handle(Tick()) if is_passing else harness.register("T", rollback_supported=True)
    assert (record.parked, harness.inbox["p"].token.step) == (None, token.step)
    harness.handle(StepEnded(token, refused))
    assert (record.parked, harness.core._state.counters.stale_results) == (None, 1)

    harness.answer("p", placed("check"))
    assert difference(harness) is None
    harness.answer("p", boom())
    assert harness.undo_all() == ["p:check", "p:pay"]
    assert difference(harness) is None
