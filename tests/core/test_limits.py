"""Workers of one's own, steps that run beside each other, workers that leave, and whom a death is charged to."""

from __future__ import annotations

import msgspec
import pytest

from actorproc.core.coordinator import Coordinator
from actorproc.model.ids import WorkerId
from actorproc.model.messages.commands import RunStep, StartWorker, StopWorker, TakeBack
from actorproc.model.messages.events import (
    AbortRequested,
    CrashReport,
    StepEnded,
    StepReturned,
    Tick,
    WorkerLeaving,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Advanced, Failed, Finished, Slept
from actorproc.model.policies import Backoff, Quotas, StepLimits
from actorproc.model.rows.records import ErrorInfo
from actorproc.model.rows.writes import PutStep
from actorproc.model.states import ProcedureState

from .stage import Stage

OWN = WorkerId(100, 1)
SEGFAULT = CrashReport(kind="signal", message="killed by signal 11 (SIGSEGV)", signal="SIGSEGV", stack="Fatal …")


def commands(stage: Stage, kind: type) -> list:
    return [command for command in stage.commands if isinstance(command, kind)]


def lose(stage: Stage, worker: WorkerId, report: CrashReport = SEGFAULT, **more: object) -> None:
    stage.handle(WorkerLost(worker, report, **more))  # type: ignore[arg-type]


# ---------------------------------------------------------------------- dedicated
def test_a_dedicated_procedure_asks_for_its_worker_and_runs_in_no_other() -> None:
    stage = Stage(workers=1, dedicated=True)

    stage.submit(stage.new("p"))
    assert commands(stage, StartWorker) == [StartWorker("p")]
    assert "p" not in stage.inbox

    stage.handle(WorkerReady(OWN, reserved="p"))
    assert stage.inbox["p"].token.worker == OWN


def test_the_worker_of_a_procedure_runs_nobody_elses_steps() -> None:
    stage = Stage(workers=0)
    stage.register("D", dedicated=True)
    stage.submit(stage.new("mine", "D"))
    stage.handle(WorkerReady(OWN, reserved="mine"))
    stage.answer("mine", Slept(state=b"", seconds=60.0))

    stage.submit(stage.new("other"))

    assert "other" not in stage.inbox


def test_the_worker_of_a_procedure_waits_with_it_and_is_stopped_at_its_end() -> None:
    stage = Stage(workers=0, dedicated=True)
    stage.submit(stage.new("p"))
    stage.handle(WorkerReady(OWN, reserved="p"))
    stage.answer("p", Advanced(state=b""))

    assert commands(stage, StopWorker) == []
    stage.answer("p", Finished(state=b""))

    assert commands(stage, StopWorker) == [StopWorker(OWN)]
    assert stage.state("p") == ProcedureState.SUCCESS


def test_a_dead_dedicated_worker_is_asked_for_again_with_the_next_step() -> None:
    stage = Stage(workers=0, dedicated=True)
    stage.submit(stage.new("p"))
    stage.handle(WorkerReady(OWN, reserved="p"))
    lose(stage, OWN)

    assert commands(stage, StartWorker) == [StartWorker("p"), StartWorker("p")]
    stage.handle(WorkerReady(WorkerId(101, 1), reserved="p"))
    assert stage.inbox["p"].token.attempt == 2


def test_a_worker_that_comes_for_a_procedure_that_has_ended_is_stopped() -> None:
    stage = Stage(workers=0, dedicated=True)
    stage.submit(stage.new("p"))
    stage.handle(AbortRequested("p", reply=2))

    stage.handle(WorkerReady(OWN, reserved="p"))

    assert commands(stage, StopWorker) == [StopWorker(OWN)]


def test_dedicated_procedures_beyond_the_limit_wait_for_one_to_end() -> None:
    stage = Stage(workers=0, dedicated=True)
    stage.core._state.quotas = Quotas(dedicated=1)
    stage.submit(stage.new("first"), stage.new("second"))
    assert commands(stage, StartWorker) == [StartWorker("first")]

    stage.handle(WorkerReady(OWN, reserved="first"))
    stage.answer("first", Finished(state=b""))

    assert commands(stage, StartWorker) == [StartWorker("first"), StartWorker("second")]


def test_a_procedure_that_waits_for_its_worker_is_queued_again_by_a_restart() -> None:
    stage = Stage(workers=0, dedicated=True)
    stage.submit(stage.new("p"))
    before = stage.core.fingerprint()

    assert "p" in before["at work"]  # type: ignore[index]


def test_limits_given_with_the_submit_hold_instead_of_those_of_the_class() -> None:
    stage = Stage(workers=1, wall_time=1.0)

    stage.submit(stage.new("p", limits=StepLimits(wall_time=9.0, cpu_time=2.0, crashes=1)))

    run = stage.inbox["p"]
    assert run.wall_time == 9.0
    assert run.limits is not None
    assert run.limits.cpu_time == 2.0
    lose(stage, run.token.worker)
    assert stage.state("p") == ProcedureState.FAILED


# ---------------------------------------------------------------------- beside each other
def test_steps_with_threads_are_kept_together_and_never_mixed_with_others() -> None:
    stage = Stage(workers=2)
    stage.register("IO", threads=3)
    stage.submit(*(stage.new(f"io{number}", "IO") for number in range(3)))

    workers = {stage.inbox[f"io{number}"].token.worker for number in range(3)}
    assert len(workers) == 1

    stage.submit(stage.new("cpu"), stage.new("cpu2"))
    assert stage.inbox["cpu"].token.worker not in workers


def test_no_more_steps_run_at_once_than_the_class_allows() -> None:
    stage = Stage(workers=1)
    stage.register("IO", threads=2)

    stage.submit(*(stage.new(f"io{number}", "IO") for number in range(3)))
    assert set(stage.inbox) == {"io0", "io1"}

    stage.answer("io1", Finished(state=b""))
    assert set(stage.inbox) == {"io0", "io2"}


def test_the_step_that_is_known_to_have_crashed_is_charged_and_the_others_are_not() -> None:
    stage = Stage(workers=1)
    stage.register("IO", threads=2)
    stage.submit(stage.new("a", "IO"), stage.new("b", "IO"))
    guilty = stage.inbox["b"].token

    lose(stage, guilty.worker, blamed=guilty)

    assert [stage.core.view(name).crashes for name in "ab"] == [0, 1]


def test_when_nobody_knows_which_step_crashed_each_suspect_runs_alone_next() -> None:
    stage = Stage(workers=1, crashes=1)
    stage.register("IO", threads=4, crashes=2)
    stage.submit(stage.new("a", "IO"), stage.new("b", "IO"))

    lose(stage, WorkerId(0, 1))
    stage.inbox.clear()
    stage.handle(WorkerReady(WorkerId(0, 2)))

    assert list(stage.inbox) == ["a"]
    assert stage.inbox["a"].limits is None or stage.inbox["a"].limits.threads == 1
    stage.answer("a", Finished(state=b""))
    assert list(stage.inbox) == ["b"]
    lose(stage, WorkerId(0, 2))
    assert stage.core.view("b").crashes == 1


def test_a_forced_abort_of_a_step_that_runs_beside_others_kills_the_worker() -> None:
    stage = Stage(workers=1)
    stage.register("IO", threads=2)
    stage.submit(stage.new("a", "IO"), stage.new("b", "IO"))

    stage.handle(AbortRequested("b", reply=2, force=True))

    assert [kill.token.procedure for kill in stage.kills()] == ["b"]


# ---------------------------------------------------------------------- leaving
def test_a_leaving_worker_gets_nothing_more_and_is_stopped_when_it_has_nothing_left() -> None:
    stage = Stage(workers=1)
    stage.core._state.worker_table._expected["T"] = 0.001
    stage.submit(stage.new("a"), stage.new("b"))
    assert set(stage.inbox) == {"a", "b"}

    stage.handle(WorkerLeaving(WorkerId(0, 1)))
    assert [taken.tokens for taken in commands(stage, TakeBack)] == [(stage.inbox["b"].token,)]
    stage.handle(StepReturned(stage.inbox.pop("b").token))
    assert commands(stage, StopWorker) == []
    stage.answer("a", Finished(state=b""))

    assert commands(stage, StopWorker) == [StopWorker(WorkerId(0, 1))]
    assert "b" not in stage.inbox
    lose(stage, WorkerId(0, 1), CrashReport(kind="stopped", message="stopped as asked"), crashed=False)
    stage.handle(WorkerReady(WorkerId(0, 2)))
    assert stage.inbox["b"].token.attempt == 1


# ---------------------------------------------------------------------- reports
def test_a_death_is_in_the_head_while_the_step_is_tried_again_and_in_the_record_of_its_end() -> None:
    stage = Stage(workers=1)
    stage.submit(stage.new("p"))
    stage.kill(0)
    error = stage.core.view("p").error
    assert error is not None
    assert error.crash is not None
    assert error.crash.signal == "SIGKILL"

    stage.handle(WorkerReady(WorkerId(0, 2)))
    stage.answer("p", Advanced(state=b""))

    record = next(w.record for w in reversed(stage.writes) if isinstance(w, PutStep))
    assert record.crash is not None
    assert record.crash.crash == error.crash
    assert stage.core.view("p").error is None


def test_too_much_cpu_time_is_a_timeout_and_too_much_memory_a_crash() -> None:
    for kind, state, error in [("cpu-limit", "errors", "StepTimeout"), ("memory-limit", "crashes", "WorkerCrashed")]:
        stage = Stage(workers=1)
        stage.submit(stage.new("p"))
        token = stage.inbox["p"].token

        lose(stage, token.worker, CrashReport(kind=kind, message="too much"), blamed=token)

        record = stage.core.view("p")
        assert getattr(record, state) == 1
        assert record.error is not None
        assert record.error.type_name == error


def test_an_answer_under_an_old_token_changes_no_bookkeeping_of_threads() -> None:
    stage = Stage(workers=1)
    stage.register("IO", threads=2)
    stage.submit(stage.new("a", "IO"))
    old: RunStep = stage.inbox["a"]
    lose(stage, WorkerId(0, 1), blamed=old.token)

    stage.handle(StepEnded(old.token, Finished(state=b"")))

    stage.handle(WorkerReady(WorkerId(0, 2)))
    assert stage.inbox["a"].token.attempt == 2
    assert isinstance(stage.core, Coordinator)


# ---------------------------------------------------------------------- retries of one submit
@pytest.mark.parametrize(("given", "attempts"), [(Backoff(max_attempts=4, base=0.0), 4), (None, 2)])
def test_the_retry_policy_of_a_submit_goes_before_that_of_the_class(given, attempts) -> None:
    stage = Stage(retry=Backoff(max_attempts=2, base=0.0))
    stage.submit(msgspec.structs.replace(stage.new("p"), limits=StepLimits(retry=given)))

    for number in range(1, attempts + 1):
        assert stage.inbox["p"].token.attempt == number
        stage.answer("p", Failed(error=ErrorInfo("error", "Oops", "no"), retryable=True))
        stage.now += 1.0
        stage.handle(Tick())
    assert stage.state("p") is ProcedureState.FAILED


@pytest.mark.parametrize(
    ("limits", "is_retried"),
    [
        (None, True),
        (StepLimits(), True),
        (StepLimits(retry=Backoff()), False),
        (StepLimits(retry=Backoff(), retries_overtime=True), True),
    ],
)
def test_a_step_killed_for_its_time_is_tried_again_as_its_submit_says(limits, is_retried) -> None:
    stage = Stage(retries_overtime=True)
    stage.submit(msgspec.structs.replace(stage.new("p"), limits=limits))

    lose(stage, stage.inbox["p"].token.worker, CrashReport(kind="timeout", message="too long"))

    assert (stage.state("p") is ProcedureState.RUNNABLE) is is_retried
