"""A failed root once more: which way it goes, what it holds, and what it never does."""

from __future__ import annotations

import pytest

from actorproc.core.coordinator import Coordinator
from actorproc.errors import KeyPoisoned, NotAllowed, UnknownProcedure
from actorproc.model.ids import Mode, WorkerId
from actorproc.model.messages.commands import Decision, Reply
from actorproc.model.messages.events import (
    PoisonCleared,
    Published,
    RetryRequested,
    RollbackRequested,
    Tick,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Advanced, Failed, Finished, Poisoned, Slept, Suspended, Waited
from actorproc.model.policies import Backoff, LockKey
from actorproc.model.rows.records import ErrorInfo
from actorproc.model.rows.writes import PutAudit, PutStep
from actorproc.model.states import Phase, ProcedureState
from tests.core.stage import Stage, boom, difference, image_of

DONE = Finished(state=b"")
KEY = LockKey.write("cat/t")
UNDOABLE = {"rollback_supported": True, "rollback_retry": Backoff(max_attempts=1)}


def _agrees(stage: Stage) -> None:
    """Memory is what a restart would give."""
    assert difference(stage) is None


def _retry(stage: Stage, id: str = "p", reason: str | None = None) -> Reply:
    return _reply(stage.handle(RetryRequested(id, 7, reason)))


def _reply(decision: Decision) -> Reply:
    return next(command for command in decision.commands if isinstance(command, Reply))


def _restart(stage: Stage, **traits: object) -> Stage:
    """The next life on what the writes so far leave."""
    again = Stage(0)
    again.core, decision = Coordinator.restore(image_of(stage).snapshot(), stage.now)
    again.writes = [*stage.writes, *decision.writes]
    again.now = stage.now
    again.inbox.clear()
    again.register("T", **traits)
    for slot in range(2):
        again.handle(WorkerReady(WorkerId(slot, 9)))
    return again


# ---------------------------------------------------------------- an exhausted rollback
def _given_up(**traits: object) -> Stage:
    """p ran two units and failed in the third step; undoing the second unit gave up."""
    stage = Stage(2, **(UNDOABLE | traits))
    stage.submit(stage.new("p", unit="a", locks=(KEY,)))
    stage.answer("p", Advanced(state=b"1", unit="b"))
    stage.answer("p", Advanced(state=b"2", unit=None))
    stage.answer("p", boom())
    assert stage.inbox["p"].unit == "b"
    stage.answer("p", boom("cannot undo"))
    assert stage.state("p") is ProcedureState.FAILED
    return stage


def test_a_rollback_that_gave_up_goes_on_at_the_same_unit_with_a_fresh_budget() -> None:
    stage = _given_up()

    assert _retry(stage).value is True

    run = stage.inbox["p"]
    assert (run.token.mode, run.unit, run.replayed) == (Mode.ROLLBACK, "b", True)
    record = stage.core.view("p")
    assert record is not None
    assert (record.run, record.errors) == (2, 0)
    _agrees(stage)
    assert stage.undo_all() == ["p:b", "p:a"]
    assert stage.state("p") is ProcedureState.ROLLEDBACK


def test_the_undo_starts_from_the_last_state_and_not_from_the_closing_record() -> None:
    stage = _given_up()
    _retry(stage)

    number = stage.inbox["p"].record
    record = next(
        write.record for write in stage.writes if isinstance(write, PutStep) and write.record.number == number
    )

    assert record.state == b"2"


def test_a_rollback_that_gives_up_again_can_be_retried_again() -> None:
    stage = _given_up()
    _retry(stage)
    stage.answer("p", boom("still not"))

    assert stage.state("p") is ProcedureState.FAILED
    assert _retry(stage).value is True
    assert stage.undo_all() == ["p:b", "p:a"]
    assert stage.core.view("p").run == 3  # type: ignore[union-attr]


def test_an_undo_that_is_retried_is_the_same_step_and_the_next_one_is_another() -> None:
    stage = _given_up()
    number = next(write.record.number for write in stage.writes[::-1] if isinstance(write, PutStep))
    for _ in range(2):
        _retry(stage)
        assert stage.inbox["p"].token.step == number
        _agrees(stage)
        stage.answer("p", boom("still not"))
    _retry(stage)

    stage.answer("p", Advanced(state=b"half", unit="b"))
    second = stage.inbox["p"].token.step
    stage.answer("p", DONE)

    assert stage.inbox["p"].unit == "a"
    assert len({number, second, stage.inbox["p"].token.step}) == 3


def test_its_own_poison_does_not_stop_a_retry_and_is_gone_when_the_rollback_is_complete() -> None:
    stage = _given_up()
    assert set(image_of(stage).poisons) == {"cat/t"}

    _retry(stage)
    assert set(image_of(stage).poisons) == {"cat/t"}
    stage.undo_all()

    assert image_of(stage).poisons == {}
    assert image_of(stage).locks == {}
    assert stage.submit(stage.new("q", locks=(KEY,))).error is None


def test_the_locks_of_the_tree_are_taken_again_before_anything_is_undone() -> None:
    stage = _given_up()
    stage.handle(PoisonCleared("cat/t", 8))
    stage.submit(stage.new("q", locks=(KEY,)))
    assert "q" in stage.inbox

    _retry(stage)

    assert "p" not in stage.inbox
    record = stage.core.view("p")
    assert record is not None
    assert stage.core.phase(record)[0] is Phase.LOCKED_OUT
    _agrees(stage)
    stage.answer("q", DONE)
    assert stage.inbox["p"].unit == "b"
    assert {path for path, _ in image_of(stage).locks} == {"cat/t"}
    _agrees(stage)


def test_waiting_for_the_locks_of_a_retry_survives_a_restart() -> None:
    stage = _given_up()
    stage.handle(PoisonCleared("cat/t", 8))
    stage.submit(stage.new("q", locks=(KEY,)))
    _retry(stage)

    again = _restart(stage, **UNDOABLE)

    assert "p" not in again.inbox
    again.answer("q", DONE)
    assert again.undo_all() == ["p:b", "p:a"]
    assert again.state("p") is ProcedureState.ROLLEDBACK


def test_a_tree_takes_again_what_its_finished_children_had_left_to_it() -> None:
    stage = Stage(2, **UNDOABLE)
    stage.submit(stage.new("p", unit="", locks=()))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c", unit="", locks=(KEY,)),)))
    stage.answer("c", DONE)
    stage.answer("p", boom())
    stage.answer("c", boom("cannot undo"))  # the unit of c is newer than that of p
    assert (stage.state("p"), stage.state("c")) == (ProcedureState.FAILED, ProcedureState.FAILED)
    assert image_of(stage).locks == {}

    _retry(stage)

    assert {(path, holder) for path, holder in image_of(stage).locks} == {("cat/t", "p")}
    _agrees(stage)
    assert stage.undo_all() == ["c:", "p:"]
    assert stage.resolved() == {"c": ProcedureState.ROLLEDBACK, "p": ProcedureState.ROLLEDBACK}
    assert image_of(stage).poisons == {}


@pytest.mark.parametrize("steps", range(4))
def test_a_restart_at_any_point_of_a_retried_rollback_goes_on_there(steps: int) -> None:
    stage = _given_up()
    stage.register("T", rollback_supported=True)  # with the usual number of attempts
    _retry(stage)
    for outcome in [boom("not yet", retryable=True), DONE, DONE][:steps]:
        stage.now += 100
        stage.handle(Tick())
        stage.answer("p", outcome)

    again = _restart(stage, **UNDOABLE)
    again.now += 1000
    again.handle(Tick())
    again.undo_all()

    image = image_of(again)
    assert image.heads["p"].state is ProcedureState.ROLLEDBACK
    assert image.poisons == {}


# ---------------------------------------------------------------- nothing undone: forward
def test_a_procedure_without_rollback_runs_its_failed_step_again() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p", locks=(KEY,)))
    stage.answer("p", Advanced(state=b"1"))
    stage.answer("p", boom())
    assert stage.state("p") is ProcedureState.FAILED

    assert _retry(stage, reason="the network is back").value is True

    run = stage.inbox["p"]
    assert (run.token.mode, run.token.step, run.replayed) == (Mode.EXECUTE, 2, True)
    _agrees(stage)
    stage.answer("p", Advanced(state=b"2"))
    stage.answer("p", DONE)
    assert stage.state("p") is ProcedureState.SUCCESS
    numbers = [write.record.number for write in stage.writes if isinstance(write, PutStep)]
    assert numbers == [1, 2, 3, 4, 5]
    assert image_of(stage).locks == {}


def test_a_retry_is_recorded_with_its_reason() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p"))
    stage.answer("p", boom())

    _retry(stage, reason="the network is back")

    rows = [write.record for write in stage.writes if isinstance(write, PutAudit)]
    assert [(row.target, row.number, row.verb, row.reason) for row in rows] == [
        ("p", 1, "retry", "the network is back")
    ]


def test_a_poisoned_step_runs_again_and_its_keys_are_free_when_it_went_well() -> None:
    stage = Stage(1, **UNDOABLE)
    stage.submit(stage.new("p", unit="a", locks=(KEY,)))
    stage.answer("p", Advanced(state=b"1", unit="b"))
    stage.answer("p", Poisoned(state=b"1", unit="b", keys=("cat/t",), error=ErrorInfo("poisoned", "Poisoned", "half")))
    assert stage.state("p") is ProcedureState.FAILED
    assert set(image_of(stage).poisons) == {"cat/t"}

    _retry(stage)
    assert stage.inbox["p"].token.mode is Mode.EXECUTE
    _agrees(stage)
    stage.answer("p", DONE)

    assert stage.state("p") is ProcedureState.SUCCESS
    assert image_of(stage).poisons == {}


def test_what_ran_before_a_poisoned_step_is_undone_when_the_retry_fails_in_another_way() -> None:
    stage = Stage(1, **UNDOABLE)
    stage.submit(stage.new("p", unit="a"))
    stage.answer("p", Advanced(state=b"1", unit="b"))
    stage.answer("p", Poisoned(state=b"1", unit="b", keys=("k",), error=ErrorInfo("poisoned", "Poisoned", "half")))
    _retry(stage)

    stage.answer("p", boom())

    assert stage.undo_all() == ["p:b", "p:a"]
    assert stage.state("p") is ProcedureState.ROLLEDBACK


def test_a_tree_goes_on_with_what_each_member_was_about_to_do() -> None:
    """One child failed, one had finished, one waited for an event, one had not started; the parent waited for all."""
    stage = Stage(2)
    stage.submit(stage.new("p"))
    children = tuple(stage.new(name) for name in ("bad", "good", "waiting", "late"))
    stage.answer("p", Suspended(state=b"", children=children, max_parallel=3))
    for name in ("good", "waiting"):
        if name in stage.inbox:
            stage.answer(name, DONE if name == "good" else Waited(state=b"", event="go"))
    stage.answer("bad", boom())
    for name in list(stage.inbox):
        stage.answer(name, Waited(state=b"", event="go") if name == "waiting" else boom("late failure"))
    assert stage.state("p") is ProcedureState.FAILED
    assert stage.state("good") is ProcedureState.SUCCESS

    _retry(stage)

    _agrees(stage)
    assert stage.state("p") is ProcedureState.WAITING
    assert stage.state("waiting") is ProcedureState.WAITING
    stage.answer("bad", DONE)
    stage.handle(Published("go", b"x", 9))
    for _ in range(5):
        for name in list(stage.inbox):
            if name != "p":
                stage.answer(name, DONE)
    assert stage.inbox["p"].token.step == 2
    _agrees(stage)
    stage.answer("p", DONE)
    assert stage.state("p") is ProcedureState.SUCCESS
    assert stage.resolved() == dict.fromkeys(("p", "bad", "good", "waiting", "late"), ProcedureState.SUCCESS)


@pytest.mark.parametrize(
    ("outcome", "state", "due_at"),
    [
        (Slept(state=b"", seconds=50.0), ProcedureState.WAITING_TIMEOUT, 51.0),
        (Advanced(state=b"", after=20.0), ProcedureState.WAITING_TIMEOUT, 21.0),
        (Waited(state=b"", event="go"), ProcedureState.WAITING, None),
        (Waited(state=b"", event="go", timeout=30.0), ProcedureState.WAITING_TIMEOUT, 31.0),
    ],
    ids=["sleeps", "goes on later", "waits", "waits so long"],
)
def test_what_a_step_asked_for_too_late_is_begun_by_the_retry(
    outcome: Slept | Advanced | Waited, state: ProcedureState, due_at: float | None
) -> None:
    stage = Stage(2)
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("a"), stage.new("b"))))
    stage.answer("a", boom())
    stage.now = 1.0
    stage.answer("b", outcome)
    assert stage.state("p") is ProcedureState.FAILED

    _retry(stage)

    record = stage.core.view("b")
    assert record is not None
    assert (record.state, record.due_at) == (state, due_at)
    _agrees(stage)


