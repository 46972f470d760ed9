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
from tests.core.harness import CoreHarness, boom, difference, image_of

DONE = Finished(state=b"")
STEP = Advanced(state=b"")
KEY = LockKey.write("k")


def _agrees(harness: CoreHarness) -> None:
    assert difference(harness) is None


def _pause(harness: CoreHarness, id: str | None = "p", reason: str | None = None) -> object:
    return _value(harness.handle(PauseRequested(id, 7, reason)))


def _resume(harness: CoreHarness, id: str | None = "p") -> object:
    return _value(harness.handle(ResumeRequested(id, 7)))


def _value(decision: Decision) -> object:
    return next(command.value for command in decision.commands if isinstance(command, Reply))


def _phase(harness: CoreHarness, id: str = "p") -> tuple[Phase, str | None]:
    record = harness.core.view(id)
    assert record is not None
    return harness.core.phase(record)


def _restart(harness: CoreHarness) -> CoreHarness:
    again = CoreHarness(0)
    again.core, decision = Coordinator.restore(image_of(harness).snapshot(), harness.now)
    again.writes = [*harness.writes, *decision.writes]
    again.now = harness.now
    again.register("T")
    for slot in range(2):
        again.handle(WorkerReady(WorkerId(slot, 9)))
    return again


def test_a_running_step_ends_and_counts_and_then_nothing_runs_until_the_pause_is_lifted() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p"))

    assert _pause(harness, reason="maintenance") is True
    assert _phase(harness)[0] is Phase.RUNNING
    harness.answer("p", STEP)

    assert "p" not in harness.inbox
    assert _phase(harness) == (Phase.PAUSED, "maintenance")
    _agrees(harness)
    assert _resume(harness) is True
    assert harness.inbox["p"].token.step == 2
    assert _resume(harness) is False


def test_others_go_on() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p"), harness.new("q"))
    _pause(harness)
    for _ in range(3):
        for name in list(harness.inbox):
            harness.answer(name, STEP if name == "p" else DONE)

    assert harness.state("q") is ProcedureState.SUCCESS
    assert _phase(harness)[0] is Phase.PAUSED


def test_descendants_are_paused_with_it_and_say_by_whom() -> None:
    harness = CoreHarness(2)
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c"), harness.new("d"))))
    _pause(harness, reason="wait")
    harness.answer("c", STEP)
    harness.answer("d", DONE)

    assert not harness.inbox
    assert _phase(harness, "c") == (Phase.PAUSED, "p is paused: wait")
    _agrees(harness)
    _resume(harness)
    assert harness.inbox["c"].token.step == 2


def test_a_paused_child_does_not_stop_its_siblings() -> None:
    harness = CoreHarness(2)
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c"), harness.new("d"))))
    _pause(harness, "c")
    harness.answer("c", STEP)
    harness.answer("d", STEP)

    assert set(harness.inbox) == {"d"}


def test_time_goes_on_but_what_falls_due_does_not_run() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p"))
    harness.answer("p", Slept(state=b"", seconds=5.0))
    _pause(harness)
    harness.now = 6.0
    harness.handle(Tick())

    assert not harness.inbox
    assert harness.state("p") is ProcedureState.RUNNABLE
    _agrees(harness)
    _resume(harness)
    assert "p" in harness.inbox


def test_a_signal_is_taken_and_waits_with_it() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p"))
    harness.answer("p", Waited(state=b"", event="go"))
    _pause(harness)
    harness.handle(Published("go", b"x", 9))

    again = _restart(harness)

    assert not again.inbox
    _resume(again)
    assert again.inbox["p"].event == b"x"


def test_a_pause_survives_a_restart() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p"), harness.new("q"))
    _pause(harness, reason="maintenance")

    again = _restart(harness)

    assert set(again.inbox) == {"q"}
    assert _phase(again) == (Phase.PAUSED, "maintenance")
    _resume(again)
    assert "p" in again.inbox


def test_a_paused_waiter_for_locks_leaves_the_queue_and_joins_it_again() -> None:
    harness = CoreHarness(3)
    for name in ("a", "p", "b"):
        harness.submit(harness.new(name, locks=(KEY,)))
    _pause(harness)
    _agrees(harness)

    _resume(harness)
    _agrees(harness)
    harness.answer("a", DONE)

    assert set(harness.inbox) == {"b"}
    harness.answer("b", DONE)
    assert set(harness.inbox) == {"p"}


def test_a_paused_waiter_holds_up_nobody() -> None:
    harness = CoreHarness(3)
    for name in ("a", "p", "b"):
        harness.submit(harness.new(name, locks=(KEY,)))
    _pause(harness)
    harness.answer("a", DONE)

    assert set(harness.inbox) == {"b"}


