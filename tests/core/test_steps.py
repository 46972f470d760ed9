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
    StepReported,
    Tick,
    TypeRegistered,
)
from actorproc.model.messages.outcomes import Advanced, Answered, Failed, Finished, Refused, Slept, Suspended, Waited
from actorproc.model.policies import Backoff, TypeMeta
from actorproc.model.rows.records import ErrorInfo, ExposedRecord, NoteRecord, StepKind
from actorproc.model.rows.writes import PutNote, PutProcedure, PutStep, PutUndo
from actorproc.model.states import Phase, ProcedureState
from tests.core.harness import CoreHarness, boom, difference, later


def test_a_submit_is_answered_in_the_decision_that_stores_it() -> None:
    harness = CoreHarness()

    reply = harness.submit(harness.new("p"))

    assert reply.value == ("p",)
    assert [(w.record.number, w.record.kind) for w in harness.writes if isinstance(w, PutStep)] == [(1, StepKind.STEP)]
    assert harness.inbox["p"].token.attempt == 1


def test_each_step_leaves_its_record_and_hands_out_the_next_in_one_decision() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))

    decision = harness.answer("p", Advanced(state=b"1"))

    steps = [write.record for write in decision.writes if isinstance(write, PutStep)]
    assert [(s.number, s.state, s.outcome, s.attempts) for s in steps] == [(2, b"1", "executing", 1)]
    assert harness.inbox["p"].token.step == 2
    assert harness.inbox["p"].warm

    harness.answer("p", Finished(state=b"2", output=b"out"))
    closing = [write.record for write in harness.writes if isinstance(write, PutStep)][-1]
    assert (closing.number, closing.kind, closing.output) == (3, StepKind.COMMIT, b"out")
    assert harness.resolved() == {"p": ProcedureState.SUCCESS}


def test_steps_run_without_persisting_are_counted_in_the_number_of_the_next_record() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))

    harness.answer("p", Advanced(state=b"5", steps=4))

    assert harness.inbox["p"].token.step == 5


def test_an_answer_from_another_attempt_epoch_or_twice_is_dropped_and_counted() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    run = harness.inbox["p"]
    harness.answer("p", Advanced(state=b"1"))
    harness.inbox["p"] = run

    decision = harness.answer("p", Advanced(state=b"again"))

    assert decision.writes == []
    assert decision.commands == []
    assert harness.core.stale_results == 1


def test_a_retryable_error_is_tried_again_after_a_growing_pause_and_then_fails() -> None:
    harness = CoreHarness(retry=Backoff(max_attempts=3, base=1.0, jitter=0.0), rollback_supported=False)
    harness.submit(harness.new("p"))
    pauses = []
    for _ in range(2):
        harness.answer("p", later())
        record = harness.core.view("p")
        assert record is not None
        assert harness.core.phase(record)[0] is Phase.RETRYING
        due = harness.core.next_deadline()
        assert due is not None
        pauses.append(due - harness.now)
        harness.now = due
        harness.handle(Tick())
        assert harness.inbox["p"].replayed
    harness.answer("p", later("still busy"))

    assert pauses == [1.0, 2.0]
    assert harness.resolved() == {"p": ProcedureState.FAILED}


def test_a_committed_step_resets_the_error_budget() -> None:
    harness = CoreHarness(retry=Backoff(max_attempts=2, base=1.0))
    harness.submit(harness.new("p"))
    for _ in range(3):
        harness.answer("p", later(after=1.0))
        harness.now += 1.0
        harness.handle(Tick())
        harness.answer("p", Advanced(state=b""))

    assert harness.state("p") is ProcedureState.RUNNABLE