def test_a_last_step_that_ended_too_late_to_count_runs_again() -> None:
    stage = Stage(2)
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("a"), stage.new("b"))))
    stage.answer("a", boom())
    stage.answer("b", DONE)
    assert stage.state("b") is ProcedureState.FAILED

    _retry(stage)

    assert {name: run.token.step for name, run in stage.inbox.items()} == {"a": 1, "b": 1}
    record = stage.inbox["b"].record
    stage.answer("b", DONE)
    stage.answer("a", DONE)
    stage.answer("p", DONE)
    assert record == 1
    assert stage.state("p") is ProcedureState.SUCCESS
    _agrees(stage)


def _timed_out() -> Stage:
    """p waited too long for the event "go"."""
    stage = Stage(1)
    stage.submit(stage.new("p"))
    stage.answer("p", Waited(state=b"", event="go", timeout=5.0))
    stage.now = 6.0
    stage.handle(Tick())
    assert stage.state("p") is ProcedureState.FAILED
    return stage


def test_a_wait_that_timed_out_is_waited_again() -> None:
    stage = _timed_out()

    _retry(stage)

    assert stage.state("p") is ProcedureState.WAITING
    _agrees(stage)
    stage.handle(Published("go", b"x", 9))
    assert stage.inbox["p"].event == b"x"


