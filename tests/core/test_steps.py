"""Steps, retries, waits: one procedure at a time."""

from __future__ import annotations

import msgspec
import pytest

from actorproc.core.queues.backoff import delay, is_exhausted
from actorproc.errors import DuplicateProcedure, UnknownProcedure, UnknownType
from actorproc.model.ids import Mode
from actorproc.model.messages.commands import AnswerWorker, Reply
from actorproc.model.messages.events import (
    AbortRequested,
    NoteMade,
    Published,
    RetryRequested,
    Signalled,
    Tick,
    TypeRegistered,
)
from actorproc.model.messages.outcomes import Advanced, Answered, Failed, Finished, Refused, Slept, Suspended, Waited
from actorproc.model.policies import Backoff, TypeMeta
from actorproc.model.rows.records import ErrorInfo, StepKind
from actorproc.model.rows.writes import PutNote, PutStep, PutUndo
from actorproc.model.states import Phase, ProcedureState
from tests.core.stage import Stage, boom, difference, later


def test_a_submit_is_answered_in_the_decision_that_stores_it() -> None:
    stage = Stage()

    reply = stage.submit(stage.new("p"))

    assert reply.value == ("p",)
    assert [(w.record.number, w.record.kind) for w in stage.writes if isinstance(w, PutStep)] == [(1, StepKind.STEP)]
    assert stage.inbox["p"].token.attempt == 1


def test_each_step_leaves_its_record_and_hands_out_the_next_in_one_decision() -> None:
    stage = Stage()
    stage.submit(stage.new("p"))

    decision = stage.answer("p", Advanced(state=b"1"))

    steps = [write.record for write in decision.writes if isinstance(write, PutStep)]
    assert [(s.number, s.state, s.outcome, s.attempts) for s in steps] == [(2, b"1", "executing", 1)]
    assert stage.inbox["p"].token.step == 2
    assert stage.inbox["p"].warm

    stage.answer("p", Finished(state=b"2", output=b"out"))
    closing = [write.record for write in stage.writes if isinstance(write, PutStep)][-1]
    assert (closing.number, closing.kind, closing.output) == (3, StepKind.COMMIT, b"out")
    assert stage.resolved() == {"p": ProcedureState.SUCCESS}


def test_steps_run_without_persisting_are_counted_in_the_number_of_the_next_record() -> None:
    stage = Stage()
    stage.submit(stage.new("p"))

    stage.answer("p", Advanced(state=b"5", steps=4))

    assert stage.inbox["p"].token.step == 5


def test_an_answer_from_another_attempt_epoch_or_twice_is_dropped_and_counted() -> None:
    stage = Stage()
    stage.submit(stage.new("p"))
    run = stage.inbox["p"]
    stage.answer("p", Advanced(state=b"1"))
    stage.inbox["p"] = run

    decision = stage.answer("p", Advanced(state=b"again"))

    assert decision.writes == []
    assert decision.commands == []
    assert stage.core.stale_results == 1


def test_a_retryable_error_is_tried_again_after_a_growing_pause_and_then_fails() -> None:
    stage = Stage(retry=Backoff(max_attempts=3, base=1.0, jitter=0.0), rollback_supported=False)
    stage.submit(stage.new("p"))
    pauses = []
    for _ in range(2):
        stage.answer("p", later())
        record = stage.core.view("p")
        assert record is not None
        assert stage.core.phase(record)[0] is Phase.RETRYING
        due = stage.core.next_deadline()
        assert due is not None
        pauses.append(due - stage.now)
        stage.now = due
        stage.handle(Tick())
        assert stage.inbox["p"].replayed
    stage.answer("p", later("still busy"))

    assert pauses == [1.0, 2.0]
    assert stage.resolved() == {"p": ProcedureState.FAILED}


def test_a_committed_step_resets_the_error_budget() -> None:
    stage = Stage(retry=Backoff(max_attempts=2, base=1.0))
    stage.submit(stage.new("p"))
    for _ in range(3):
        stage.answer("p", later(after=1.0))
        stage.now += 1.0
        stage.handle(Tick())
        stage.answer("p", Advanced(state=b""))

    assert stage.state("p") is ProcedureState.RUNNABLE


