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

from .harness import CoreHarness

OWN = WorkerId(100, 1)
SEGFAULT = CrashReport(kind="signal", message="killed by signal 11 (SIGSEGV)", signal="SIGSEGV", stack="Fatal …")


def commands(harness: CoreHarness, kind: type) -> list:
    return [command for command in harness.commands if isinstance(command, kind)]


def lose(harness: CoreHarness, worker: WorkerId, report: CrashReport = SEGFAULT, **more: object) -> None:
    harness.handle(WorkerLost(worker, report, **more))  # type: ignore[arg-type]


# ---------------------------------------------------------------------- dedicated
def test_a_dedicated_procedure_asks_for_its_worker_and_runs_in_no_other() -> None:
    harness = CoreHarness(workers=1, dedicated=True)

    harness.submit(harness.new("p"))
    assert commands(harness, StartWorker) == [StartWorker("p")]
    assert "p" not in harness.inbox

    harness.handle(WorkerReady(OWN, reserved="p"))
    assert harness.inbox["p"].token.worker == OWN


def test_the_worker_of_a_procedure_runs_nobody_elses_steps() -> None:
    harness = CoreHarness(workers=0)
    harness.register("D", dedicated=True)
    harness.submit(harness.new("mine", "D"))
    harness.handle(WorkerReady(OWN, reserved="mine"))
    harness.answer("mine", Slept(state=b"", seconds=60.0))

    harness.submit(harness.new("other"))

    assert "other" not in harness.inbox


def test_the_worker_of_a_procedure_waits_with_it_and_is_stopped_at_its_end() -> None:
    harness = CoreHarness(workers=0, dedicated=True)
    harness.submit(harness.new("p"))
    harness.handle(WorkerReady(OWN, reserved="p"))
    harness.answer("p", Advanced(state=b""))

    assert commands(harness, StopWorker) == []
    harness.answer("p", Finished(state=b""))

    assert commands(harness, StopWorker) == [StopWorker(OWN)]
    assert harness.state("p") == ProcedureState.SUCCESS


def test_a_dead_dedicated_worker_is_asked_for_again_with_the_next_step() -> None:
    harness = CoreHarness(workers=0, dedicated=True)
    harness.submit(harness.new("p"))
    harness.handle(WorkerReady(OWN, reserved="p"))
    lose(harness, OWN)

    assert commands(harness, StartWorker) == [StartWorker("p"), StartWorker("p")]
    harness.handle(WorkerReady(WorkerId(101, 1), reserved="p"))
    assert harness.inbox["p"].token.attempt == 2


def test_a_worker_that_comes_for_a_procedure_that_has_ended_is_stopped() -> None:
    harness = CoreHarness(workers=0, dedicated=True)
    harness.submit(harness.new("p"))
    harness.handle(AbortRequested("p", reply=2))

    harness.handle(WorkerReady(OWN, reserved="p"))

    assert commands(harness, StopWorker) == [StopWorker(OWN)]


def test_dedicated_procedures_beyond_the_limit_wait_for_one_to_end() -> None:
    harness = CoreHarness(workers=0, dedicated=True)
    harness.core._state.settings.quotas = Quotas(dedicated=1)
    harness.submit(harness.new("first"), harness.new("second"))
    assert commands(harness, StartWorker) == [StartWorker("first")]

    harness.handle(WorkerReady(OWN, reserved="first"))
    harness.answer("first", Finished(state=b""))

    assert commands(harness, StartWorker) == [StartWorker("first"), StartWorker("second")]


def test_a_procedure_that_waits_for_its_worker_is_queued_again_by_a_restart() -> None:
    harness = CoreHarness(workers=0, dedicated=True)
    harness.submit(harness.new("p"))
    before = harness.core.fingerprint()

    assert "p" in before["at work"]  # type: ignore[index]


def test_limits_given_with_the_submit_hold_instead_of_those_of_the_class() -> None:
    harness = CoreHarness(workers=1, wall_time=1.0)

    harness.submit(harness.new("p", limits=StepLimits(wall_time=9.0, cpu_time=2.0, crashes=1)))

    run = harness.inbox["p"]
    assert run.wall_time == 9.0
    assert run.limits is not None
    assert run.limits.cpu_time == 2.0
    lose(harness, run.token.worker)
    assert harness.state("p") == ProcedureState.FAILED


# ---------------------------------------------------------------------- beside each other
def test_steps_with_threads_are_kept_together_and_never_mixed_with_others() -> None:
    harness = CoreHarness(workers=2)
    harness.register("IO", threads=3)
    harness.submit(*(harness.new(f"io{number}", "IO") for number in range(3)))

    workers = {harness.inbox[f"io{number}"].token.worker for number in range(3)}
    assert len(workers) == 1

    harness.submit(harness.new("cpu"), harness.new("cpu2"))
    assert harness.inbox["cpu"].token.worker not in workers


def test_no_more_steps_run_at_once_than_the_class_allows() -> None:
    harness = CoreHarness(workers=1)
    harness.register("IO", threads=2)

    harness.submit(*(harness.new(f"io{number}", "IO") for number in range(3)))
    assert set(harness.inbox) == {"io0", "io1"}

    harness.answer("io1", Finished(state=b""))
    assert set(harness.inbox) == {"io0", "io2"}


def test_the_step_that_is_known_to_have_crashed_is_charged_and_the_others_are_not() -> None:
    harness = CoreHarness(workers=1)
    harness.register("IO", threads=2)
    harness.submit(harness.new("a", "IO"), harness.new("b", "IO"))
    guilty = harness.inbox["b"].token

    lose(harness, guilty.worker, blamed=guilty)

    assert [harness.core.view(name).crashes for name in "ab"] == [0, 1]


