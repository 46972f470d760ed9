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
from tests.core.harness import CoreHarness, boom


def _prefetching(count: int) -> CoreHarness:
    """A harness whose one worker has `count` steps in hand: short steps are known to be short."""
    harness = CoreHarness(workers=1)
    harness.submit(harness.new("scout"))
    for _ in range(40):
        harness.answer("scout", Advanced(state=b"", elapsed=0.0))
    harness.answer("scout", Finished(state=b"", elapsed=0.0))
    harness.submit(*(harness.new(f"p{n}") for n in range(count)))
    return harness


def test_a_dead_workers_first_step_is_charged_and_those_behind_it_are_not() -> None:
    harness = _prefetching(3)
    assert len(harness.inbox) == 3

    harness.kill(0)
    harness.handle(WorkerReady(WorkerId(0, 2)))

    crashes = {name: record.crashes for name in ("p0", "p1", "p2") if (record := harness.core.view(name))}
    assert crashes == {"p0": 1, "p1": 0, "p2": 0}
    assert all(harness.inbox[name].replayed for name in crashes)
    assert not any(harness.inbox[name].warm for name in crashes)


def test_a_step_whose_state_has_to_be_sent_again_runs_behind_the_others_and_does_not_pay_for_them() -> None:
    harness = _prefetching(3)

    harness.handle(StepDelayed(harness.inbox["p0"].token))
    harness.kill(0)

    crashes = {name: record.crashes for name in ("p0", "p1", "p2") if (record := harness.core.view(name))}
    assert crashes == {"p0": 0, "p1": 1, "p2": 0}


def test_a_step_that_must_not_go_on_is_taken_back_when_others_run_before_it() -> None:
    harness = _prefetching(2)
    token = harness.inbox["p0"].token
    harness.handle(StepDelayed(token))

    harness.handle(AbortRequested("p0", reply=1, force=True))

    assert not harness.kills()
    assert harness.commands[-2:-1] == [TakeBack(token.worker, (token,))]


def test_a_step_that_was_to_be_killed_and_is_delayed_is_taken_back_too() -> None:
    harness = _prefetching(2)
    token = harness.inbox["p0"].token
    harness.handle(AbortRequested("p0", reply=1, force=True))
    assert [kill.token for kill in harness.kills()] == [token]

    delayed = harness.handle(StepDelayed(token))

    assert TakeBack(token.worker, (token,)) in delayed.commands


def test_a_step_that_was_to_be_killed_and_was_delayed_is_killed_when_it_runs() -> None:
    harness = _prefetching(2)
    harness.handle(AbortRequested("p0", reply=1, force=True))
    harness.handle(StepDelayed(harness.inbox["p0"].token))

    harness.answer("p1", Finished(state=b""))

    assert [kill.token.procedure for kill in harness.kills()] == ["p0", "p0"]


@pytest.mark.parametrize("aborting", [False, True])
def test_a_delayed_step_is_sent_behind_what_was_decided_before_and_knows_of_an_abort(aborting) -> None:
    harness = _prefetching(2)
    token = harness.inbox["p0"].token
    if aborting:
        harness.handle(AbortRequested("p0", reply=1))
    harness.submit(harness.new("p2"))
    before = len(harness.commands)

    harness.handle(StepDelayed(token))

    assert harness.commands[before:] == [SendAgain(token, aborting)]
    assert "p2" in harness.inbox


def test_the_step_that_runs_in_the_place_of_a_delayed_one_is_killed_if_it_must_not_go_on() -> None:
    harness = _prefetching(2)
    harness.handle(AbortRequested("p1", reply=1, force=True))
    assert not harness.kills()

    harness.handle(StepDelayed(harness.inbox["p0"].token))

    assert [kill.token for kill in harness.kills()] == [harness.inbox["p1"].token]


def test_a_delay_of_a_step_that_nobody_has_in_hand_is_dropped_and_counted() -> None:
    harness = _prefetching(1)
    token = harness.inbox["p0"].token
    harness.answer("p0", Finished(state=b""))

    harness.handle(StepDelayed(token))

    assert harness.core.stale_results == 1