def test_a_fatal_error_fails_at_once() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))

    harness.answer("p", boom())

    assert harness.resolved() == {"p": ProcedureState.FAILED}


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
    harness = CoreHarness(retry=Backoff(max_attempts=100, base=1.0, factor=1.0, jitter=0.0, max_elapsed=10.0))
    harness.submit(harness.new("p"))
    harness.now = 5.0
    for second in (5.0, 9.0, 14.0):
        harness.now = second
        harness.handle(Tick())
        harness.answer("p", later())
        record = harness.core.view("p")
        assert record is not None
        assert (record.first_error_at, record.due_at) == (5.0, second + 1.0)
    harness.now = 15.0
    harness.handle(Tick())

    harness.answer("p", later())

    assert harness.state("p") is ProcedureState.FAILED


def test_an_undo_is_tried_again_until_its_time_is_up_counted_from_the_first_error() -> None:
    policy = Backoff(max_attempts=100, base=1.0, factor=1.0, jitter=0.0, max_elapsed=10.0)
    harness = CoreHarness(rollback_supported=True, rollback_retry=policy)
    harness.submit(harness.new("p", unit="a"))
    harness.answer("p", boom())
    for second in (0.0, 9.0):
        harness.now = second
        harness.handle(Tick())
        harness.answer("p", later())
        assert harness.state("p") is ProcedureState.RUNNABLE
    harness.now = 10.0
    harness.handle(Tick())

    harness.answer("p", later())

    assert harness.state("p") is ProcedureState.FAILED


def test_a_record_of_the_log_says_how_a_step_and_an_undo_ended_and_by_which_class() -> None:
    harness = CoreHarness(rollback_supported=True, version=3, codec="pickle")
    harness.submit(harness.new("p", unit="a"), harness.new("q", unit="a"))
    harness.answer("p", Finished(state=b"1"))
    harness.answer("q", boom())
    harness.answer("q", Advanced(state=b"2", version=2, codec="data"))
    harness.answer("q", Finished(state=b"3"))

    rows = [write.record for write in harness.writes if isinstance(write, PutStep) and write.record.number > 1]

    assert [(row.procedure, row.number, row.outcome, row.label, row.version, row.codec) for row in rows[:3]] == [
        ("p", 2, "done", None, 3, "pickle"),
        ("q", 2, "undoing", "a", 2, "data"),
        ("q", 3, "undone", "a", 3, "pickle"),
    ]


def test_a_parent_that_fails_for_its_child_names_the_step_of_the_child_and_keeps_its_traceback() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c"),)))
    failure = ErrorInfo("error", "ValueError", "boom", "Traceback: here", procedure="c", step=1)

    harness.answer("c", Failed(error=failure, retryable=False))

    record = harness.core.view("p")
    assert record is not None
    assert record.error is not None
    assert (record.error.kind, record.error.procedure, record.error.step) == ("child", "c", 1)
    assert record.error.traceback == "Traceback: here"


def test_a_sleeper_keeps_nothing_but_a_timer_in_memory_and_wakes_when_due() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    harness.answer("p", Slept(state=b"s", seconds=60.0))
    record = harness.core.view("p")
    assert record is not None
    assert record.state is ProcedureState.WAITING_TIMEOUT

    harness.core.settle(harness.core.seal())
    assert harness.core.view("p") is None

    harness.now = 60.0
    assert harness.core.missing(Tick(), harness.now) == ("p",)
    harness.core.load([record], [])
    harness.handle(Tick())
    assert harness.inbox["p"].token.step == 2


def test_a_delayed_submit_starts_when_its_time_has_come() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p", due_at=5.0))
    assert "p" not in harness.inbox

    harness.now = 5.0
    harness.handle(Tick())

    assert harness.inbox["p"].token.step == 1
    assert not harness.inbox["p"].replayed


def test_a_signal_wakes_the_waiter_with_its_payload_and_an_early_one_is_kept() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    harness.answer("p", Waited(state=b"", event="paid"))
    assert harness.state("p") is ProcedureState.WAITING

    harness.handle(Published("paid", b"9", reply=2))
    assert harness.inbox["p"].event == b"9"

    harness.handle(Signalled("p", b"early", reply=3, dedup="k"))
    harness.handle(Signalled("p", b"twice", reply=4, dedup="k"))
    harness.answer("p", Waited(state=b"", event="shipped"))
    assert harness.inbox["p"].event == b"early"
    harness.answer("p", Waited(state=b"", event="shipped"))
    assert harness.state("p") is ProcedureState.WAITING


