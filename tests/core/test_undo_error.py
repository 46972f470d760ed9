"""Why an undo is tried again: kept beside the reason of the failure, over restarts, until that undo is done."""

from __future__ import annotations

from actorproc.core.coordinator import Coordinator
from actorproc.model.ids import WorkerId
from actorproc.model.messages.events import Tick, WorkerReady
from actorproc.model.messages.outcomes import Advanced, Finished
from actorproc.model.policies import Backoff
from actorproc.model.rows.records import StepRecord
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.rows.writes import PutStep
from actorproc.model.states import ProcedureState
from actorproc.testing.histories.image import Image
from tests.core.harness import CoreHarness, boom

SOON = Backoff(max_attempts=3, base=1.0, jitter=0.0)
TRAITS = {"rollback_supported": True, "rollback_retry": SOON}


def _undo_failed_once() -> CoreHarness:
    harness = CoreHarness(**TRAITS)
    harness.submit(harness.new("p", unit="a"))
    harness.answer("p", Advanced(state=b"1", unit="b"))
    harness.answer("p", boom("the reason"))
    harness.answer("p", boom("the disk is gone", retryable=True))
    return harness


def step_records(harness: CoreHarness) -> list[StepRecord]:
    return [write.record for write in harness.writes if isinstance(write, PutStep)]


def _restarted(harness: CoreHarness, *, unattended: bool = False) -> CoreHarness:
    image = Image(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []))
    image.apply(harness.writes)
    snapshot = image.snapshot()
    snapshot.epoch = 2
    later = CoreHarness(workers=0)
    later.now = 100.0
    later.core, _ = Coordinator.restore(snapshot, later.now, gated=unattended, unattended=unattended)
    return later


def test_the_error_of_an_undo_stands_beside_the_reason_while_it_is_retried() -> None:
    harness = _undo_failed_once()

    head = harness.core.view("p")

    assert head.error.message == "the reason"
    assert head.undo_error.message == "the disk is gone"
    assert harness.core.phase(head)[1] == "its undo fails: the disk is gone"


def test_it_survives_a_restart_and_goes_with_the_undo_that_had_it() -> None:
    harness = _restarted(_undo_failed_once())
    assert harness.core.view("p").undo_error.message == "the disk is gone"

    harness.register("T", **TRAITS)
    harness.handle(WorkerReady(WorkerId(0, 1)))
    harness.handle(Tick())
    harness.answer("p", Finished(state=b"b undone"))

    assert harness.core.view("p").undo_error is None
    assert harness.inbox["p"].unit == "a"


def test_a_worker_that_dies_of_an_undo_is_told_too() -> None:
    harness = CoreHarness(**TRAITS)
    harness.submit(harness.new("p", unit="a"))
    harness.answer("p", boom("the reason"))

    harness.kill(0)

    assert "worker crashed" in harness.core.view("p").undo_error.message
    assert harness.core.view("p").error.message == "the reason"


def test_the_record_of_an_undo_keeps_the_death_it_survived() -> None:
    harness = CoreHarness(**TRAITS, workers=2)
    harness.submit(harness.new("p", unit="a"))
    harness.answer("p", boom("the reason"))
    harness.kill(harness.inbox["p"].token.worker.slot)

    harness.answer("p", Finished(state=b"undone"))

    (undone,) = [record for record in step_records(harness) if record.outcome == "undone"]
    assert undone.attempts == 2
    assert undone.crash is not None
    assert "its worker crashed" in undone.crash.message
    assert undone.crash.crash is not None


def test_an_error_that_an_undo_survived_is_no_death() -> None:
    harness = _undo_failed_once()
    harness.now += 60.0
    harness.handle(Tick())

    harness.answer("p", Finished(state=b"b undone"))

    (undone,) = [record for record in step_records(harness) if record.outcome == "undone"]
    assert undone.attempts == 2
    assert undone.crash is None


def test_an_undo_that_gives_up_leaves_one_error() -> None:
    harness = CoreHarness(rollback_supported=True, rollback_retry=Backoff(max_attempts=1))
    harness.submit(harness.new("p", unit="a"))
    harness.answer("p", boom("the reason"))

    harness.answer("p", boom("cannot"))

    head = harness.core.view("p")
    assert (head.state, head.error.message, head.undo_error) == (ProcedureState.FAILED, "cannot", None)
    assert head.error.traceback.endswith("because of this:\nValueError: the reason")
