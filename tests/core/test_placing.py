"""A saga that today's code places before another step: nothing ran, and the engine hears what comes next."""

from __future__ import annotations

import pytest

from actorproc.model.messages.events import AbortRequested, Signalled, StepEnded, Tick
from actorproc.model.messages.outcomes import Advanced, Finished, Refused, Suspended, Waited
from actorproc.model.states import ProcedureState
from tests.core.stage import Stage, boom, difference, later


def placed(unit: str | None) -> Advanced:
    return Advanced(state=b"placed", unit=unit, placed=True)


def test_the_undo_of_a_step_that_was_never_begun_goes() -> None:
    stage = Stage(rollback_supported=True)
    stage.submit(stage.new("p", unit="pay"))
    stage.answer("p", Advanced(state=b"1", unit="ship"))

    stage.answer("p", placed("check"))
    assert difference(stage) is None
    stage.answer("p", boom())

    assert stage.undo_all() == ["p:check", "p:pay"]
    assert stage.state("p") is ProcedureState.ROLLEDBACK


def test_the_undo_of_a_step_that_may_have_half_run_stays() -> None:
    stage = Stage(rollback_supported=True)
    stage.submit(stage.new("p", unit="ship"))
    stage.answer("p", later(after=1.0))
    stage.now = 2.0
    stage.handle(Tick())

    stage.answer("p", placed("check"))
    stage.answer("p", boom())

    assert stage.undo_all() == ["p:check", "p:ship"]
    assert difference(stage) is None


def test_the_step_that_comes_next_sees_the_event_and_the_children() -> None:
    stage = Stage()
    stage.submit(stage.new("p"))
    stage.answer("p", Waited(state=b"1", event="stock"))
    stage.handle(Signalled("p", b"here", 2))
    stage.answer("p", placed(None))

    assert stage.inbox["p"].event == b"here"
    assert difference(stage) is None

    stage.answer("p", Suspended(state=b"2", children=(stage.new("c"),)))
    stage.answer("c", Finished(state=b""))
    before = stage.inbox["p"].children_step
    stage.answer("p", placed(None))

    assert stage.inbox["p"].children_step == before != 0
    assert difference(stage) is None


def test_a_tree_that_failed_meanwhile_is_undone() -> None:
    stage = Stage(rollback_supported=True)
    stage.submit(stage.new("p", unit="pay"))
    stage.answer("p", Advanced(state=b"1", unit="ship"))
    stage.handle(AbortRequested("p", reply=2, force=False))

    stage.answer("p", placed("check"))

    assert stage.undo_all() == ["p:pay"]
    assert stage.state("p") is ProcedureState.ROLLEDBACK
    assert difference(stage) is None


@pytest.mark.parametrize("is_passing", [False, True])
def test_an_attempt_that_was_refused_for_the_position_needs_no_undo_and_its_answer_counts_once(
    is_passing: bool,
) -> None:
    stage = Stage(rollback_supported=True)
    stage.submit(stage.new("p", unit="pay"))
    stage.answer("p", Advanced(state=b"1", unit="ship"))
    token = stage.inbox["p"].token
    refused = Refused(reason="no place", is_unbegun=True, is_passing=is_passing)
    stage.answer("p", refused)
    record = stage.core.view("p")
    assert record is not None
    assert record.parked == (None if is_passing else "no place")
    assert difference(stage) is None

    stage.now = 1.0
    stage.handle(Tick()) if is_passing else stage.register("T", rollback_supported=True)
    assert (record.parked, stage.inbox["p"].token.step) == (None, token.step)
    stage.handle(StepEnded(token, refused))
    assert (record.parked, stage.core._state.stale_results) == (None, 1)

    stage.answer("p", placed("check"))
    assert difference(stage) is None
    stage.answer("p", boom())
    assert stage.undo_all() == ["p:check", "p:pay"]
    assert difference(stage) is None