@pytest.mark.parametrize("has_on_timeout", [False, True])
def test_a_wait_that_times_out_fails_or_calls_on_timeout(has_on_timeout: bool) -> None:
    harness = CoreHarness(has_on_timeout=has_on_timeout)
    harness.submit(harness.new("p"))
    harness.answer("p", Waited(state=b"", event="paid", timeout=10.0))

    harness.now = 10.0
    harness.handle(Tick())

    if has_on_timeout:
        assert harness.inbox["p"].token.mode is Mode.ON_TIMEOUT
        harness.answer("p", Finished(state=b""))
        assert harness.state("p") is ProcedureState.SUCCESS
    else:
        record = harness.core.view("p")
        assert record is not None
        assert record.error is not None
        assert record.error.kind == "wait-timeout"


def test_a_deadline_fails_a_waiter_at_once_and_kills_a_running_step() -> None:
    harness = CoreHarness(workers=2)
    harness.submit(harness.new("waits", deadline=10.0), harness.new("runs", deadline=10.0))
    harness.answer("waits", Waited(state=b"", event="never"))

    harness.now = 10.0
    harness.handle(Tick())

    assert harness.state("waits") is ProcedureState.FAILED
    assert [kill.token.procedure for kill in harness.kills()] == ["runs"]
    harness.kill(harness.kills()[0].worker.slot)
    record = harness.core.view("runs")
    assert record is not None
    assert record.error is not None
    assert (record.state, record.error.kind) == (ProcedureState.FAILED, "deadline")


def test_the_same_id_with_the_same_start_is_the_same_submit_and_with_another_is_refused() -> None:
    harness = CoreHarness()
    harness.register("U")
    harness.submit(harness.new("p"))

    assert harness.submit(harness.new("p")).value == ("p",)
    assert len(harness.order) == 1
    other = harness.new("p")
    assert isinstance(harness.submit(harness.new("p", "U")).error, DuplicateProcedure)
    changed = type(other)(id="p", type_name="T", state=b"1", digest=b"e")
    assert isinstance(harness.submit(harness.new("q"), changed).error, DuplicateProcedure)
    assert harness.core.view("q") is None, "all or nothing"


def test_an_unregistered_type_is_refused_by_name() -> None:
    harness = CoreHarness()

    error = harness.submit(harness.new("p", "Unknown")).error

    assert isinstance(error, UnknownType)
    assert "Unknown" in str(error)


def test_a_state_that_the_class_refuses_parks_the_procedure_until_it_is_registered_again() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))

    harness.answer("p", Refused(reason="field gone"))

    record = harness.core.view("p")
    assert record is not None
    assert harness.core.phase(record) == (Phase.PARKED, "field gone")
    harness.handle(TypeRegistered(TypeMeta(type_name="T")))
    assert harness.inbox["p"].token.attempt == 2


@pytest.mark.parametrize("asks", [False, True])
def test_an_abort_takes_effect_at_the_end_of_the_running_step(asks: bool) -> None:
    harness = CoreHarness(asks_abort=asks)
    harness.submit(harness.new("p"))

    decision = harness.handle(AbortRequested("p", reply=7))
    assert Reply(7, True) in decision.commands
    harness.answer("p", Advanced(state=b""))

    if asks:
        assert harness.inbox["p"].token.mode is Mode.ASK_ABORT
        harness.answer("p", Answered(allowed=False))
        harness.answer("p", Advanced(state=b""))
        harness.answer("p", Answered(allowed=True))
    record = harness.core.view("p")
    assert record is not None
    assert record.error is not None
    assert record.error.kind == "aborted"