def test_a_fatal_error_fails_at_once() -> None:
    stage = Stage()
    stage.submit(stage.new("p"))

    stage.answer("p", boom())

    assert stage.resolved() == {"p": ProcedureState.FAILED}


def test_jitter_depends_on_the_step_alone_and_stays_within_its_share() -> None:
    policy = Backoff(base=1.0, factor=2.0, cap=3.0, jitter=0.5)

    first = delay(policy, procedure="p", step=1, errors=1)

    assert first == delay(policy, procedure="p", step=1, errors=1)
    assert 1.0 <= first <= 1.5
    assert 3.0 <= delay(policy, procedure="p", step=1, errors=9) <= 4.5
    assert len({delay(policy, procedure=f"p{n}", step=1, errors=1) for n in range(20)}) == 20


def test_the_budget_ends_with_the_attempts_or_with_the_elapsed_time() -> None:
    policy = Backoff(max_attempts=5, max_elapsed=10.0)

    assert not is_exhausted(policy, errors=4, first_error_at=0.0, now=9.9)
    assert is_exhausted(policy, errors=5, first_error_at=0.0, now=0.0)
    assert is_exhausted(policy, errors=2, first_error_at=0.0, now=10.0)


def test_a_step_is_tried_again_until_its_time_is_up_counted_from_the_first_error() -> None:
    stage = Stage(retry=Backoff(max_attempts=100, base=1.0, factor=1.0, jitter=0.0, max_elapsed=10.0))
    stage.submit(stage.new("p"))
    stage.now = 5.0
    for second in (5.0, 9.0, 14.0):
        stage.now = second
        stage.handle(Tick())
        stage.answer("p", later())
        record = stage.core.view("p")
        assert record is not None
        assert (record.first_error_at, record.due_at) == (5.0, second + 1.0)
    stage.now = 15.0
    stage.handle(Tick())

    stage.answer("p", later())

    assert stage.state("p") is ProcedureState.FAILED


def test_an_undo_is_tried_again_until_its_time_is_up_counted_from_the_first_error() -> None:
    policy = Backoff(max_attempts=100, base=1.0, factor=1.0, jitter=0.0, max_elapsed=10.0)
    stage = Stage(rollback_supported=True, rollback_retry=policy)
    stage.submit(stage.new("p", unit="a"))
    stage.answer("p", boom())
    for second in (0.0, 9.0):
        stage.now = second
        stage.handle(Tick())
        stage.answer("p", later())
        assert stage.state("p") is ProcedureState.RUNNABLE
    stage.now = 10.0
    stage.handle(Tick())

    stage.answer("p", later())

    assert stage.state("p") is ProcedureState.FAILED


def test_a_record_of_the_log_says_how_a_step_and_an_undo_ended_and_by_which_class() -> None:
    stage = Stage(rollback_supported=True, version=3, codec="pickle")
    stage.submit(stage.new("p", unit="a"), stage.new("q", unit="a"))
    stage.answer("p", Finished(state=b"1"))
    stage.answer("q", boom())
    stage.answer("q", Advanced(state=b"2", version=2, codec="data"))
    stage.answer("q", Finished(state=b"3"))

    rows = [write.record for write in stage.writes if isinstance(write, PutStep) and write.record.number > 1]

    assert [(row.procedure, row.number, row.outcome, row.label, row.version, row.codec) for row in rows[:3]] == [
        ("p", 2, "done", None, 3, "pickle"),
        ("q", 2, "undoing", "a", 2, "data"),
        ("q", 3, "undone", "a", 3, "pickle"),
    ]


def test_a_parent_that_fails_for_its_child_names_the_step_of_the_child_and_keeps_its_traceback() -> None:
    stage = Stage()
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c"),)))
    failure = ErrorInfo("error", "ValueError", "boom", "Traceback: here", procedure="c", step=1)

    stage.answer("c", Failed(error=failure, retryable=False))

    record = stage.core.view("p")
    assert record is not None
    assert record.error is not None
    assert (record.error.kind, record.error.procedure, record.error.step) == ("child", "c", 1)
    assert record.error.traceback == "Traceback: here"


