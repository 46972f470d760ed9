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
from tests.core.harness import CoreHarness, boom, difference, image_of

DONE = Finished(state=b"")
KEY = LockKey.write("cat/t")
UNDOABLE = {"rollback_supported": True, "rollback_retry": Backoff(max_attempts=1)}


def _agrees(harness: CoreHarness) -> None:
    """Memory is what a restart would give."""
    assert difference(harness) is None


def _retry(harness: CoreHarness, id: str = "p", reason: str | None = None) -> Reply:
    return _reply(harness.handle(RetryRequested(id, 7, reason)))


def _reply(decision: Decision) -> Reply:
    return next(command for command in decision.commands if isinstance(command, Reply))


def _restart(harness: CoreHarness, **traits: object) -> CoreHarness:
    """The next life on what the writes so far leave."""
    again = CoreHarness(0)
    again.core, decision = Coordinator.restore(image_of(harness).snapshot(), harness.now)
    again.writes = [*harness.writes, *decision.writes]
    again.now = harness.now
    again.inbox.clear()
    again.register("T", **traits)
    for slot in range(2):
        again.handle(WorkerReady(WorkerId(slot, 9)))
    return again


# ---------------------------------------------------------------- an exhausted rollback
def _given_up(**traits: object) -> CoreHarness:
    """p ran two units and failed in the third step; undoing the second unit gave up."""
    harness = CoreHarness(2, **(UNDOABLE | traits))
    harness.submit(harness.new("p", unit="a", locks=(KEY,)))
    harness.answer("p", Advanced(state=b"1", unit="b"))
    harness.answer("p", Advanced(state=b"2", unit=None))
    harness.answer("p", boom())
    assert harness.inbox["p"].unit == "b"
    harness.answer("p", boom("cannot undo"))
    assert harness.state("p") is ProcedureState.FAILED
    return harness


def test_a_rollback_that_gave_up_goes_on_at_the_same_unit_with_a_fresh_budget() -> None:
    harness = _given_up()

    assert _retry(harness).value is True

    run = harness.inbox["p"]
    assert (run.token.mode, run.unit, run.replayed) == (Mode.ROLLBACK, "b", True)
    record = harness.core.view("p")
    assert record is not None
    assert (record.run, record.errors) == (2, 0)
    _agrees(harness)
    assert harness.undo_all() == ["p:b", "p:a"]
    assert harness.state("p") is ProcedureState.ROLLEDBACK


def test_the_undo_starts_from_the_last_state_and_not_from_the_closing_record() -> None:
    harness = _given_up()
    _retry(harness)

    number = harness.inbox["p"].record
    record = next(
        write.record for write in harness.writes if isinstance(write, PutStep) and write.record.number == number
    )

    assert record.state == b"2"


def test_a_rollback_that_gives_up_again_can_be_retried_again() -> None:
    harness = _given_up()
    _retry(harness)
    harness.answer("p", boom("still not"))

    assert harness.state("p") is ProcedureState.FAILED
    assert _retry(harness).value is True
    assert harness.undo_all() == ["p:b", "p:a"]
    assert harness.core.view("p").run == 3  # type: ignore[union-attr]


def test_an_undo_that_is_retried_is_the_same_step_and_the_next_one_is_another() -> None:
    harness = _given_up()
    number = next(write.record.number for write in harness.writes[::-1] if isinstance(write, PutStep))
    for _ in range(2):
        _retry(harness)
        assert harness.inbox["p"].token.step == number
        _agrees(harness)
        harness.answer("p", boom("still not"))
    _retry(harness)

    harness.answer("p", Advanced(state=b"half", unit="b"))
    second = harness.inbox["p"].token.step
    harness.answer("p", DONE)

    assert harness.inbox["p"].unit == "a"
    assert len({number, second, harness.inbox["p"].token.step}) == 3


def test_its_own_poison_does_not_stop_a_retry_and_is_gone_when_the_rollback_is_complete() -> None:
    harness = _given_up()
    assert set(image_of(harness).poisons) == {"cat/t"}

    _retry(harness)
    assert set(image_of(harness).poisons) == {"cat/t"}
    harness.undo_all()

    assert image_of(harness).poisons == {}
    assert image_of(harness).locks == {}
    assert harness.submit(harness.new("q", locks=(KEY,))).error is None


