"""Workers as the core sees them: blame, fencing, prefetch, take-back."""

from __future__ import annotations

import msgspec
import pytest

from actorproc.core.queues.worker_table import PREFETCH_LIMIT, STEAL_AFTER
from actorproc.model.ids import Mode, WorkerId
from actorproc.model.messages.commands import RunStep, SendAgain, TakeBack
from actorproc.model.messages.events import (
    AbortRequested,
    CrashReport,
    StepDelayed,
    StepEnded,
    StepReturned,
    Tick,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Advanced, Finished
from actorproc.model.policies import Backoff, LockKey
from actorproc.model.rows.records import NewProcedure
from actorproc.model.rows.writes import PutStep
from actorproc.model.states import ProcedureState
from tests.core.stage import Stage, boom


def _prefetching(count: int) -> Stage:
    """A stage whose one worker has `count` steps in hand: short steps are known to be short."""
    stage = Stage(workers=1)
    stage.submit(stage.new("scout"))
    for _ in range(40):
        stage.answer("scout", Advanced(state=b"", elapsed=0.0))
    stage.answer("scout", Finished(state=b"", elapsed=0.0))
    stage.submit(*(stage.new(f"p{n}") for n in range(count)))
    return stage


def test_a_dead_workers_first_step_is_charged_and_those_behind_it_are_not() -> None:
    stage = _prefetching(3)
    assert len(stage.inbox) == 3

    stage.kill(0)
    stage.handle(WorkerReady(WorkerId(0, 2)))

    crashes = {name: record.crashes for name in ("p0", "p1", "p2") if (record := stage.core.view(name))}
    assert crashes == {"p0": 1, "p1": 0, "p2": 0}
    assert all(stage.inbox[name].replayed for name in crashes)
    assert not any(stage.inbox[name].warm for name in crashes)


def test_a_step_whose_state_has_to_be_sent_again_runs_behind_the_others_and_does_not_pay_for_them() -> None:
    stage = _prefetching(3)

    stage.handle(StepDelayed(stage.inbox["p0"].token))
    stage.kill(0)

    crashes = {name: record.crashes for name in ("p0", "p1", "p2") if (record := stage.core.view(name))}
    assert crashes == {"p0": 0, "p1": 1, "p2": 0}


def test_a_step_that_must_not_go_on_is_taken_back_when_others_run_before_it() -> None:
    stage = _prefetching(2)
    token = stage.inbox["p0"].token
    stage.handle(StepDelayed(token))

    stage.handle(AbortRequested("p0", reply=1, force=True))

    assert not stage.kills()
    assert stage.commands[-2:-1] == [TakeBack(token.worker, (token,))]


def test_a_step_that_was_to_be_killed_and_is_delayed_is_taken_back_too() -> None:
    stage = _prefetching(2)
    token = stage.inbox["p0"].token
    stage.handle(AbortRequested("p0", reply=1, force=True))
    assert [kill.token for kill in stage.kills()] == [token]

    delayed = stage.handle(StepDelayed(token))

    assert TakeBack(token.worker, (token,)) in delayed.commands


def test_a_step_that_was_to_be_killed_and_was_delayed_is_killed_when_it_runs() -> None:
    stage = _prefetching(2)
    stage.handle(AbortRequested("p0", reply=1, force=True))
    stage.handle(StepDelayed(stage.inbox["p0"].token))

    stage.answer("p1", Finished(state=b""))

    assert [kill.token.procedure for kill in stage.kills()] == ["p0", "p0"]


@pytest.mark.parametrize("aborting", [False, True])
def test_a_delayed_step_is_sent_behind_what_was_decided_before_and_knows_of_an_abort(aborting) -> None:
    stage = _prefetching(2)
    token = stage.inbox["p0"].token
    if aborting:
        stage.handle(AbortRequested("p0", reply=1))
    stage.submit(stage.new("p2"))
    before = len(stage.commands)

    stage.handle(StepDelayed(token))

    assert stage.commands[before:] == [SendAgain(token, aborting)]
    assert "p2" in stage.inbox


def test_the_step_that_runs_in_the_place_of_a_delayed_one_is_killed_if_it_must_not_go_on() -> None:
    stage = _prefetching(2)
    stage.handle(AbortRequested("p1", reply=1, force=True))
    assert not stage.kills()

    stage.handle(StepDelayed(stage.inbox["p0"].token))

    assert [kill.token for kill in stage.kills()] == [stage.inbox["p1"].token]


def test_a_delay_of_a_step_that_nobody_has_in_hand_is_dropped_and_counted() -> None:
    stage = _prefetching(1)
    token = stage.inbox["p0"].token
    stage.answer("p0", Finished(state=b""))

    stage.handle(StepDelayed(token))

    assert stage.core.stale_results == 1


def test_a_step_that_kills_its_worker_too_often_fails_with_the_cause_in_words() -> None:
    stage = Stage(crashes=3)
    stage.submit(stage.new("p"))
    for incarnation in (1, 2, 3):
        stage.kill(0, incarnation)
        stage.handle(WorkerReady(WorkerId(0, incarnation + 1)))

    record = stage.core.view("p")
    assert record is not None
    assert record.error is not None
    assert record.state is ProcedureState.FAILED
    assert "SIGKILL" in record.error.message
    assert "3rd time" in record.error.message


def test_locks_outlive_the_worker_that_ran_their_holder() -> None:
    stage = Stage()
    stage.submit(stage.new("holder", locks=(LockKey.write("t"),)), stage.new("waits", locks=(LockKey.write("t"),)))

    stage.kill(0)
    stage.handle(WorkerReady(WorkerId(0, 2)))

    assert [name for name, _, _ in stage.order] == ["holder", "holder"]


def test_what_a_dead_worker_had_in_hand_goes_first_again_in_its_old_order() -> None:
    stage = _prefetching(PREFETCH_LIMIT + 2)
    before = list(stage.inbox)

    stage.kill(0)
    stage.inbox.clear()
    stage.handle(WorkerReady(WorkerId(0, 2)))

    assert list(stage.inbox) == before


def test_a_death_is_charged_to_the_step_that_its_worker_had_first_whatever_the_order_of_decisions() -> None:
    stage = _prefetching(3)
    names = list(stage.inbox)
    second = stage.inbox[names[1]].token

    report = CrashReport(kind="signal", message="killed by signal 11 (SIGSEGV)", code=-11, signal="SIGSEGV")
    stage.handle(WorkerLost(WorkerId(0, 1), report, first=second))

    crashes = {name: record.crashes for name in names if (record := stage.core.view(name)) is not None}
    assert crashes == {name: int(name == names[1]) for name in names}


def test_an_orderly_stop_charges_nobody() -> None:
    stage = Stage()
    stage.submit(stage.new("p"))

    stage.handle(WorkerLost(WorkerId(0, 1), CrashReport(kind="stopped", message="stopped"), crashed=False))
    stage.handle(WorkerReady(WorkerId(0, 2)))

    record = stage.core.view("p")
    assert record is not None
    assert (record.attempt, record.crashes, record.errors) == (2, 0, 0)


def test_a_wall_time_kill_is_an_error_not_a_crash() -> None:
    stage = Stage(retry=Backoff(max_attempts=2, base=1.0), retries_overtime=True)
    stage.submit(stage.new("p"))
    token = stage.inbox["p"].token

    stage.handle(WorkerLost(WorkerId(0, 1), CrashReport(kind="timeout", message="ran past 5 s"), blamed=token))

    record = stage.core.view("p")
    assert record is not None
    assert (record.errors, record.crashes) == (1, 0)
    assert record.error is not None
    assert record.error.kind == "timeout"


@pytest.mark.parametrize("kind", ["timeout", "cpu-limit"])
@pytest.mark.parametrize("retried", [False, True])
def test_overtime_is_tried_again_only_where_the_class_says_so(kind: str, retried: bool) -> None:
    stage = Stage(retry=Backoff(max_attempts=3, base=1.0), rollback_supported=True, retries_overtime=retried)
    stage.submit(stage.new("p"))

    report = CrashReport(kind=kind, message="ran past 5 s")
    stage.handle(WorkerLost(WorkerId(0, 1), report, blamed=stage.inbox["p"].token))

    record = stage.core.view("p")
    assert record is not None
    assert (record.errors, record.crashes, record.rolling) == (1, 0, not retried)


def test_an_undo_past_its_time_is_tried_again_whatever_the_class_says_of_steps() -> None:
    stage = Stage(retry=Backoff(max_attempts=3), rollback_retry=Backoff(max_attempts=3), rollback_supported=True)
    stage.submit(stage.new("p", unit="u"))
    stage.answer("p", boom())
    undo = stage.inbox["p"].token
    assert undo.mode is Mode.ROLLBACK

    stage.handle(WorkerLost(WorkerId(0, 1), CrashReport(kind="timeout", message="ran past 5 s"), blamed=undo))

    record = stage.core.view("p")
    assert record is not None
    assert (record.state, record.rolling, record.errors) == (ProcedureState.RUNNABLE, True, 1)


def test_a_late_answer_of_an_older_incarnation_is_dropped() -> None:
    stage = Stage()
    stage.submit(stage.new("p"))
    old = stage.inbox["p"].token
    stage.kill(0)
    stage.handle(WorkerReady(WorkerId(0, 2)))

    decision = stage.handle(StepEnded(old, Finished(state=b"zombie")))

    assert decision.writes == []
    assert stage.core.stale_results == 1


def test_an_unknown_type_of_step_is_prefetched_only_by_an_idle_worker() -> None:
    stage = Stage(workers=2)

    stage.submit(*(stage.new(f"p{n}") for n in range(5)))

    assert len(stage.inbox) == 2


def test_short_steps_are_prefetched_up_to_the_limit() -> None:
    stage = _prefetching(PREFETCH_LIMIT + 10)

    assert len(stage.inbox) == PREFETCH_LIMIT


def _large(stage: Stage, name: str, size: int) -> NewProcedure:
    return msgspec.structs.replace(stage.new(name), state=bytes(size))


@pytest.mark.parametrize(("size", "in_hand"), [(8_000_000, 5), (100_000_000, 1)])
def test_large_first_states_are_work_by_themselves_however_short_the_steps(size: int, in_hand: int) -> None:
    stage = _prefetching(0)

    stage.submit(*(_large(stage, f"p{n}", size) for n in range(9)))
    assert list(stage.inbox) == [f"p{n}" for n in range(in_hand)]

    while stage.inbox:
        stage.answer(next(iter(stage.inbox)), Finished(state=b""))
    assert all(stage.state(f"p{n}") is ProcedureState.SUCCESS for n in range(9))


def test_large_first_states_are_work_again_when_they_are_sent_again() -> None:
    stage = _prefetching(0)
    stage.submit(*(_large(stage, f"p{n}", 8_000_000) for n in range(9)))

    stage.inbox.clear()
    stage.kill(0)
    stage.handle(WorkerReady(WorkerId(0, 2)))
    assert len(stage.inbox) == 5

    returned = list(stage.inbox.values())[1:]
    stage.inbox.clear()
    for run in returned:
        stage.handle(StepReturned(run.token))
    assert len(stage.inbox) == 4


def test_a_large_state_counts_for_the_first_step_alone() -> None:
    stage = _prefetching(0)
    stage.submit(_large(stage, "large", 100_000_000), stage.new("other"))
    stage.answer("large", Advanced(state=b"", elapsed=0.0, yield_=True))
    stage.answer("other", Finished(state=b"", elapsed=0.0))

    stage.submit(*(stage.new(f"p{n}") for n in range(4)))

    assert list(stage.inbox) == ["large", "p0", "p1", "p2", "p3"]


def test_a_large_state_whose_first_step_was_stored_is_not_sent_again() -> None:
    stage = _prefetching(0)
    stage.submit(_large(stage, "large", 100_000_000))
    stage.answer("large", Advanced(state=b"", elapsed=0.0))
    stage.kill(0)
    stage.submit(*(stage.new(f"p{n}") for n in range(4)))

    stage.handle(WorkerReady(WorkerId(0, 2)))

    assert sorted(stage.inbox) == ["large", "p0", "p1", "p2", "p3"]


def test_the_size_of_a_state_that_nobody_got_is_forgotten_with_its_procedure() -> None:
    stage = _prefetching(0)
    stage.submit(_large(stage, "first", 100_000_000), _large(stage, "second", 100_000_000))

    stage.handle(AbortRequested("second", reply=1))
    assert list(stage.core._state.worker_table._bulky) == ["second"]
    stage.answer("first", Finished(state=b""))
    stage.core.settle(stage.core.seal())

    assert stage.core._state.worker_table._bulky == {}


def test_what_waits_behind_a_silent_worker_is_taken_back_for_an_idle_one() -> None:
    stage = _prefetching(5)
    stage.handle(WorkerReady(WorkerId(1, 1)))
    assert stage.core.next_deadline() == stage.now + STEAL_AFTER

    stage.now += STEAL_AFTER
    decision = stage.handle(Tick())
    back = next(command for command in decision.commands if isinstance(command, TakeBack))
    assert back.worker == WorkerId(0, 1)
    before = {token.procedure: token.attempt for token in back.tokens}
    for token in back.tokens:
        stage.handle(StepReturned(token))

    moved = {name: run for name, run in stage.inbox.items() if run.token.worker == WorkerId(1, 1)}
    assert set(moved) <= set(before)
    assert moved
    assert all(run.token.attempt == before[name] and not run.replayed for name, run in moved.items())


def test_a_question_about_an_abort_that_was_taken_back_goes_to_the_idle_worker_and_not_straight_back() -> None:
    stage = _prefetching(0)
    stage.register("Asked", asks_abort=True)
    stage.submit(stage.new("asked", type_name="Asked"))
    for _ in range(40):
        stage.answer("asked", Advanced(state=b"", elapsed=0.0))
    stage.submit(stage.new("long"))
    stage.handle(AbortRequested("asked", reply=1))
    stage.answer("asked", Advanced(state=b"", elapsed=0.0))
    question = stage.inbox["asked"].token
    assert (question.mode, question.worker) == (Mode.ASK_ABORT, WorkerId(0, 1))
    stage.handle(WorkerReady(WorkerId(1, 1)))
    stage.now += STEAL_AFTER
    decision = stage.handle(Tick())
    assert TakeBack(WorkerId(0, 1), (question,)) in decision.commands

    stage.handle(StepReturned(question))

    assert stage.inbox["asked"].token == msgspec.structs.replace(question, worker=WorkerId(1, 1))


def test_a_taken_back_step_whose_worker_dies_first_counts_as_possibly_started() -> None:
    stage = _prefetching(3)
    stage.handle(WorkerReady(WorkerId(1, 1)))
    stage.now += STEAL_AFTER
    stage.handle(Tick())

    stage.kill(0)

    record = stage.core.view("p2")
    assert record is not None
    assert (record.attempt, record.crashes) == (2, 0)


def test_rollback_crashes_have_a_count_of_their_own() -> None:
    stage = Stage(rollback_supported=True, crashes=2)
    stage.submit(stage.new("p", unit=""))
    stage.kill(0, 1)
    stage.handle(WorkerReady(WorkerId(0, 2)))
    stage.answer("p", boom())
    assert stage.inbox["p"].token.mode is Mode.ROLLBACK
    record = stage.core.view("p")
    assert record is not None
    assert record.crashes == 0

    for incarnation in (2, 3):
        stage.kill(0, incarnation)
        stage.handle(WorkerReady(WorkerId(0, incarnation + 1)))

    assert stage.state("p") is ProcedureState.FAILED


def test_nothing_is_handed_out_while_dispatching_is_off() -> None:
    stage = Stage()
    stage.core.dispatching = False
    stage.submit(stage.new("p"))
    assert stage.inbox == {}

    stage.core.dispatching = True
    decision = stage.handle(Tick())

    assert [type(command) for command in decision.commands] == [RunStep]


def test_a_forced_abort_of_a_step_that_only_waits_takes_it_back_and_spares_the_one_that_runs() -> None:
    stage = _prefetching(2)

    decision = stage.handle(AbortRequested("p1", reply=1, force=True))
    back = next(command for command in decision.commands if isinstance(command, TakeBack))
    assert [token.procedure for token in back.tokens] == ["p1"]
    assert not stage.kills()
    stage.handle(StepReturned(back.tokens[0]))

    record = stage.core.view("p1")
    assert record is not None
    assert record.error is not None
    assert record.error.kind == "aborted"
    assert "p0" in stage.inbox


def test_a_forced_abort_that_comes_too_late_for_the_take_back_kills_when_the_step_runs() -> None:
    stage = _prefetching(2)
    stage.handle(AbortRequested("p1", reply=1, force=True))

    stage.answer("p0", Finished(state=b""))

    assert [kill.token.procedure for kill in stage.kills()] == ["p1"]


def test_a_state_keeps_the_version_of_the_class_that_dumped_it() -> None:
    stage = Stage()
    stage.submit(stage.new("p"))
    stage.register("T", version=2)

    stage.answer("p", Advanced(state=b"1", version=1))

    written = [write.record for write in stage.writes if isinstance(write, PutStep)][-1]
    assert (written.number, written.version) == (2, 1)