def test_a_sleeper_keeps_nothing_but_a_timer_in_memory_and_wakes_when_due() -> None:
    stage = Stage()
    stage.submit(stage.new("p"))
    stage.answer("p", Slept(state=b"s", seconds=60.0))
    record = stage.core.view("p")
    assert record is not None
    assert record.state is ProcedureState.WAITING_TIMEOUT

    stage.core.settle(stage.core.seal())
    assert stage.core.view("p") is None

    stage.now = 60.0
    assert stage.core.missing(Tick(), stage.now) == ("p",)
    stage.core.load([record], [])
    stage.handle(Tick())
    assert stage.inbox["p"].token.step == 2


def test_a_delayed_submit_starts_when_its_time_has_come() -> None:
    stage = Stage()
    stage.submit(stage.new("p", due_at=5.0))
    assert "p" not in stage.inbox

    stage.now = 5.0
    stage.handle(Tick())

    assert stage.inbox["p"].token.step == 1
    assert not stage.inbox["p"].replayed


def test_a_signal_wakes_the_waiter_with_its_payload_and_an_early_one_is_kept() -> None:
    stage = Stage()
    stage.submit(stage.new("p"))
    stage.answer("p", Waited(state=b"", event="paid"))
    assert stage.state("p") is ProcedureState.WAITING

    stage.handle(Published("paid", b"9", reply=2))
    assert stage.inbox["p"].event == b"9"

    stage.handle(Signalled("p", b"early", reply=3, dedup="k"))
    stage.handle(Signalled("p", b"twice", reply=4, dedup="k"))
    stage.answer("p", Waited(state=b"", event="shipped"))
    assert stage.inbox["p"].event == b"early"
    stage.answer("p", Waited(state=b"", event="shipped"))
    assert stage.state("p") is ProcedureState.WAITING


@pytest.mark.parametrize("has_on_timeout", [False, True])
def test_a_wait_that_times_out_fails_or_calls_on_timeout(has_on_timeout: bool) -> None:
    stage = Stage(has_on_timeout=has_on_timeout)
    stage.submit(stage.new("p"))
    stage.answer("p", Waited(state=b"", event="paid", timeout=10.0))

    stage.now = 10.0
    stage.handle(Tick())

    if has_on_timeout:
        assert stage.inbox["p"].token.mode is Mode.ON_TIMEOUT
        stage.answer("p", Finished(state=b""))
        assert stage.state("p") is ProcedureState.SUCCESS
    else:
        record = stage.core.view("p")
        assert record is not None
        assert record.error is not None
        assert record.error.kind == "wait-timeout"


def test_a_deadline_fails_a_waiter_at_once_and_kills_a_running_step() -> None:
    stage = Stage(workers=2)
    stage.submit(stage.new("waits", deadline=10.0), stage.new("runs", deadline=10.0))
    stage.answer("waits", Waited(state=b"", event="never"))

    stage.now = 10.0
    stage.handle(Tick())

    assert stage.state("waits") is ProcedureState.FAILED
    assert [kill.token.procedure for kill in stage.kills()] == ["runs"]
    stage.kill(stage.kills()[0].worker.slot)
    record = stage.core.view("runs")
    assert record is not None
    assert record.error is not None
    assert (record.state, record.error.kind) == (ProcedureState.FAILED, "deadline")


def test_the_same_id_with_the_same_start_is_the_same_submit_and_with_another_is_refused() -> None:
    stage = Stage()
    stage.register("U")
    stage.submit(stage.new("p"))

    assert stage.submit(stage.new("p")).value == ("p",)
    assert len(stage.order) == 1
    other = stage.new("p")
    assert isinstance(stage.submit(stage.new("p", "U")).error, DuplicateProcedure)
    changed = type(other)(id="p", type_name="T", state=b"1", digest=b"e")
    assert isinstance(stage.submit(stage.new("q"), changed).error, DuplicateProcedure)
    assert stage.core.view("q") is None, "all or nothing"


def test_an_unregistered_type_is_refused_by_name() -> None:
    stage = Stage()

    error = stage.submit(stage.new("p", "Unknown")).error

    assert isinstance(error, UnknownType)
    assert "Unknown" in str(error)