def test_a_step_that_kills_its_worker_too_often_fails_with_the_cause_in_words() -> None:
    harness = CoreHarness(crashes=3)
    harness.submit(harness.new("p"))
    for incarnation in (1, 2, 3):
        harness.kill(0, incarnation)
        harness.handle(WorkerReady(WorkerId(0, incarnation + 1)))

    record = harness.core.view("p")
    assert record is not None
    assert record.error is not None
    assert record.state is ProcedureState.FAILED
    assert "SIGKILL" in record.error.message
    assert "3rd time" in record.error.message


def test_locks_outlive_the_worker_that_ran_their_holder() -> None:
    harness = CoreHarness()
    harness.submit(
        harness.new("holder", locks=(LockKey.write("t"),)), harness.new("waits", locks=(LockKey.write("t"),))
    )

    harness.kill(0)
    harness.handle(WorkerReady(WorkerId(0, 2)))

    assert [name for name, _, _ in harness.order] == ["holder", "holder"]


def test_what_a_dead_worker_had_in_hand_goes_first_again_in_its_old_order() -> None:
    harness = _prefetching(PREFETCH_LIMIT + 2)
    before = list(harness.inbox)

    harness.kill(0)
    harness.inbox.clear()
    harness.handle(WorkerReady(WorkerId(0, 2)))

    assert list(harness.inbox) == before


def test_a_death_is_charged_to_the_step_that_its_worker_had_first_whatever_the_order_of_decisions() -> None:
    harness = _prefetching(3)
    names = list(harness.inbox)
    second = harness.inbox[names[1]].token

    report = CrashReport(kind="signal", message="killed by signal 11 (SIGSEGV)", code=-11, signal="SIGSEGV")
    harness.handle(WorkerLost(WorkerId(0, 1), report, first=second))

    crashes = {name: record.crashes for name in names if (record := harness.core.view(name)) is not None}
    assert crashes == {name: int(name == names[1]) for name in names}


def test_an_orderly_stop_charges_nobody() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))

    harness.handle(WorkerLost(WorkerId(0, 1), CrashReport(kind="stopped", message="stopped"), crashed=False))
    harness.handle(WorkerReady(WorkerId(0, 2)))

    record = harness.core.view("p")
    assert record is not None
    assert (record.attempt, record.crashes, record.errors) == (2, 0, 0)


def test_a_wall_time_kill_is_an_error_not_a_crash() -> None:
    harness = CoreHarness(retry=Backoff(max_attempts=2, base=1.0), retries_overtime=True)
    harness.submit(harness.new("p"))
    token = harness.inbox["p"].token

    harness.handle(WorkerLost(WorkerId(0, 1), CrashReport(kind="timeout", message="ran past 5 s"), blamed=token))

    record = harness.core.view("p")
    assert record is not None
    assert (record.errors, record.crashes) == (1, 0)
    assert record.error is not None
    assert record.error.kind == "timeout"


@pytest.mark.parametrize("kind", ["timeout", "cpu-limit"])
@pytest.mark.parametrize("retried", [False, True])
def test_overtime_is_tried_again_only_where_the_class_says_so(kind: str, retried: bool) -> None:
    harness = CoreHarness(retry=Backoff(max_attempts=3, base=1.0), rollback_supported=True, retries_overtime=retried)
    harness.submit(harness.new("p"))

    report = CrashReport(kind=kind, message="ran past 5 s")
    harness.handle(WorkerLost(WorkerId(0, 1), report, blamed=harness.inbox["p"].token))

    record = harness.core.view("p")
    assert record is not None
    assert (record.errors, record.crashes, record.rolling) == (1, 0, not retried)


def test_an_undo_past_its_time_is_tried_again_whatever_the_class_says_of_steps() -> None:
    harness = CoreHarness(
        retry=Backoff(max_attempts=3), rollback_retry=Backoff(max_attempts=3), rollback_supported=True
    )
    harness.submit(harness.new("p", unit="u"))
    harness.answer("p", boom())
    undo = harness.inbox["p"].token
    assert undo.mode is Mode.ROLLBACK

    harness.handle(WorkerLost(WorkerId(0, 1), CrashReport(kind="timeout", message="ran past 5 s"), blamed=undo))

    record = harness.core.view("p")
    assert record is not None
    assert (record.state, record.rolling, record.errors) == (ProcedureState.RUNNABLE, True, 1)