def test_the_locks_of_the_tree_are_taken_again_before_anything_is_undone() -> None:
    harness = _given_up()
    harness.handle(PoisonCleared("cat/t", 8))
    harness.submit(harness.new("q", locks=(KEY,)))
    assert "q" in harness.inbox

    _retry(harness)

    assert "p" not in harness.inbox
    record = harness.core.view("p")
    assert record is not None
    assert harness.core.phase(record)[0] is Phase.LOCKED_OUT
    _agrees(harness)
    harness.answer("q", DONE)
    assert harness.inbox["p"].unit == "b"
    assert {path for path, _ in image_of(harness).locks} == {"cat/t"}
    _agrees(harness)


def test_waiting_for_the_locks_of_a_retry_survives_a_restart() -> None:
    harness = _given_up()
    harness.handle(PoisonCleared("cat/t", 8))
    harness.submit(harness.new("q", locks=(KEY,)))
    _retry(harness)

    again = _restart(harness, **UNDOABLE)

    assert "p" not in again.inbox
    again.answer("q", DONE)
    assert again.undo_all() == ["p:b", "p:a"]
    assert again.state("p") is ProcedureState.ROLLEDBACK


def test_a_tree_takes_again_what_its_finished_children_had_left_to_it() -> None:
    harness = CoreHarness(2, **UNDOABLE)
    harness.submit(harness.new("p", unit="", locks=()))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c", unit="", locks=(KEY,)),)))
    harness.answer("c", DONE)
    harness.answer("p", boom())
    harness.answer("c", boom("cannot undo"))  # the unit of c is newer than that of p
    assert (harness.state("p"), harness.state("c")) == (ProcedureState.FAILED, ProcedureState.FAILED)
    assert image_of(harness).locks == {}

    _retry(harness)

    assert {(path, holder) for path, holder in image_of(harness).locks} == {("cat/t", "p")}
    _agrees(harness)
    assert harness.undo_all() == ["c:", "p:"]
    assert harness.resolved() == {"c": ProcedureState.ROLLEDBACK, "p": ProcedureState.ROLLEDBACK}
    assert image_of(harness).poisons == {}


@pytest.mark.parametrize("steps", range(4))
def test_a_restart_at_any_point_of_a_retried_rollback_goes_on_there(steps: int) -> None:
    harness = _given_up()
    harness.register("T", rollback_supported=True)  # with the usual number of attempts
    _retry(harness)
    for outcome in [boom("not yet", retryable=True), DONE, DONE][:steps]:
        harness.now += 100
        harness.handle(Tick())
        harness.answer("p", outcome)

    again = _restart(harness, **UNDOABLE)
    again.now += 1000
    again.handle(Tick())
    again.undo_all()

    image = image_of(again)
    assert image.heads["p"].state is ProcedureState.ROLLEDBACK
    assert image.poisons == {}


# ---------------------------------------------------------------- nothing undone: forward
def test_a_procedure_without_rollback_runs_its_failed_step_again() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p", locks=(KEY,)))
    harness.answer("p", Advanced(state=b"1"))
    harness.answer("p", boom())
    assert harness.state("p") is ProcedureState.FAILED

    assert _retry(harness, reason="the network is back").value is True

    run = harness.inbox["p"]
    assert (run.token.mode, run.token.step, run.replayed) == (Mode.EXECUTE, 2, True)
    _agrees(harness)
    harness.answer("p", Advanced(state=b"2"))
    harness.answer("p", DONE)
    assert harness.state("p") is ProcedureState.SUCCESS
    numbers = [write.record.number for write in harness.writes if isinstance(write, PutStep)]
    assert numbers == [1, 2, 3, 4, 5]
    assert image_of(harness).locks == {}


def test_a_retry_is_recorded_with_its_reason() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p"))
    harness.answer("p", boom())

    _retry(harness, reason="the network is back")

    rows = [write.record for write in harness.writes if isinstance(write, PutAudit)]
    assert [(row.target, row.number, row.verb, row.reason) for row in rows] == [
        ("p", 1, "retry", "the network is back"),
        ("", 1, "retry", "the network is back"),
    ]


def test_a_poisoned_step_runs_again_and_its_keys_are_free_when_it_went_well() -> None:
    harness = CoreHarness(1, **UNDOABLE)
    harness.submit(harness.new("p", unit="a", locks=(KEY,)))
    harness.answer("p", Advanced(state=b"1", unit="b"))
    harness.answer(
        "p", Poisoned(state=b"1", unit="b", keys=("cat/t",), error=ErrorInfo("poisoned", "Poisoned", "half"))
    )
    assert harness.state("p") is ProcedureState.FAILED
    assert set(image_of(harness).poisons) == {"cat/t"}

    _retry(harness)
    assert harness.inbox["p"].token.mode is Mode.EXECUTE
    _agrees(harness)
    harness.answer("p", DONE)

    assert harness.state("p") is ProcedureState.SUCCESS
    assert image_of(harness).poisons == {}