def test_a_signal_that_came_after_the_wait_had_timed_out_is_taken_by_the_retry() -> None:
    stage = _timed_out()
    stage.handle(Published("go", b"late", 9))

    _retry(stage)

    assert stage.inbox["p"].event == b"late"
    _agrees(stage)


def test_a_payload_is_there_again_when_the_step_it_was_for_is_retried() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p"))
    stage.answer("p", Waited(state=b"", event="go"))
    stage.handle(Published("go", b"x", 9))
    stage.answer("p", boom())

    _retry(stage)

    assert stage.inbox["p"].event == b"x"


def test_a_deadline_that_has_passed_does_not_stop_a_retry() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p", deadline=10.0))
    stage.answer("p", Waited(state=b"", event="go"))
    stage.now = 11.0
    stage.handle(Tick())
    assert stage.state("p") is ProcedureState.FAILED

    _retry(stage)
    stage.handle(Published("go", b"x", 9))
    stage.answer("p", DONE)

    assert stage.state("p") is ProcedureState.SUCCESS


# ---------------------------------------------------------------- refused
@pytest.mark.parametrize(
    ("outcome", "words"),
    [(DONE, "has succeeded"), (Waited(state=b"", event="e"), "has not failed"), (boom(), "submit it again")],
    ids=["success", "unfinished", "undone"],
)
def test_only_what_has_failed_can_be_retried(outcome: Finished | Waited | Failed, words: str) -> None:
    stage = Stage(1, **UNDOABLE)
    stage.submit(stage.new("p", unit=""))
    stage.answer("p", outcome)
    stage.undo_all()

    error = _retry(stage).error

    assert isinstance(error, NotAllowed)
    assert words in str(error)