def test_a_late_answer_of_an_older_incarnation_is_dropped() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    old = harness.inbox["p"].token
    harness.kill(0)
    harness.handle(WorkerReady(WorkerId(0, 2)))

    decision = harness.handle(StepEnded(old, Finished(state=b"zombie")))

    assert decision.writes == []
    assert harness.core.stale_results == 1


def test_an_unknown_type_of_step_is_prefetched_only_by_an_idle_worker() -> None:
    harness = CoreHarness(workers=2)

    harness.submit(*(harness.new(f"p{n}") for n in range(5)))

    assert len(harness.inbox) == 2


def test_short_steps_are_prefetched_up_to_the_limit() -> None:
    harness = _prefetching(PREFETCH_LIMIT + 10)

    assert len(harness.inbox) == PREFETCH_LIMIT


def _large(harness: CoreHarness, name: str, size: int) -> NewProcedure:
    return msgspec.structs.replace(harness.new(name), state=bytes(size))


@pytest.mark.parametrize(("size", "in_hand"), [(8_000_000, 5), (100_000_000, 1)])
def test_large_first_states_are_work_by_themselves_however_short_the_steps(size: int, in_hand: int) -> None:
    harness = _prefetching(0)

    harness.submit(*(_large(harness, f"p{n}", size) for n in range(9)))
    assert list(harness.inbox) == [f"p{n}" for n in range(in_hand)]

    while harness.inbox:
        harness.answer(next(iter(harness.inbox)), Finished(state=b""))
    assert all(harness.state(f"p{n}") is ProcedureState.SUCCESS for n in range(9))


def test_large_first_states_are_work_again_when_they_are_sent_again() -> None:
    harness = _prefetching(0)
    harness.submit(*(_large(harness, f"p{n}", 8_000_000) for n in range(9)))

    harness.inbox.clear()
    harness.kill(0)
    harness.handle(WorkerReady(WorkerId(0, 2)))
    assert len(harness.inbox) == 5

    returned = list(harness.inbox.values())[1:]
    harness.inbox.clear()
    for run in returned:
        harness.handle(StepReturned(run.token))
    assert len(harness.inbox) == 4


def test_a_large_state_counts_for_the_first_step_alone() -> None:
    harness = _prefetching(0)
    harness.submit(_large(harness, "large", 100_000_000), harness.new("other"))
    harness.answer("large", Advanced(state=b"", elapsed=0.0, yield_=True))
    harness.answer("other", Finished(state=b"", elapsed=0.0))

    harness.submit(*(harness.new(f"p{n}") for n in range(4)))

    assert list(harness.inbox) == ["large", "p0", "p1", "p2", "p3"]


def test_a_large_state_whose_first_step_was_stored_is_not_sent_again() -> None:
    harness = _prefetching(0)
    harness.submit(_large(harness, "large", 100_000_000))
    harness.answer("large", Advanced(state=b"", elapsed=0.0))
    harness.kill(0)
    harness.submit(*(harness.new(f"p{n}") for n in range(4)))

    harness.handle(WorkerReady(WorkerId(0, 2)))

    assert sorted(harness.inbox) == ["large", "p0", "p1", "p2", "p3"]


def test_the_size_of_a_state_that_nobody_got_is_forgotten_with_its_procedure() -> None:
    harness = _prefetching(0)
    harness.submit(_large(harness, "first", 100_000_000), _large(harness, "second", 100_000_000))

    harness.handle(AbortRequested("second", reply=1))
    assert list(harness.core._state.workers.table._bulky) == ["second"]
    harness.answer("first", Finished(state=b""))
    harness.core.settle(harness.core.seal())

    assert harness.core._state.workers.table._bulky == {}


def test_what_waits_behind_a_silent_worker_is_taken_back_for_an_idle_one() -> None:
    harness = _prefetching(5)
    harness.handle(WorkerReady(WorkerId(1, 1)))
    assert harness.core.next_deadline() == harness.now + STEAL_AFTER

    harness.now += STEAL_AFTER
    decision = harness.handle(Tick())
    back = next(command for command in decision.commands if isinstance(command, TakeBack))
    assert back.worker == WorkerId(0, 1)
    before = {token.procedure: token.attempt for token in back.tokens}
    for token in back.tokens:
        harness.handle(StepReturned(token))

    moved = {name: run for name, run in harness.inbox.items() if run.token.worker == WorkerId(1, 1)}
    assert set(moved) <= set(before)
    assert moved
    assert all(run.token.attempt == before[name] and not run.replayed for name, run in moved.items())