def test_aborting_an_ended_procedure_is_false_and_an_unknown_one_an_error() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    harness.answer("p", Finished(state=b""))

    assert Reply(1, False) in harness.handle(AbortRequested("p", reply=1)).commands
    error = next(c.error for c in harness.handle(AbortRequested("q", reply=2)).commands if isinstance(c, Reply))
    assert isinstance(error, UnknownProcedure)


def test_a_note_is_stored_before_its_step_goes_on() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    token = harness.inbox["p"].token

    decision = harness.handle(NoteMade(token, "old", b"v", request=5))

    assert [type(write) for write in decision.writes] == [PutNote]
    assert decision.commands == [AnswerWorker(token, 5)]


def test_a_note_belongs_to_its_step_also_where_the_steps_before_it_left_no_record() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    token = harness.inbox["p"].token

    for step in (0, 1, 2):
        harness.handle(NoteMade(token, "old", b"v", request=5, step=step))

    notes = [write.record for write in harness.writes if isinstance(write, PutNote)]
    assert [note.step for note in notes] == [1, 1, 2]


@pytest.mark.parametrize(
    ("mode", "key"), [(Mode.EXECUTE, "heartbeat()\n"), (Mode.ROLLBACK, "rollback()\nheartbeat()\n")]
)
def test_reports_of_a_running_step_are_stored_and_change_nothing_else(mode: Mode, key: str) -> None:
    harness = CoreHarness(rollback_supported=True)
    harness.submit(harness.new("p", unit="reserve"))
    if mode is Mode.ROLLBACK:
        harness.answer("p", boom())
    token = harness.inbox["p"].token
    assert token.mode is mode
    harness.now = 7.0

    decision = harness.handle(StepReported(token, (("copied", b"\x01"), ("of", b"\x02")), b"\x03", key))

    assert decision.commands == []
    assert [write.record for write in decision.writes if not isinstance(write, PutProcedure)] == [
        ExposedRecord("p", "copied", b"\x01", 7.0),
        ExposedRecord("p", "of", b"\x02", 7.0),
        NoteRecord("p", token.step, key, b"\x03"),
    ]


def test_reports_that_come_after_the_answer_of_their_step_are_dropped() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    token = harness.inbox["p"].token
    harness.answer("p", boom(retryable=True, after=5.0))

    assert harness.handle(StepReported(token, (("copied", b"\x01"),), b"\x03")).writes == []
    assert harness.core.stale_results == 1


@pytest.mark.parametrize("persist", [False, True])
def test_a_step_that_may_have_followed_without_a_record_in_an_attempt_that_died_is_a_repetition(persist: bool) -> None:
    harness = CoreHarness(2)
    harness.submit(harness.new("p"))
    harness.kill(harness.inbox["p"].token.worker.slot)
    assert harness.inbox["p"].replayed

    harness.answer("p", Advanced(state=b"1", persist=persist))

    assert (harness.inbox["p"].token.step, harness.inbox["p"].replayed) == (2, not persist)
    harness.answer("p", Advanced(state=b"2"))
    assert (harness.inbox["p"].token.step, harness.inbox["p"].replayed) == (3, False)
    assert difference(harness) is None


@pytest.mark.parametrize("allowed", [False, True])
def test_what_abort_did_to_the_object_is_not_kept_as_nothing_of_it_is_stored(allowed: bool) -> None:
    harness = CoreHarness(asks_abort=True, rollback_supported=True)
    harness.submit(harness.new("p", unit="a"))
    harness.handle(AbortRequested("p", reply=1))
    harness.answer("p", Advanced(state=b"1", unit="b"))
    assert harness.inbox["p"].token.mode is Mode.ASK_ABORT

    harness.answer("p", Answered(allowed=allowed))

    assert (harness.inbox["p"].token.mode, harness.inbox["p"].warm) == (
        Mode.ROLLBACK if allowed else Mode.EXECUTE,
        False,
    )