def test_children_and_unknown_ids_are_refused() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c"),)))
    stage.answer("c", boom())

    assert "belongs to p" in str(_retry(stage, "c").error)
    assert isinstance(_retry(stage, "nobody").error, UnknownProcedure)


def test_there_is_no_way_forward_after_an_undo() -> None:
    stage = Stage(2)
    stage.register("U", rollback_supported=True)
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c", "U", unit=""),)))
    stage.answer("c", DONE)
    stage.answer("p", boom())
    stage.undo_all()
    assert stage.state("p") is ProcedureState.FAILED

    error = _retry(stage).error

    assert isinstance(error, NotAllowed)
    assert "no way" in str(error)
    assert not stage.inbox


def test_an_undo_of_an_earlier_failure_that_the_parent_took_does_not_bar_the_way_forward() -> None:
    stage = Stage(2, on_child_failure="resume")
    stage.register("U", rollback_supported=True)
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c", "U", unit=""),)))
    stage.answer("c", boom())
    stage.undo_all()
    stage.answer("p", boom())
    assert stage.state("p") is ProcedureState.FAILED

    assert _retry(stage).value is True

    assert stage.inbox["p"].token.step == 2
    assert stage.state("c") is ProcedureState.ROLLEDBACK
    _agrees(stage)


def test_a_key_poisoned_by_somebody_else_refuses_the_way_forward() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p", locks=(KEY,)))
    stage.answer("p", boom())
    stage.register("U", **UNDOABLE)
    stage.submit(stage.new("q", "U", unit="", locks=(KEY,)))
    stage.answer("q", boom())
    stage.answer("q", boom("cannot undo"))

    assert isinstance(_retry(stage).error, KeyPoisoned)
    stage.handle(PoisonCleared("cat/t", 8))
    assert _retry(stage).value is True