def test_when_nobody_knows_which_step_crashed_each_suspect_runs_alone_next() -> None:
    harness = CoreHarness(workers=1, crashes=1)
    harness.register("IO", threads=4, crashes=2)
    harness.submit(harness.new("a", "IO"), harness.new("b", "IO"))

    lose(harness, WorkerId(0, 1))
    harness.inbox.clear()
    harness.handle(WorkerReady(WorkerId(0, 2)))

    assert list(harness.inbox) == ["a"]
    assert harness.inbox["a"].limits is None or harness.inbox["a"].limits.threads == 1
    harness.answer("a", Finished(state=b""))
    assert list(harness.inbox) == ["b"]
    lose(harness, WorkerId(0, 2))
    assert harness.core.view("b").crashes == 1


def test_a_forced_abort_of_a_step_that_runs_beside_others_kills_the_worker() -> None:
    harness = CoreHarness(workers=1)
    harness.register("IO", threads=2)
    harness.submit(harness.new("a", "IO"), harness.new("b", "IO"))

    harness.handle(AbortRequested("b", reply=2, force=True))

    assert [kill.token.procedure for kill in harness.kills()] == ["b"]


# ---------------------------------------------------------------------- leaving
def test_a_leaving_worker_gets_nothing_more_and_is_stopped_when_it_has_nothing_left() -> None:
    harness = CoreHarness(workers=1)
    harness.core._state.workers.table._expected["T"] = 0.001
    harness.submit(harness.new("a"), harness.new("b"))
    assert set(harness.inbox) == {"a", "b"}

    harness.handle(WorkerLeaving(WorkerId(0, 1)))
    assert [taken.tokens for taken in commands(harness, TakeBack)] == [(harness.inbox["b"].token,)]
    harness.handle(StepReturned(harness.inbox.pop("b").token))
    assert commands(harness, StopWorker) == []
    harness.answer("a", Finished(state=b""))

    assert commands(harness, StopWorker) == [StopWorker(WorkerId(0, 1))]
    assert "b" not in harness.inbox
    lose(harness, WorkerId(0, 1), CrashReport(kind="stopped", message="stopped as asked"), crashed=False)
    harness.handle(WorkerReady(WorkerId(0, 2)))
    assert harness.inbox["b"].token.attempt == 1


# ---------------------------------------------------------------------- reports
def test_a_death_is_in_the_head_while_the_step_is_tried_again_and_in_the_record_of_its_end() -> None:
    harness = CoreHarness(workers=1)
    harness.submit(harness.new("p"))
    harness.kill(0)
    error = harness.core.view("p").error
    assert error is not None
    assert error.crash is not None
    assert error.crash.signal == "SIGKILL"

    harness.handle(WorkerReady(WorkerId(0, 2)))
    harness.answer("p", Advanced(state=b""))

    record = next(w.record for w in reversed(harness.writes) if isinstance(w, PutStep))
    assert record.crash is not None
    assert record.crash.crash == error.crash
    assert harness.core.view("p").error is None


def test_too_much_cpu_time_is_a_timeout_and_too_much_memory_a_crash() -> None:
    for kind, state, error in [("cpu-limit", "errors", "StepTimeout"), ("memory-limit", "crashes", "WorkerCrashed")]:
        harness = CoreHarness(workers=1)
        harness.submit(harness.new("p"))
        token = harness.inbox["p"].token

        lose(harness, token.worker, CrashReport(kind=kind, message="too much"), blamed=token)

        record = harness.core.view("p")
        assert getattr(record, state) == 1
        assert record.error is not None
        assert record.error.type_name == error


def test_an_answer_under_an_old_token_changes_no_bookkeeping_of_threads() -> None:
    harness = CoreHarness(workers=1)
    harness.register("IO", threads=2)
    harness.submit(harness.new("a", "IO"))
    old: RunStep = harness.inbox["a"]
    lose(harness, WorkerId(0, 1), blamed=old.token)

    harness.handle(StepEnded(old.token, Finished(state=b"")))

    harness.handle(WorkerReady(WorkerId(0, 2)))
    assert harness.inbox["a"].token.attempt == 2
    assert isinstance(harness.core, Coordinator)


# ---------------------------------------------------------------------- retries of one submit
@pytest.mark.parametrize(("given", "attempts"), [(Backoff(max_attempts=4, base=0.0), 4), (None, 2)])
def test_the_retry_policy_of_a_submit_goes_before_that_of_the_class(given, attempts) -> None:
    harness = CoreHarness(retry=Backoff(max_attempts=2, base=0.0))
    harness.submit(msgspec.structs.replace(harness.new("p"), limits=StepLimits(retry=given)))

    for number in range(1, attempts + 1):
        assert harness.inbox["p"].token.attempt == number
        harness.answer("p", Failed(error=ErrorInfo("error", "Oops", "no"), retryable=True))
        harness.now += 1.0
        harness.handle(Tick())
    assert harness.state("p") is ProcedureState.FAILED


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
    harness = CoreHarness(retries_overtime=True)
    harness.submit(msgspec.structs.replace(harness.new("p"), limits=limits))

    lose(harness, harness.inbox["p"].token.worker, CrashReport(kind="timeout", message="too long"))

    assert (harness.state("p") is ProcedureState.RUNNABLE) is is_retried