def test_a_state_that_the_class_refuses_parks_the_procedure_until_it_is_registered_again() -> None:
    stage = Stage()
    stage.submit(stage.new("p"))

    stage.answer("p", Refused(reason="field gone"))

    record = stage.core.view("p")
    assert record is not None
    assert stage.core.phase(record) == (Phase.PARKED, "field gone")
    stage.handle(TypeRegistered(TypeMeta(type_name="T")))
    assert stage.inbox["p"].token.attempt == 2


@pytest.mark.parametrize("asks", [False, True])
def test_an_abort_takes_effect_at_the_end_of_the_running_step(asks: bool) -> None:
    stage = Stage(asks_abort=asks)
    stage.submit(stage.new("p"))

    decision = stage.handle(AbortRequested("p", reply=7))
    assert Reply(7, True) in decision.commands
    stage.answer("p", Advanced(state=b""))

    if asks:
        assert stage.inbox["p"].token.mode is Mode.ASK_ABORT
        stage.answer("p", Answered(allowed=False))
        stage.answer("p", Advanced(state=b""))
        stage.answer("p", Answered(allowed=True))
    record = stage.core.view("p")
    assert record is not None
    assert record.error is not None
    assert record.error.kind == "aborted"


def test_aborting_an_ended_procedure_is_false_and_an_unknown_one_an_error() -> None:
    stage = Stage()
    stage.submit(stage.new("p"))
    stage.answer("p", Finished(state=b""))

    assert Reply(1, False) in stage.handle(AbortRequested("p", reply=1)).commands
    error = next(c.error for c in stage.handle(AbortRequested("q", reply=2)).commands if isinstance(c, Reply))
    assert isinstance(error, UnknownProcedure)


def test_a_note_is_stored_before_its_step_goes_on() -> None:
    stage = Stage()
    stage.submit(stage.new("p"))
    token = stage.inbox["p"].token

    decision = stage.handle(NoteMade(token, "old", b"v", request=5))

    assert [type(write) for write in decision.writes] == [PutNote]
    assert decision.commands == [AnswerWorker(token, 5)]


def test_a_note_belongs_to_its_step_also_where_the_steps_before_it_left_no_record() -> None:
    stage = Stage()
    stage.submit(stage.new("p"))
    token = stage.inbox["p"].token

    for step in (0, 1, 2):
        stage.handle(NoteMade(token, "old", b"v", request=5, step=step))

    notes = [write.record for write in stage.writes if isinstance(write, PutNote)]
    assert [note.step for note in notes] == [1, 1, 2]


@pytest.mark.parametrize("persist", [False, True])
def test_a_step_that_may_have_followed_without_a_record_in_an_attempt_that_died_is_a_repetition(persist: bool) -> None:
    stage = Stage(2)
    stage.submit(stage.new("p"))
    stage.kill(stage.inbox["p"].token.worker.slot)
    assert stage.inbox["p"].replayed

    stage.answer("p", Advanced(state=b"1", persist=persist))

    assert (stage.inbox["p"].token.step, stage.inbox["p"].replayed) == (2, not persist)
    stage.answer("p", Advanced(state=b"2"))
    assert (stage.inbox["p"].token.step, stage.inbox["p"].replayed) == (3, False)
    assert difference(stage) is None


@pytest.mark.parametrize("allowed", [False, True])
def test_what_abort_did_to_the_object_is_not_kept_as_nothing_of_it_is_stored(allowed: bool) -> None:
    stage = Stage(asks_abort=True, rollback_supported=True)
    stage.submit(stage.new("p", unit="a"))
    stage.handle(AbortRequested("p", reply=1))
    stage.answer("p", Advanced(state=b"1", unit="b"))
    assert stage.inbox["p"].token.mode is Mode.ASK_ABORT

    stage.answer("p", Answered(allowed=allowed))

    assert (stage.inbox["p"].token.mode, stage.inbox["p"].warm) == (
        Mode.ROLLBACK if allowed else Mode.EXECUTE,
        False,
    )


