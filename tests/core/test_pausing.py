"""Pauses of a procedure, of a subtree, of everything; the gate."""

from __future__ import annotations

from actorproc.core.coordinator import Coordinator
from actorproc.model.ids import Mode, WorkerId
from actorproc.model.messages.commands import Decision, Reply
from actorproc.model.messages.events import (
    AbortRequested,
    BypassRequested,
    PauseRequested,
    Published,
    ResumeRequested,
    Tick,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Advanced, Answered, Finished, Slept, Suspended, Waited
from actorproc.model.policies import LockKey
from actorproc.model.states import Phase, ProcedureState
from tests.core.stage import Stage, boom, difference, image_of

DONE = Finished(state=b"")
STEP = Advanced(state=b"")
KEY = LockKey.write("k")


def _agrees(stage: Stage) -> None:
    assert difference(stage) is None


def _pause(stage: Stage, id: str | None = "p", reason: str | None = None) -> object:
    return _value(stage.handle(PauseRequested(id, 7, reason)))


def _resume(stage: Stage, id: str | None = "p") -> object:
    return _value(stage.handle(ResumeRequested(id, 7)))


def _value(decision: Decision) -> object:
    return next(command.value for command in decision.commands if isinstance(command, Reply))


def _phase(stage: Stage, id: str = "p") -> tuple[Phase, str | None]:
    record = stage.core.view(id)
    assert record is not None
    return stage.core.phase(record)


def _restart(stage: Stage) -> Stage:
    again = Stage(0)
    again.core, decision = Coordinator.restore(image_of(stage).snapshot(), stage.now)
    again.writes = [*stage.writes, *decision.writes]
    again.now = stage.now
    again.register("T")
    for slot in range(2):
        again.handle(WorkerReady(WorkerId(slot, 9)))
    return again


def test_a_running_step_ends_and_counts_and_then_nothing_runs_until_the_pause_is_lifted() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p"))

    assert _pause(stage, reason="maintenance") is True
    assert _phase(stage)[0] is Phase.RUNNING
    stage.answer("p", STEP)

    assert "p" not in stage.inbox
    assert _phase(stage) == (Phase.PAUSED, "maintenance")
    _agrees(stage)
    assert _resume(stage) is True
    assert stage.inbox["p"].token.step == 2
    assert _resume(stage) is False


def test_others_go_on() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p"), stage.new("q"))
    _pause(stage)
    for _ in range(3):
        for name in list(stage.inbox):
            stage.answer(name, STEP if name == "p" else DONE)

    assert stage.state("q") is ProcedureState.SUCCESS
    assert _phase(stage)[0] is Phase.PAUSED


def test_descendants_are_paused_with_it_and_say_by_whom() -> None:
    stage = Stage(2)
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c"), stage.new("d"))))
    _pause(stage, reason="wait")
    stage.answer("c", STEP)
    stage.answer("d", DONE)

    assert not stage.inbox
    assert _phase(stage, "c") == (Phase.PAUSED, "p is paused: wait")
    _agrees(stage)
    _resume(stage)
    assert stage.inbox["c"].token.step == 2


def test_a_paused_child_does_not_stop_its_siblings() -> None:
    stage = Stage(2)
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c"), stage.new("d"))))
    _pause(stage, "c")
    stage.answer("c", STEP)
    stage.answer("d", STEP)

    assert set(stage.inbox) == {"d"}


def test_time_goes_on_but_what_falls_due_does_not_run() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p"))
    stage.answer("p", Slept(state=b"", seconds=5.0))
    _pause(stage)
    stage.now = 6.0
    stage.handle(Tick())

    assert not stage.inbox
    assert stage.state("p") is ProcedureState.RUNNABLE
    _agrees(stage)
    _resume(stage)
    assert "p" in stage.inbox


def test_a_signal_is_taken_and_waits_with_it() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p"))
    stage.answer("p", Waited(state=b"", event="go"))
    _pause(stage)
    stage.handle(Published("go", b"x", 9))

    again = _restart(stage)

    assert not again.inbox
    _resume(again)
    assert again.inbox["p"].event == b"x"


def test_a_pause_survives_a_restart() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p"), stage.new("q"))
    _pause(stage, reason="maintenance")

    again = _restart(stage)

    assert set(again.inbox) == {"q"}
    assert _phase(again) == (Phase.PAUSED, "maintenance")
    _resume(again)
    assert "p" in again.inbox


def test_a_paused_waiter_for_locks_leaves_the_queue_and_joins_it_again() -> None:
    stage = Stage(3)
    for name in ("a", "p", "b"):
        stage.submit(stage.new(name, locks=(KEY,)))
    _pause(stage)
    _agrees(stage)

    _resume(stage)
    _agrees(stage)
    stage.answer("a", DONE)

    assert set(stage.inbox) == {"b"}
    stage.answer("b", DONE)
    assert set(stage.inbox) == {"p"}


def test_a_paused_waiter_holds_up_nobody() -> None:
    stage = Stage(3)
    for name in ("a", "p", "b"):
        stage.submit(stage.new(name, locks=(KEY,)))
    _pause(stage)
    stage.answer("a", DONE)

    assert set(stage.inbox) == {"b"}


def test_a_rollback_is_paused_too() -> None:
    stage = Stage(1, rollback_supported=True)
    stage.submit(stage.new("p", unit="a"))
    _pause(stage)
    stage.answer("p", boom())

    assert not stage.inbox
    _agrees(stage)
    assert not _restart(stage).inbox
    _resume(stage)
    assert stage.inbox["p"].token.mode is Mode.ROLLBACK


def test_an_abort_of_a_paused_procedure_waits_for_the_end_of_the_pause() -> None:
    stage = Stage(1, asks_abort=True)
    stage.submit(stage.new("p"))
    stage.answer("p", Waited(state=b"", event="go"))
    _pause(stage)
    stage.handle(AbortRequested("p", 8))

    assert not stage.inbox
    _resume(stage)
    stage.handle(Tick())
    assert stage.inbox["p"].token.mode is Mode.ASK_ABORT
    stage.answer("p", Answered(state=b"", allowed=True))
    assert stage.state("p") is ProcedureState.FAILED


def test_a_paused_procedure_can_be_bypassed() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p"))
    stage.answer("p", Waited(state=b"", event="go"))
    _pause(stage)

    assert _value(stage.handle(BypassRequested("p", 8))) is True

    assert stage.state("p") is ProcedureState.SUCCESS
    assert _phase(stage) == (Phase.DONE, None)
    assert _pause(stage) is False


# ---------------------------------------------------------------- the whole manager
def test_the_whole_manager_is_paused_across_a_restart_until_somebody_resumes_it() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p"))
    assert _pause(stage, None, "maintenance") is True
    stage.answer("p", STEP)
    stage.submit(stage.new("q"))
    assert not stage.inbox
    _agrees(stage)

    again = _restart(stage)
    assert not again.inbox
    assert again.core.paused == "maintenance"

    assert _resume(again, None) is True
    assert set(again.inbox) == {"p", "q"}
    assert _restart(again).core.paused is None


def test_behind_a_closed_gate_locks_are_held_and_nothing_runs() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p", locks=(KEY,)))
    gated = Stage(0)
    gated.core, _ = Coordinator.restore(image_of(stage).snapshot(), 1.0, gated=True)
    gated.register("T")
    gated.handle(WorkerReady(WorkerId(0, 9)))
    gated.submit(gated.new("q"))

    assert not gated.inbox
    assert set(gated.core.lock_holders()) == {"p"}
    gated.core.gated = False
    gated.handle(Tick())
    assert "p" in gated.inbox


def test_what_a_paused_procedure_leaves_behind_when_it_ends_goes_on() -> None:
    stage = Stage(2)
    stage.submit(stage.new("p"))
    children = (stage.new("c"), stage.new("d"))
    stage.answer("p", Suspended(state=b"", children=children, wait="any", on_parent_end="leave"))
    stage.answer("d", DONE)
    assert set(stage.inbox) == {"p", "c"}
    _pause(stage)
    stage.answer("c", STEP)
    assert "c" not in stage.inbox

    stage.answer("p", DONE)

    assert stage.state("p") is ProcedureState.SUCCESS
    assert stage.inbox["c"].token.step == 2
    _agrees(stage)


def test_a_paused_branch_that_failed_does_not_hold_up_the_undo_of_another_one() -> None:
    stage = Stage(3, rollback_supported=True, on_child_failure="resume")
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("a", unit="u"), stage.new("b", unit="u"))))
    stage.answer("a", Waited(state=b"", event="never"))
    stage.answer("b", Waited(state=b"", event="never"))
    # Given: the one that fails first is paused.
    _pause(stage, "a")
    stage.handle(AbortRequested("a", 2, force=True))
    stage.handle(AbortRequested("b", 3, force=True))
    _agrees(stage)

    assert stage.undo_all() == ["b:u"]
    _resume(stage, "a")

    assert stage.undo_all() == ["a:u"]
    assert stage.state("p") is ProcedureState.RUNNABLE


def test_a_paused_branch_that_failed_takes_no_turn_from_an_undo_that_waits_for_a_lock() -> None:
    stage = Stage(3, rollback_supported=True, on_child_failure="resume")
    stage.register("Step", rollback_supported=True, lock_scope="step")
    stage.submit(stage.new("p"))
    children = (stage.new("a", unit="u"), stage.new("b", "Step", unit="u", locks=(KEY,)))
    stage.answer("p", Suspended(state=b"", children=children))
    stage.answer("a", Waited(state=b"", event="never"))
    stage.answer("b", Waited(state=b"", event="never"))
    stage.submit(stage.new("holder", locks=(KEY,)))
    stage.handle(AbortRequested("b", 2, force=True))
    _pause(stage, "a")
    stage.handle(AbortRequested("a", 3, force=True))
    _agrees(stage)

    stage.answer("holder", DONE)

    assert stage.undo_all() == ["b:u"]
    _resume(stage, "a")
    assert stage.undo_all() == ["a:u"]