def test_what_ran_before_a_poisoned_step_is_undone_when_the_retry_fails_in_another_way() -> None:
    harness = CoreHarness(1, **UNDOABLE)
    harness.submit(harness.new("p", unit="a"))
    harness.answer("p", Advanced(state=b"1", unit="b"))
    harness.answer("p", Poisoned(state=b"1", unit="b", keys=("k",), error=ErrorInfo("poisoned", "Poisoned", "half")))
    _retry(harness)

    harness.answer("p", boom())

    assert harness.undo_all() == ["p:b", "p:a"]
    assert harness.state("p") is ProcedureState.ROLLEDBACK


def test_a_tree_goes_on_with_what_each_member_was_about_to_do() -> None:
    """One child failed, one had finished, one waited for an event, one had not started; the parent waited for all."""
    harness = CoreHarness(2)
    harness.submit(harness.new("p"))
    children = tuple(harness.new(name) for name in ("bad", "good", "waiting", "late"))
    harness.answer("p", Suspended(state=b"", children=children, max_parallel=3))
    for name in ("good", "waiting"):
        if name in harness.inbox:
            harness.answer(name, DONE if name == "good" else Waited(state=b"", event="go"))
    harness.answer("bad", boom())
    for name in list(harness.inbox):
        harness.answer(name, Waited(state=b"", event="go") if name == "waiting" else boom("late failure"))
    assert harness.state("p") is ProcedureState.FAILED
    assert harness.state("good") is ProcedureState.SUCCESS

    _retry(harness)

    _agrees(harness)
    assert harness.state("p") is ProcedureState.WAITING
    assert harness.state("waiting") is ProcedureState.WAITING
    harness.answer("bad", DONE)
    harness.handle(Published("go", b"x", 9))
    for _ in range(5):
        for name in list(harness.inbox):
            if name != "p":
                harness.answer(name, DONE)
    assert harness.inbox["p"].token.step == 2
    _agrees(harness)
    harness.answer("p", DONE)
    assert harness.state("p") is ProcedureState.SUCCESS
    assert harness.resolved() == dict.fromkeys(("p", "bad", "good", "waiting", "late"), ProcedureState.SUCCESS)


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
    harness = CoreHarness(2)
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("a"), harness.new("b"))))
    harness.answer("a", boom())
    harness.now = 1.0
    harness.answer("b", outcome)
    assert harness.state("p") is ProcedureState.FAILED

    _retry(harness)

    record = harness.core.view("b")
    assert record is not None
    assert (record.state, record.due_at) == (state, due_at)
    _agrees(harness)


def test_a_last_step_that_ended_too_late_to_count_runs_again() -> None:
    harness = CoreHarness(2)
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("a"), harness.new("b"))))
    harness.answer("a", boom())
    harness.answer("b", DONE)
    assert harness.state("b") is ProcedureState.FAILED

    _retry(harness)

    assert {name: run.token.step for name, run in harness.inbox.items()} == {"a": 1, "b": 1}
    record = harness.inbox["b"].record
    harness.answer("b", DONE)
    harness.answer("a", DONE)
    harness.answer("p", DONE)
    assert record == 1
    assert harness.state("p") is ProcedureState.SUCCESS
    _agrees(harness)


def _timed_out() -> CoreHarness:
    """p waited too long for the event "go"."""
    harness = CoreHarness(1)
    harness.submit(harness.new("p"))
    harness.answer("p", Waited(state=b"", event="go", timeout=5.0))
    harness.now = 6.0
    harness.handle(Tick())
    assert harness.state("p") is ProcedureState.FAILED
    return harness


def test_a_wait_that_timed_out_is_waited_again() -> None:
    harness = _timed_out()

    _retry(harness)

    assert harness.state("p") is ProcedureState.WAITING
    _agrees(harness)
    harness.handle(Published("go", b"x", 9))
    assert harness.inbox["p"].event == b"x"


def test_a_signal_that_came_after_the_wait_had_timed_out_is_taken_by_the_retry() -> None:
    harness = _timed_out()
    harness.handle(Published("go", b"late", 9))

    _retry(harness)

    assert harness.inbox["p"].event == b"late"
    _agrees(harness)


def test_a_payload_is_there_again_when_the_step_it_was_for_is_retried() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p"))
    harness.answer("p", Waited(state=b"", event="go"))
    harness.handle(Published("go", b"x", 9))
    harness.answer("p", boom())

    _retry(harness)

    assert harness.inbox["p"].event == b"x"