def test_a_rollback_is_paused_too() -> None:
    harness = CoreHarness(1, rollback_supported=True)
    harness.submit(harness.new("p", unit="a"))
    _pause(harness)
    harness.answer("p", boom())

    assert not harness.inbox
    _agrees(harness)
    assert not _restart(harness).inbox
    _resume(harness)
    assert harness.inbox["p"].token.mode is Mode.ROLLBACK


def test_an_abort_of_a_paused_procedure_waits_for_the_end_of_the_pause() -> None:
    harness = CoreHarness(1, asks_abort=True)
    harness.submit(harness.new("p"))
    harness.answer("p", Waited(state=b"", event="go"))
    _pause(harness)
    harness.handle(AbortRequested("p", 8))

    assert not harness.inbox
    _resume(harness)
    harness.handle(Tick())
    assert harness.inbox["p"].token.mode is Mode.ASK_ABORT
    harness.answer("p", Answered(state=b"", allowed=True))
    assert harness.state("p") is ProcedureState.FAILED


def test_a_paused_procedure_can_be_bypassed() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p"))
    harness.answer("p", Waited(state=b"", event="go"))
    _pause(harness)

    assert _value(harness.handle(BypassRequested("p", 8))) is True

    assert harness.state("p") is ProcedureState.SUCCESS
    assert _phase(harness) == (Phase.DONE, None)
    assert _pause(harness) is False


# ---------------------------------------------------------------- the whole manager
def test_the_whole_manager_is_paused_across_a_restart_until_somebody_resumes_it() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p"))
    assert _pause(harness, None, "maintenance") is True
    harness.answer("p", STEP)
    harness.submit(harness.new("q"))
    assert not harness.inbox
    _agrees(harness)

    again = _restart(harness)
    assert not again.inbox
    assert again.core.paused == "maintenance"

    assert _resume(again, None) is True
    assert set(again.inbox) == {"p", "q"}
    assert _restart(again).core.paused is None


def test_behind_a_closed_gate_locks_are_held_and_nothing_runs() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p", locks=(KEY,)))
    gated = CoreHarness(0)
    gated.core, _ = Coordinator.restore(image_of(harness).snapshot(), 1.0, gated=True)
    gated.register("T")
    gated.handle(WorkerReady(WorkerId(0, 9)))
    gated.submit(gated.new("q"))

    assert not gated.inbox
    assert set(gated.core.lock_holders()) == {"p"}
    gated.core.gated = False
    gated.handle(Tick())
    assert "p" in gated.inbox


def test_what_a_paused_procedure_leaves_behind_when_it_ends_goes_on() -> None:
    harness = CoreHarness(2)
    harness.submit(harness.new("p"))
    children = (harness.new("c"), harness.new("d"))
    harness.answer("p", Suspended(state=b"", children=children, wait="any", on_parent_end="leave"))
    harness.answer("d", DONE)
    assert set(harness.inbox) == {"p", "c"}
    _pause(harness)
    harness.answer("c", STEP)
    assert "c" not in harness.inbox

    harness.answer("p", DONE)

    assert harness.state("p") is ProcedureState.SUCCESS
    assert harness.inbox["c"].token.step == 2
    _agrees(harness)


def test_a_paused_branch_that_failed_does_not_hold_up_the_undo_of_another_one() -> None:
    harness = CoreHarness(3, rollback_supported=True, on_child_failure="resume")
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("a", unit="u"), harness.new("b", unit="u"))))
    harness.answer("a", Waited(state=b"", event="never"))
    harness.answer("b", Waited(state=b"", event="never"))
    # Given: the one that fails first is paused.
    _pause(harness, "a")
    harness.handle(AbortRequested("a", 2, force=True))
    harness.handle(AbortRequested("b", 3, force=True))
    _agrees(harness)

    assert harness.undo_all() == ["b:u"]
    _resume(harness, "a")

    assert harness.undo_all() == ["a:u"]
    assert harness.state("p") is ProcedureState.RUNNABLE


def test_a_paused_branch_that_failed_takes_no_turn_from_an_undo_that_waits_for_a_lock() -> None:
    harness = CoreHarness(3, rollback_supported=True, on_child_failure="resume")
    harness.register("Step", rollback_supported=True, lock_scope="step")
    harness.submit(harness.new("p"))
    children = (harness.new("a", unit="u"), harness.new("b", "Step", unit="u", locks=(KEY,)))
    harness.answer("p", Suspended(state=b"", children=children))
    harness.answer("a", Waited(state=b"", event="never"))
    harness.answer("b", Waited(state=b"", event="never"))
    harness.submit(harness.new("holder", locks=(KEY,)))
    harness.handle(AbortRequested("b", 2, force=True))
    _pause(harness, "a")
    harness.handle(AbortRequested("a", 3, force=True))
    _agrees(harness)

    harness.answer("holder", DONE)

    assert harness.undo_all() == ["b:u"]
    _resume(harness, "a")
    assert harness.undo_all() == ["a:u"]