def test_a_question_about_an_abort_that_was_taken_back_goes_to_the_idle_worker_and_not_straight_back() -> None:
    harness = _prefetching(0)
    harness.register("Asked", asks_abort=True)
    harness.submit(harness.new("asked", type_name="Asked"))
    for _ in range(40):
        harness.answer("asked", Advanced(state=b"", elapsed=0.0))
    harness.submit(harness.new("long"))
    harness.handle(AbortRequested("asked", reply=1))
    harness.answer("asked", Advanced(state=b"", elapsed=0.0))
    question = harness.inbox["asked"].token
    assert (question.mode, question.worker) == (Mode.ASK_ABORT, WorkerId(0, 1))
    harness.handle(WorkerReady(WorkerId(1, 1)))
    harness.now += STEAL_AFTER
    decision = harness.handle(Tick())
    assert TakeBack(WorkerId(0, 1), (question,)) in decision.commands

    harness.handle(StepReturned(question))

    assert harness.inbox["asked"].token == msgspec.structs.replace(question, worker=WorkerId(1, 1))


def test_a_taken_back_step_whose_worker_dies_first_counts_as_possibly_started() -> None:
    harness = _prefetching(3)
    harness.handle(WorkerReady(WorkerId(1, 1)))
    harness.now += STEAL_AFTER
    harness.handle(Tick())

    harness.kill(0)

    record = harness.core.view("p2")
    assert record is not None
    assert (record.attempt, record.crashes) == (2, 0)


def test_rollback_crashes_have_a_count_of_their_own() -> None:
    harness = CoreHarness(rollback_supported=True, crashes=2)
    harness.submit(harness.new("p", unit=""))
    harness.kill(0, 1)
    harness.handle(WorkerReady(WorkerId(0, 2)))
    harness.answer("p", boom())
    assert harness.inbox["p"].token.mode is Mode.ROLLBACK
    record = harness.core.view("p")
    assert record is not None
    assert record.crashes == 0

    for incarnation in (2, 3):
        harness.kill(0, incarnation)
        harness.handle(WorkerReady(WorkerId(0, incarnation + 1)))

    assert harness.state("p") is ProcedureState.FAILED


def test_nothing_is_handed_out_while_dispatching_is_off() -> None:
    harness = CoreHarness()
    harness.core.dispatching = False
    harness.submit(harness.new("p"))
    assert harness.inbox == {}

    harness.core.dispatching = True
    decision = harness.handle(Tick())

    assert [type(command) for command in decision.commands] == [RunStep]


def test_a_forced_abort_of_a_step_that_only_waits_takes_it_back_and_spares_the_one_that_runs() -> None:
    harness = _prefetching(2)

    decision = harness.handle(AbortRequested("p1", reply=1, force=True))
    back = next(command for command in decision.commands if isinstance(command, TakeBack))
    assert [token.procedure for token in back.tokens] == ["p1"]
    assert not harness.kills()
    harness.handle(StepReturned(back.tokens[0]))

    record = harness.core.view("p1")
    assert record is not None
    assert record.error is not None
    assert record.error.kind == "aborted"
    assert "p0" in harness.inbox


def test_a_forced_abort_that_comes_too_late_for_the_take_back_kills_when_the_step_runs() -> None:
    harness = _prefetching(2)
    harness.handle(AbortRequested("p1", reply=1, force=True))

    harness.answer("p0", Finished(state=b""))

    assert [kill.token.procedure for kill in harness.kills()] == ["p1"]


def test_a_state_keeps_the_version_of_the_class_that_dumped_it() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    harness.register("T", version=2)

    harness.answer("p", Advanced(state=b"1", version=1))

    written = [write.record for write in harness.writes if isinstance(write, PutStep)][-1]
    assert (written.number, written.version) == (2, 1)