def test_a_deadline_that_has_passed_does_not_stop_a_retry() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p", deadline=10.0))
    harness.answer("p", Waited(state=b"", event="go"))
    harness.now = 11.0
    harness.handle(Tick())
    assert harness.state("p") is ProcedureState.FAILED

    _retry(harness)
    harness.handle(Published("go", b"x", 9))
    harness.answer("p", DONE)

    assert harness.state("p") is ProcedureState.SUCCESS


# ---------------------------------------------------------------- refused
@pytest.mark.parametrize(
    ("outcome", "words"),
    [(DONE, "has succeeded"), (Waited(state=b"", event="e"), "has not failed"), (boom(), "submit it again")],
    ids=["success", "unfinished", "undone"],
)
def test_only_what_has_failed_can_be_retried(outcome: Finished | Waited | Failed, words: str) -> None:
    harness = CoreHarness(1, **UNDOABLE)
    harness.submit(harness.new("p", unit=""))
    harness.answer("p", outcome)
    harness.undo_all()

    error = _retry(harness).error

    assert isinstance(error, NotAllowed)
    assert words in str(error)


def test_children_and_unknown_ids_are_refused() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c"),)))
    harness.answer("c", boom())

    assert "belongs to p" in str(_retry(harness, "c").error)
    assert isinstance(_retry(harness, "nobody").error, UnknownProcedure)


def test_there_is_no_way_forward_after_an_undo() -> None:
    harness = CoreHarness(2)
    harness.register("U", rollback_supported=True)
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c", "U", unit=""),)))
    harness.answer("c", DONE)
    harness.answer("p", boom())
    harness.undo_all()
    assert harness.state("p") is ProcedureState.FAILED

    error = _retry(harness).error

    assert isinstance(error, NotAllowed)
    assert "no way" in str(error)
    assert not harness.inbox


def test_an_undo_of_an_earlier_failure_that_the_parent_took_does_not_bar_the_way_forward() -> None:
    harness = CoreHarness(2, on_child_failure="resume")
    harness.register("U", rollback_supported=True)
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c", "U", unit=""),)))
    harness.answer("c", boom())
    harness.undo_all()
    harness.answer("p", boom())
    assert harness.state("p") is ProcedureState.FAILED

    assert _retry(harness).value is True

    assert harness.inbox["p"].token.step == 2
    assert harness.state("c") is ProcedureState.ROLLEDBACK
    _agrees(harness)


def test_a_key_poisoned_by_somebody_else_refuses_the_way_forward() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p", locks=(KEY,)))
    harness.answer("p", boom())
    harness.register("U", **UNDOABLE)
    harness.submit(harness.new("q", "U", unit="", locks=(KEY,)))
    harness.answer("q", boom())
    harness.answer("q", boom("cannot undo"))

    assert isinstance(_retry(harness).error, KeyPoisoned)
    harness.handle(PoisonCleared("cat/t", 8))
    assert _retry(harness).value is True


# ---------------------------------------------------------------- rollback on demand
def _rollback(harness: CoreHarness, id: str = "p") -> Reply:
    return _reply(harness.handle(RollbackRequested(id, 7, "not wanted any more")))


def test_an_unfinished_root_is_undone_on_demand_and_not_asked() -> None:
    harness = CoreHarness(1, **UNDOABLE, asks_abort=True)
    harness.submit(harness.new("p", unit="a"))
    harness.answer("p", Waited(state=b"", event="go", unit="b"))

    assert _rollback(harness).value is True

    assert harness.undo_all() == ["p:a"]
    assert harness.state("p") is ProcedureState.ROLLEDBACK
    assert harness.core.view("p").error.message == "rolled back on request: not wanted any more"  # type: ignore[union-attr]


def test_a_running_step_ends_before_it_is_undone() -> None:
    harness = CoreHarness(1, **UNDOABLE)
    harness.submit(harness.new("p", unit="a"))

    assert _rollback(harness).value is True
    assert harness.inbox["p"].token.mode is Mode.EXECUTE
    harness.answer("p", Advanced(state=b"", unit="b"))

    assert harness.undo_all() == ["p:a"]


def test_what_cannot_be_rolled_back_is_refused_with_what_to_do() -> None:
    harness = CoreHarness(2, **UNDOABLE)
    harness.register("N")
    harness.submit(harness.new("done", unit=""), harness.new("bare", "N"))
    harness.answer("done", DONE)
    harness.answer("bare", Waited(state=b"", event="go"))

    assert "not kept" in str(_rollback(harness, "done").error)
    assert "abort('bare', force=True)" in str(_rollback(harness, "bare").error)
    assert isinstance(_rollback(harness, "nobody").error, UnknownProcedure)
