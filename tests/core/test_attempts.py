"""Records of failed attempts: written with the failure, kept for the newest, gone with the step log."""

from __future__ import annotations

from actorproc.model.ids import Mode
from actorproc.model.messages.outcomes import Advanced, Finished
from actorproc.model.policies import Backoff
from actorproc.model.rows.records import ATTEMPTS_KEPT, AttemptRecord
from actorproc.model.rows.writes import PutAttempt, PutProcedure, PutStep
from actorproc.store.memory import MemoryStore
from tests.core.harness import CoreHarness, boom, later

OFTEN = Backoff(max_attempts=1000, base=0.0)


def _stored(harness: CoreHarness) -> MemoryStore:
    store = MemoryStore()
    store.commit(harness.writes, store.own())
    return store


def _attempts(harness: CoreHarness, id: str = "p") -> list[AttemptRecord]:
    return _stored(harness).attempts(id)


def test_a_step_that_succeeds_at_once_writes_its_record_and_its_head_alone():
    harness = CoreHarness()
    harness.submit(harness.new("p"))

    decision = harness.answer("p", Advanced(state=b"1"))

    assert {type(write) for write in decision.writes} == {PutStep, PutProcedure}


def test_a_failed_attempt_is_written_in_the_decision_that_charges_it():
    harness = CoreHarness(retry=OFTEN)
    harness.submit(harness.new("p", step_name="reserve"))
    harness.now = 5.0

    decision = harness.answer("p", later("busy", after=0.0))

    (write,) = [write for write in decision.writes if isinstance(write, PutAttempt)]
    found = write.record
    assert (found.step, found.mode, found.attempt, found.slot, found.ended_at) == (1, Mode.EXECUTE, 1, 0, 5.0)
    assert (found.error.message, found.error.step_name) == ("busy", "reserve")


def test_a_death_is_an_attempt_and_a_host_restart_is_none():
    harness = CoreHarness(2)
    harness.submit(harness.new("p"))
    slot = harness.inbox["p"].token.worker.slot

    harness.kill(slot)

    (found,) = _attempts(harness)
    assert (found.attempt, found.slot, found.error.kind) == (1, slot, "crash")
    assert found.error.crash is not None


def test_the_newest_of_a_step_are_kept():
    harness = CoreHarness(retry=OFTEN)
    harness.submit(harness.new("p"))
    for number in range(1, 3 * ATTEMPTS_KEPT):
        harness.now = float(number)
        harness.answer("p", later(f"no {number}", after=0.0))

    found = _attempts(harness)

    assert [row.attempt for row in found] == list(range(2 * ATTEMPTS_KEPT, 3 * ATTEMPTS_KEPT))


def test_an_undo_that_fails_has_attempts_of_its_own():
    harness = CoreHarness(rollback_supported=True, rollback_retry=OFTEN)
    harness.submit(harness.new("p", unit="reserve"))
    harness.answer("p", boom("first"))
    harness.answer("p", later("undo"))

    assert [(row.mode, row.error.message, row.error.step_name) for row in _attempts(harness)] == [
        (Mode.EXECUTE, "first", ""),
        (Mode.ROLLBACK, "undo", "reserve"),
    ]


def test_they_go_with_the_records_of_their_steps():
    harness = CoreHarness(keep_steps=2, retry=OFTEN)
    harness.submit(harness.new("p"))
    for _ in range(12):
        harness.answer("p", later("again", after=0.0))
        harness.answer("p", Advanced(state=b"1"))

    left = {row.step for row in _attempts(harness)}

    kept = {record.number for record in _stored(harness).steps("p")}
    assert max(left) == 12
    assert len(left) <= len(kept) + 1
    harness.answer("p", Finished(state=b"1"))
    assert len(_attempts(harness)) == len(left)
