"""`Limits.lock_wait`: how long a procedure waits for its locks, over restarts, and what has no limit."""

from __future__ import annotations

import pytest

from actorproc.model.ids import WorkerId
from actorproc.model.messages.events import PauseRequested, ResumeRequested, Tick, TypeRegistered, WorkerReady
from actorproc.model.messages.outcomes import Advanced, Finished, Suspended
from actorproc.model.policies import LockKey, StepLimits, TypeMeta
from actorproc.model.states import ProcedureState
from tests.core.harness import CoreHarness, boom, difference, restarted

A, B = LockKey.write("a"), LockKey.write("b")
FAILED, ROLLEDBACK, RUNNABLE = ProcedureState.FAILED, ProcedureState.ROLLEDBACK, ProcedureState.RUNNABLE


def held(**traits: object) -> CoreHarness:
    """A harness in which ``holder`` has ``a``, and ``w`` waits for it, 10 seconds at most."""
    harness = CoreHarness(workers=3, lock_wait=10.0, **traits)
    harness.register("Free")
    harness.submit(harness.new("holder", "Free", locks=(A,)))
    harness.submit(harness.new("w", locks=(A,)))
    assert "w" not in harness.inbox
    return harness


def at(harness: CoreHarness, now: float) -> None:
    harness.now = now
    harness.handle(Tick())


def error_of(harness: CoreHarness, id: str = "w") -> str | None:
    record = harness.core.view(id)
    assert record is not None
    return None if record.error is None else f"{record.error.kind}: {record.error.message}"


def test_it_fails_when_it_has_waited_so_long_and_not_before() -> None:
    harness = held()
    assert harness.core.next_deadline() == 10.0
    at(harness, 9.9)
    assert harness.state("w") is RUNNABLE
    at(harness, 10.0)
    assert harness.state("w") is ROLLEDBACK
    assert error_of(harness) == (
        "lock-timeout: waits for write of 'a' held by holder, for longer than Limits(lock_wait=…) allows"
    )
    assert harness.state("holder") is RUNNABLE
    assert difference(harness) is None


def test_what_gets_its_locks_in_time_goes_on_and_waits_anew_for_others() -> None:
    harness = held()
    at(harness, 9.0)
    harness.answer("holder", Finished(state=b"1"))
    assert harness.inbox["w"].token.step == 1
    at(harness, 20.0)
    harness.submit(harness.new("other", "Free", locks=(B,)))
    harness.answer("w", Advanced(state=b"1", acquire=(B,)))
    at(harness, 29.9)
    assert harness.state("w") is RUNNABLE
    assert difference(harness) is None
    at(harness, 30.0)
    assert harness.state("w") is FAILED


def test_a_restart_goes_on_with_the_same_time() -> None:
    harness = held()
    harness.now = 6.0
    again = restarted(harness, TypeMeta(type_name="T", lock_wait=10.0), TypeMeta(type_name="Free"))
    again.now = 6.0
    again.handle(TypeRegistered(TypeMeta(type_name="Free")))
    again.handle(WorkerReady(WorkerId(0, 1)))
    at(again, 9.9)
    assert again.state("w") is RUNNABLE
    at(again, 10.0)
    assert again.state("w") is ROLLEDBACK


def test_limits_of_a_submit_come_first_and_a_deadline_stays_a_deadline() -> None:
    harness = held()
    harness.submit(harness.new("x", locks=(A,), limits=StepLimits(lock_wait=3.0, given=("lock_wait",))))
    harness.submit(harness.new("y", locks=(A,), limits=StepLimits(crashes=1)))
    harness.submit(harness.new("z", locks=(A,), deadline=2.0))
    at(harness, 2.0)
    assert (error_of(harness, "z") or "").startswith("deadline")
    at(harness, 3.0)
    assert harness.state("x") is ROLLEDBACK
    at(harness, 50.0)
    assert (harness.state("w"), harness.state("y")) == (ROLLEDBACK, RUNNABLE)


def test_a_child_that_waits_too_long_fails_its_tree() -> None:
    harness = held(rollback_supported=True)
    harness.submit(harness.new("p", unit="u"))
    harness.answer("p", Suspended(state=b"1", children=(harness.new("c", locks=(A,)),)))
    at(harness, 10.0)
    harness.undo_all()
    assert harness.state("p") is ROLLEDBACK
    assert difference(harness) is None


def test_an_undo_waits_without_limit() -> None:
    harness = CoreHarness(workers=3, lock_wait=10.0, rollback_supported=True, lock_scope="step")
    harness.register("Free")
    harness.submit(harness.new("p", unit="u", locks=(A,)))
    harness.answer("p", Advanced(state=b"1", unit="v", after=5.0))
    harness.submit(harness.new("holder", "Free", locks=(A,)))
    at(harness, 5.0)  # it waits for its second step
    at(harness, 15.0)
    assert (error_of(harness, "p") or "").startswith("lock-timeout")
    at(harness, 100.0)
    assert harness.core.view("p").undoing
    harness.answer("holder", Finished(state=b"1"))
    harness.undo_all()
    assert harness.state("p") is ROLLEDBACK
    assert difference(harness) is None


def test_past_the_point_of_no_return_it_waits_on_and_says_so() -> None:
    harness = CoreHarness(workers=3, lock_wait=10.0)
    harness.register("Free")
    harness.submit(harness.new("p", no_return=True))
    harness.submit(harness.new("holder", "Free", locks=(A,)))
    harness.answer("p", Advanced(state=b"1", acquire=(A,)))
    at(harness, 10.0)
    assert harness.state("p") is RUNNABLE
    assert (error_of(harness, "p") or "").startswith("lock-timeout")
    assert difference(harness) is None
    harness.answer("holder", Finished(state=b"1"))
    assert harness.inbox["p"].token.step == 2


@pytest.mark.parametrize("resumed", [20.0, 5.0])
def test_a_paused_procedure_does_not_wait_and_begins_to_when_it_is_resumed(resumed: float) -> None:
    harness = held()
    harness.handle(PauseRequested("w", 8))
    at(harness, resumed)
    assert harness.state("w") is RUNNABLE
    harness.handle(ResumeRequested("w", 9))
    at(harness, resumed + 9.9)
    assert harness.state("w") is RUNNABLE
    at(harness, resumed + 10.0)
    assert harness.state("w") is ROLLEDBACK


def test_a_retry_takes_its_locks_again_without_a_limit() -> None:
    harness = held()
    harness.answer("holder", boom())
    assert harness.state("holder") is FAILED
    assert harness.inbox["w"].token.step == 1