# ---------------------------------------------------------------- rollback on demand
def _rollback(stage: Stage, id: str = "p") -> Reply:
    return _reply(stage.handle(RollbackRequested(id, 7, "not wanted any more")))


def test_an_unfinished_root_is_undone_on_demand_and_not_asked() -> None:
    stage = Stage(1, **UNDOABLE, asks_abort=True)
    stage.submit(stage.new("p", unit="a"))
    stage.answer("p", Waited(state=b"", event="go", unit="b"))

    assert _rollback(stage).value is True

    assert stage.undo_all() == ["p:a"]
    assert stage.state("p") is ProcedureState.ROLLEDBACK
    assert stage.core.view("p").error.message == "rolled back on request: not wanted any more"  # type: ignore[union-attr]


def test_a_running_step_ends_before_it_is_undone() -> None:
    stage = Stage(1, **UNDOABLE)
    stage.submit(stage.new("p", unit="a"))

    assert _rollback(stage).value is True
    assert stage.inbox["p"].token.mode is Mode.EXECUTE
    stage.answer("p", Advanced(state=b"", unit="b"))

    assert stage.undo_all() == ["p:a"]


def test_what_cannot_be_rolled_back_is_refused_with_what_to_do() -> None:
    stage = Stage(2, **UNDOABLE)
    stage.register("N")
    stage.submit(stage.new("done", unit=""), stage.new("bare", "N"))
    stage.answer("done", DONE)
    stage.answer("bare", Waited(state=b"", event="go"))

    assert "not kept" in str(_rollback(stage, "done").error)
    assert "abort('bare', force=True)" in str(_rollback(stage, "bare").error)
    assert isinstance(_rollback(stage, "nobody").error, UnknownProcedure)