def test_one_that_is_done_when_its_wait_was_over_ends_at_once_and_cancels_its_children() -> None:
    harness = CoreHarness(2, has_on_timeout=True)
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("a"), harness.new("b")), wait="any"))
    harness.answer("a", Finished(state=b""))
    harness.answer("p", Waited(state=b"", event="never", timeout=1.0))
    harness.now = 2.0
    harness.handle(Tick())
    assert harness.inbox["p"].token.mode is Mode.ON_TIMEOUT

    harness.answer("p", Finished(state=b""))
    assert harness.state("p") is ProcedureState.SUCCESS
    assert harness.handle(Signalled("p", b"x", reply=2)).commands == [Reply(2, value=False)]
    harness.answer("b", Finished(state=b""))

    assert harness.resolved() == dict.fromkeys("ap", ProcedureState.SUCCESS) | {"b": ProcedureState.FAILED}
    assert difference(harness) is None


def test_one_undo_unit_is_pushed_per_label_and_before_the_step_runs() -> None:
    harness = CoreHarness(rollback_supported=True)
    harness.submit(harness.new("p", unit="pay"))
    harness.answer("p", Advanced(state=b"", unit="pay"))
    harness.answer("p", Advanced(state=b"", unit="ship"))
    harness.answer("p", Advanced(state=b"", unit=None))

    units = [(write.record.seq, write.record.label) for write in harness.writes if isinstance(write, PutUndo)]
    assert units == [(1, "pay"), (2, "ship")]


def test_a_higher_priority_goes_first_and_started_work_before_new_roots() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("first"))
    harness.submit(harness.new("low"), harness.new("high", priority=5))
    harness.answer("first", Advanced(state=b"", elapsed=1.0))

    assert [name for name, _, _ in harness.order] == ["first", "high"]
    harness.answer("high", Finished(state=b"", elapsed=1.0))
    assert harness.order[-1][0] == "first"


def test_an_answer_that_comes_before_the_deadlines_kill_counts_and_the_procedure_fails_all_the_same() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p", deadline=10.0))
    harness.now = 10.0
    harness.handle(Tick())
    assert harness.kills()

    harness.answer("p", Advanced(state=b"1"))

    record = harness.core.view("p")
    assert record is not None
    assert record.error is not None
    assert (record.step, record.error.kind) == (2, "deadline")


def test_a_procedure_whose_deadline_has_passed_already_is_never_handed_out() -> None:
    harness = CoreHarness()
    harness.now = 20.0

    assert harness.submit(harness.new("p", deadline=10.0)).value == ("p",)

    assert harness.order == []
    record = harness.core.view("p")
    assert record is not None
    assert record.error is not None
    assert record.error.kind == "deadline"


def first_records_of(decision) -> list[tuple[int, bytes, str]]:
    steps = [write.record for write in decision.writes if isinstance(write, PutStep)]
    return [(step.number, step.state, step.outcome) for step in steps if step.number == 1]


def test_a_state_that_nobody_needs_after_the_end_is_emptied_with_it() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    began = next(write.record for write in harness.writes if isinstance(write, PutStep))

    decision = harness.answer("p", Finished(state=b"", output=b"out", is_spent=True, codec="pickle", version=1))

    (emptied,) = (w.record for w in decision.writes if isinstance(w, PutStep) and w.record.number == 1)
    assert emptied == msgspec.structs.replace(began, state=b"", codec="pickle")
    assert harness.state("p") is ProcedureState.SUCCESS


def test_a_state_is_kept_when_there_are_steps_after_it_or_somebody_may_come_back_to_it() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("steps"))
    harness.answer("steps", Advanced(state=b"1"))
    assert first_records_of(harness.answer("steps", Finished(state=b"", is_spent=True))) == []

    harness.submit(harness.new("parent"))
    harness.answer("parent", Suspended(state=b"1", children=(harness.new("child"),)))
    assert first_records_of(harness.answer("child", Finished(state=b"", is_spent=True))) == []

    harness.submit(harness.new("retried"))
    harness.answer("retried", boom())
    harness.handle(RetryRequested("retried", 8))
    assert first_records_of(harness.answer("retried", Finished(state=b"", is_spent=True))) == []
