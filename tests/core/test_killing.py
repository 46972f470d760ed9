"""An operator ends one attempt: the step runs again, nothing is charged, and the attempt is recorded."""

from __future__ import annotations

import pytest

from actorproc.errors import UnknownProcedure
from actorproc.model.ids import Mode, WorkerId
from actorproc.model.messages.commands import Reply, RunStep, TakeBack
from actorproc.model.messages.events import CrashReport, KillRequested, StepReturned, WorkerLost
from actorproc.model.messages.outcomes import Finished
from actorproc.model.rows.writes import PutAttempt, PutAudit
from actorproc.model.states import ProcedureState
from tests.core.harness import CoreHarness, boom, difference


def _asked(harness: CoreHarness, id: str) -> Reply:
    decision = harness.handle(KillRequested(id, 9, "it hangs"))
    return next(command for command in decision.commands if isinstance(command, Reply))


def _dies(harness: CoreHarness, slot: int, id: str):
    report = CrashReport(kind="killed", message="killed by operator", code=-9, signal="SIGKILL")
    return harness.handle(WorkerLost(WorkerId(slot, 1), report, blamed=harness.inbox[id].token))


def test_a_killed_attempt_is_charged_to_nothing_and_the_step_runs_again():
    harness = CoreHarness(2, crashes=1)
    harness.submit(harness.new("p", step_name="reserve"))
    slot = harness.inbox["p"].token.worker.slot

    assert _asked(harness, "p").value is True
    (kill,) = harness.kills()
    decision = _dies(harness, slot, "p")

    assert (kill.token.procedure, kill.kind) == ("p", "killed")
    head = harness.core.view("p")
    assert head is not None
    assert (head.errors, head.crashes, head.error, head.attempt) == (0, 0, None, 2)
    (run,) = [command for command in decision.commands if isinstance(command, RunStep)]
    assert run.replayed
    (written,) = [write.record for write in decision.writes if isinstance(write, PutAttempt)]
    assert (written.attempt, written.error.kind, written.error.step_name) == (1, "killed", "reserve")
    audit, _ = [write.record for write in harness.writes if isinstance(write, PutAudit)]
    assert (audit.verb, audit.reason, audit.detail) == ("kill", "it hangs", "step 1 (reserve), attempt 1")
    assert difference(harness) is None
    harness.answer("p", Finished(state=b"1"))
    assert harness.state("p") is ProcedureState.SUCCESS


@pytest.mark.parametrize(("kind", "crashes", "errors"), [("killed", 0, 0), ("signal", 0, 0), ("timeout", 0, 1)])
def test_an_attempt_that_is_to_be_killed_is_no_crash_however_its_worker_dies(kind, crashes, errors):
    harness = CoreHarness(2, retries_overtime=True)
    harness.submit(harness.new("p"))
    _asked(harness, "p")
    token = harness.inbox["p"].token

    decision = harness.handle(WorkerLost(token.worker, CrashReport(kind=kind, message="gone"), blamed=token))

    head = harness.core.view("p")
    assert head is not None
    assert (head.crashes, head.errors) == (crashes, errors)
    (written,) = [write.record for write in decision.writes if isinstance(write, PutAttempt)]
    assert written.error.kind == ("killed" if not errors else "timeout")


@pytest.mark.parametrize("times", [3, 7])
def test_no_number_of_kills_fails_a_step(times):
    harness = CoreHarness(times + 1, crashes=1)
    harness.submit(harness.new("p"))

    for _ in range(times):
        slot = harness.inbox["p"].token.worker.slot
        _asked(harness, "p")
        _dies(harness, slot, "p")

    head = harness.core.view("p")
    assert head is not None
    assert (head.crashes, head.errors, head.attempt) == (0, 0, times + 1)
    harness.answer("p", Finished(state=b"1"))
    assert harness.state("p") is ProcedureState.SUCCESS


def test_an_answer_that_comes_before_the_kill_counts():
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    _asked(harness, "p")

    harness.answer("p", Finished(state=b"1"))

    assert harness.state("p") is ProcedureState.SUCCESS


def test_a_step_behind_another_is_taken_back_and_goes_on():
    harness = CoreHarness()
    for number in range(30):  # so that steps are known to be short, and the next one is sent behind the first
        harness.submit(harness.new(f"short-{number}"))
        harness.answer(f"short-{number}", Finished(state=b"1", elapsed=1e-5))
    harness.submit(harness.new("first"))
    harness.submit(harness.new("waiting"))
    waiting = "waiting"
    before = len(harness.commands)

    assert _asked(harness, waiting).value is True

    (taken,) = [command for command in harness.commands[before:] if isinstance(command, TakeBack)]
    harness.inbox.pop(waiting)
    harness.handle(StepReturned(taken.tokens[0]))
    assert harness.inbox[waiting].token.attempt == 1


def test_an_undo_can_be_killed_and_runs_again():
    harness = CoreHarness(2, rollback_supported=True)
    harness.submit(harness.new("p", unit="reserve"))
    harness.answer("p", boom("no"))
    undo = harness.inbox["p"]
    assert undo.token.mode is Mode.ROLLBACK

    assert _asked(harness, "p").value is True
    _dies(harness, undo.token.worker.slot, "p")

    again = harness.inbox["p"]
    assert (again.token.mode, again.token.attempt, again.unit) == (Mode.ROLLBACK, 2, "reserve")
    assert harness.undo_all() == ["p:reserve"]
    assert harness.state("p") is ProcedureState.ROLLEDBACK


def test_what_no_worker_has_is_not_killed_and_an_unknown_one_is_told():
    harness = CoreHarness(0)
    harness.submit(harness.new("p"))

    assert _asked(harness, "p").value is False
    assert isinstance(_asked(harness, "nobody").error, UnknownProcedure)