def test_one_that_is_done_when_its_wait_was_over_ends_at_once_and_cancels_its_children() -> None:
    stage = Stage(2, has_on_timeout=True)
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("a"), stage.new("b")), wait="any"))
    stage.answer("a", Finished(state=b""))
    stage.answer("p", Waited(state=b"", event="never", timeout=1.0))
    stage.now = 2.0
    stage.handle(Tick())
    assert stage.inbox["p"].token.mode is Mode.ON_TIMEOUT

    stage.answer("p", Finished(state=b""))
    assert stage.state("p") is ProcedureState.SUCCESS
    assert stage.handle(Signalled("p", b"x", reply=2)).commands == [Reply(2, value=False)]
    stage.answer("b", Finished(state=b""))

    assert stage.resolved() == dict.fromkeys("ap", ProcedureState.SUCCESS) | {"b": ProcedureState.FAILED}
    assert difference(stage) is None


def test_one_undo_unit_is_pushed_per_label_and_before_the_step_runs() -> None:
    stage = Stage(rollback_supported=True)
    stage.submit(stage.new("p", unit="pay"))
    stage.answer("p", Advanced(state=b"", unit="pay"))
    stage.answer("p", Advanced(state=b"", unit="ship"))
    stage.answer("p", Advanced(state=b"", unit=None))

    units = [(write.record.seq, write.record.label) for write in stage.writes if isinstance(write, PutUndo)]
    assert units == [(1, "pay"), (2, "ship")]


def test_a_higher_priority_goes_first_and_started_work_before_new_roots() -> None:
    stage = Stage()
    stage.submit(stage.new("first"))
    stage.submit(stage.new("low"), stage.new("high", priority=5))
    stage.answer("first", Advanced(state=b"", elapsed=1.0))

    assert [name for name, _, _ in stage.order] == ["first", "high"]
    stage.answer("high", Finished(state=b"", elapsed=1.0))
    assert stage.order[-1][0] == "first"


def test_an_answer_that_comes_before_the_deadlines_kill_counts_and_the_procedure_fails_all_the_same() -> None:
    stage = Stage()
    stage.submit(stage.new("p", deadline=10.0))
    stage.now = 10.0
    stage.handle(Tick())
    assert stage.kills()

    stage.answer("p", Advanced(state=b"1"))

    record = stage.core.view("p")
    assert record is not None
    assert record.error is not None
    assert (record.step, record.error.kind) == (2, "deadline")


def test_a_procedure_whose_deadline_has_passed_already_is_never_handed_out() -> None:
    stage = Stage()
    stage.now = 20.0

    assert stage.submit(stage.new("p", deadline=10.0)).value == ("p",)

    assert stage.order == []
    record = stage.core.view("p")
    assert record is not None
    assert record.error is not None
    assert record.error.kind == "deadline"


def first_records_of(decision) -> list[tuple[int, bytes, str]]:
    steps = [write.record for write in decision.writes if isinstance(write, PutStep)]
    return [(step.number, step.state, step.outcome) for step in steps if step.number == 1]


def test_a_state_that_nobody_needs_after_the_end_is_emptied_with_it() -> None:
    stage = Stage()
    stage.submit(stage.new("p"))
    began = next(write.record for write in stage.writes if isinstance(write, PutStep))

    decision = stage.answer("p", Finished(state=b"", output=b"out", is_spent=True, codec="pickle", version=1))

    (emptied,) = (w.record for w in decision.writes if isinstance(w, PutStep) and w.record.number == 1)
    assert emptied == msgspec.structs.replace(began, state=b"", codec="pickle")
    assert stage.state("p") is ProcedureState.SUCCESS


def test_a_state_is_kept_when_there_are_steps_after_it_or_somebody_may_come_back_to_it() -> None:
    stage = Stage()
    stage.submit(stage.new("steps"))
    stage.answer("steps", Advanced(state=b"1"))
    assert first_records_of(stage.answer("steps", Finished(state=b"", is_spent=True))) == []

    stage.submit(stage.new("parent"))
    stage.answer("parent", Suspended(state=b"1", children=(stage.new("child"),)))
    assert first_records_of(stage.answer("child", Finished(state=b"", is_spent=True))) == []

    stage.submit(stage.new("retried"))
    stage.answer("retried", boom())
    stage.handle(RetryRequested("retried", 8))
    assert first_records_of(stage.answer("retried", Finished(state=b"", is_spent=True))) == []
