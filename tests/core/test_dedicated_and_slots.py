"""Dedicated workers, workers added and retired, slots and rates, in trees that wait, fail or are retried."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from actorproc.core.coordinator import Coordinator
from actorproc.model.ids import Mode, WorkerId
from actorproc.model.messages.commands import (
    AddWorker,
    Decision,
    RetireWorker,
    StartWorker,
    StopWorker,
    TakeBack,
)
from actorproc.model.messages.events import (
    AbortRequested,
    CrashReport,
    RetryRequested,
    Tick,
    TypeRegistered,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.messages.outcomes import (
    Advanced,
    Finished,
    Outcome,
    Slept,
    Suspended,
    Waited,
)
from actorproc.model.policies import LockKey, Quotas, Scheduling, StepLimits, TypeMeta
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.states import ProcedureState
from tests.core.harness import CoreHarness, boom, difference, later

DONE = Finished(state=b"")
SUCCESS = ProcedureState.SUCCESS


def _hire(harness: CoreHarness, name: str, slot: int) -> None:
    """The worker that was asked for comes."""
    assert StartWorker(name) in harness.commands
    harness.handle(WorkerReady(WorkerId(slot, 1), reserved=name))


def test_who_has_a_worker_of_its_own_does_not_wait_for_those_of_all() -> None:
    harness = CoreHarness(1)
    own = StepLimits(dedicated=True)
    harness.submit(harness.new("d", limits=own))
    _hire(harness, "d", 100)
    harness.submit(harness.new("long"), harness.new("next"))
    harness.now = 100.0  # by now "next" goes before whoever begins to wait
    harness.answer("d", Advanced(state=b""))
    assert "d" in harness.inbox
    assert "next" not in harness.inbox

    harness.submit(harness.new("e", limits=own))
    _hire(harness, "e", 101)

    assert "e" in harness.inbox


def test_who_waits_for_a_worker_waits_for_one_of_its_own_when_its_class_has_those_now() -> None:
    harness = CoreHarness(1)
    harness.register("Other")
    harness.submit(harness.new("long", "Other"), harness.new("before", "Other"), harness.new("next"))

    harness.handle(TypeRegistered(TypeMeta(type_name="T", dedicated=True)))
    _hire(harness, "next", 100)

    assert "next" in harness.inbox


def _asked(harness: CoreHarness, name: str) -> bool:
    return name in harness.inbox and harness.inbox[name].token.mode is Mode.ASK_ABORT


def test_who_is_asked_about_its_abort_and_has_no_place_for_a_worker_of_its_own_holds_up_nobody() -> None:
    harness = CoreHarness(0)
    harness.core, _ = Coordinator.restore(
        RecoverySnapshot(1, 1, 1, [], [], [], [], [], []), 0.0, quotas=Quotas(dedicated=1)
    )
    harness.register("T")
    harness.register("D", dedicated=True, asks_abort=True)
    harness.handle(WorkerReady(WorkerId(0, 1)))
    harness.submit(harness.new("d", "D"))
    _hire(harness, "d", 100)
    # It is to try again when it has lost its worker and another one has its place.
    harness.submit(harness.new("e", "D"))
    harness.answer("d", later(after=5.0))
    harness.handle(WorkerLost(WorkerId(100, 1), CrashReport(kind="stopped", message="stopped"), crashed=False))
    _hire(harness, "e", 101)

    harness.handle(AbortRequested("d", 2))
    harness.now = 10.0
    harness.handle(Tick())
    harness.submit(harness.new("x"))
    harness.now = 1000.0
    harness.handle(Tick())

    assert "x" in harness.inbox
    harness.answer("e", DONE)
    _hire(harness, "d", 102)
    assert _asked(harness, "d")


def _stopped(harness: CoreHarness, worker: WorkerId) -> Decision:
    return harness.handle(WorkerLost(worker, CrashReport(kind="stopped", message="stopped"), crashed=False))


def test_a_worker_of_ones_own_is_asked_for_again_when_the_one_that_was_told_to_stop_is_gone() -> None:
    harness = CoreHarness(0, dedicated=True)
    hired = WorkerId(100, 1)
    # Given: it was started before memory was lost, so nobody has asked for it.
    assert StopWorker(hired) in harness.handle(WorkerReady(hired, reserved="p")).commands

    # When its procedure asks while it is still there, which starts no other.
    harness.submit(harness.new("p"))
    assert harness.commands.count(StartWorker("p")) == 1

    # Then it is asked for again.
    assert StartWorker("p") in _stopped(harness, hired).commands
    harness.handle(WorkerReady(WorkerId(101, 1), reserved="p"))
    assert harness.inbox["p"].token.worker == WorkerId(101, 1)


def _limited(
    count: int, handed_out: Iterable[WorkerReady] = (), *, dedicated: int = 16, **terms: object
) -> CoreHarness:
    """A harness with these limits; `handed_out`: workers that lived on while memory was rebuilt."""
    harness = CoreHarness(0)
    known = tuple((ready, ()) for ready in handed_out)
    harness.core, _ = Coordinator.restore(
        RecoverySnapshot(1, 1, 1, [], [], [], [], [], []),
        0.0,
        workers=known,
        quotas=Quotas(dedicated=dedicated),
        scheduling=Scheduling(**terms),  # type: ignore[arg-type]
    )
    harness.register("T")
    for slot in range(count):
        harness.handle(WorkerReady(WorkerId(slot, 1)))
    return harness


def test_a_retried_root_does_not_wait_outside_with_locks_that_somebody_inside_needs() -> None:
    key = (LockKey.write("k"),)
    harness = _limited(2, max_running=1)
    harness.submit(harness.new("failed", locks=key))
    harness.answer("failed", boom())
    assert harness.state("failed") is ProcedureState.FAILED
    # Somebody else runs now, and wants the key in its next step.
    harness.submit(harness.new("inside"))

    harness.handle(RetryRequested("failed", 2))
    harness.answer("inside", Advanced(state=b"", acquire=key))
    harness.answer("failed", DONE)
    harness.answer("inside", DONE)

    assert harness.resolved()["failed"] is harness.resolved()["inside"] is SUCCESS


@pytest.mark.parametrize("outcome", [Waited(state=b"", event="never"), Slept(state=b"", seconds=9.0)])
def test_a_parent_that_begins_to_wait_lends_its_slot_to_a_child_that_waits_for_one(outcome: Outcome) -> None:
    key = (LockKey.write("k"),)
    harness = _limited(3, concurrency={"slot": 1})
    harness.submit(harness.new("stranger", locks=key))
    harness.submit(harness.new("p", limit_keys=("slot",)))
    slow = harness.new("slow", limit_keys=("slot",), locks=key)
    harness.answer("p", Suspended(state=b"", children=(harness.new("quick"), slow), wait="any"))
    # Given: the parent has the slot again and runs, when its child has its lock and wants that slot.
    harness.answer("quick", DONE)
    harness.answer("stranger", DONE)
    assert "p" in harness.inbox
    assert "slow" not in harness.inbox

    harness.answer("p", outcome)

    assert "slow" in harness.inbox


def test_the_last_worker_is_not_retired_for_a_slot_that_is_empty() -> None:
    # Given: slot 0 was retired, then memory was rebuilt, which counts it again.
    harness = _limited(0, [WorkerReady(WorkerId(1, 1))], workers=1, max_workers=2, extra_worker_idle=5.0)

    harness.now = 100.0
    harness.handle(Tick())

    assert not any(isinstance(command, RetireWorker) for command in harness.commands)
    assert harness.core.next_deadline() is None
    harness.submit(harness.new("p"))
    assert "p" in harness.inbox


def test_a_parent_that_is_asked_about_its_abort_lends_its_slot_all_the_same() -> None:
    harness = _limited(3, concurrency={"slot": 1})
    harness.register("Asked", asks_abort=True)
    harness.submit(harness.new("p", "Asked", limit_keys=("slot",)))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c"),)))
    harness.handle(AbortRequested("p", 2))
    assert harness.inbox["p"].token.mode is Mode.ASK_ABORT

    harness.answer("c", Suspended(state=b"", children=(harness.new("slow", limit_keys=("slot",)),)))

    assert "slow" in harness.inbox


def test_a_parent_that_is_done_and_takes_its_children_along_keeps_no_slot_meanwhile() -> None:
    harness = _limited(4, concurrency={"slot": 1})
    harness.register("Step", rollback_supported=True, lock_scope="step")
    key = (LockKey.write("k"),)
    harness.submit(harness.new("p", limit_keys=("slot",)))
    slow = harness.new("slow", "Step", unit="u", locks=key)
    harness.answer("p", Suspended(state=b"", children=(harness.new("quick"), slow), wait="any"))
    harness.answer("slow", Slept(state=b"", seconds=9.0))
    harness.answer("quick", DONE)
    # Given: the key that its child needs to be undone is with somebody who waits for the slot of the parent.
    harness.submit(harness.new("other", locks=key, limit_keys=("slot",)))
    assert "other" not in harness.inbox

    harness.answer("p", DONE)

    harness.answer("other", DONE)
    assert harness.undo_all() == ["slow:u"]
    assert harness.resolved()["p"] is SUCCESS


def test_a_parent_that_goes_on_when_its_child_is_undone_lends_its_slot_to_whoever_keeps_the_key_for_that() -> None:
    harness = _limited(2, concurrency={"slot": 1})
    harness.register("Parent", on_child_failure="resume")
    harness.register("Step", rollback_supported=True, lock_scope="step")
    key = (LockKey.write("k"),)
    harness.submit(harness.new("p", "Parent", limit_keys=("slot",)))
    harness.answer("p", Suspended(state=b"", children=(harness.new("child", "Step", unit="u", locks=key),)))
    harness.answer("child", Slept(state=b"", seconds=9.0))
    # Given: who has the key that the child needs to be undone waits for the slot of the parent.
    harness.submit(harness.new("other", locks=key, limit_keys=("slot",)))
    assert "other" not in harness.inbox

    harness.handle(AbortRequested("child", 2, force=True))

    harness.answer("other", DONE)
    assert harness.undo_all() == ["child:u"]
    harness.answer("p", DONE)
    assert harness.resolved()["p"] is SUCCESS


def test_who_has_lost_its_own_worker_to_one_that_waits_for_its_slot_gives_it_that() -> None:
    harness = _limited(1, concurrency={"slot": 1}, dedicated=1)
    alone = StepLimits(dedicated=True)
    key = (LockKey.write("k"),)
    harness.submit(harness.new("stranger", locks=key))
    harness.submit(harness.new("p", limits=alone, limit_keys=("slot",)))
    harness.handle(WorkerReady(WorkerId(5, 1), reserved="p"))
    # Given: while a child waits for a key the slot is lent, but the worker is not; another one waits for such a worker.
    harness.answer("p", Suspended(state=b"", children=(harness.new("child", locks=key),)))
    harness.submit(harness.new("other", limits=alone, limit_keys=("slot",)))
    harness.answer("stranger", DONE)
    harness.answer("child", DONE)
    assert "p" in harness.inbox

    # When its worker dies, and the other one gets the next.
    harness.kill(5)
    harness.handle(WorkerReady(WorkerId(6, 1), reserved="other"))

    harness.answer("other", DONE)
    harness.handle(WorkerReady(WorkerId(7, 1), reserved="p"))
    harness.answer("p", DONE)
    assert harness.resolved()["other"] is harness.resolved()["p"] is SUCCESS


def test_a_parent_lends_its_slot_when_a_child_has_lost_its_own_worker_to_one_that_waits_for_the_slot() -> None:
    harness = _limited(2, concurrency={"slot": 1, "own": 1}, dedicated=1)
    alone = StepLimits(dedicated=True)
    harness.submit(harness.new("p", limit_keys=("slot",)))
    children = (harness.new("quick"), harness.new("child", limits=alone, limit_keys=("own",)))
    harness.answer("p", Suspended(state=b"", children=children, wait="any"))
    harness.handle(WorkerReady(WorkerId(5, 1), reserved="child"))
    harness.submit(harness.new("other", limits=alone, limit_keys=("slot",)))
    # Given: the parent has its slot again, and waits for a child that has its own.
    harness.answer("quick", DONE)
    harness.answer("p", Suspended(state=b"", children=(), wait="any"))
    assert "child" in harness.inbox

    # When the child's worker dies, and the other one gets the next.
    harness.kill(5)
    assert difference(harness) is None
    harness.handle(WorkerReady(WorkerId(6, 1), reserved="other"))

    harness.answer("other", DONE)
    harness.handle(WorkerReady(WorkerId(7, 1), reserved="child"))
    harness.answer("child", DONE)
    harness.answer("p", DONE)
    assert harness.resolved()["other"] is harness.resolved()["p"] is SUCCESS


def test_a_worker_is_added_when_all_are_stuck_and_one_that_needs_a_free_slot_waits() -> None:
    harness = _limited(1, workers=1, max_workers=2, stuck_after=10.0, concurrency={"slot": 1})
    harness.submit(harness.new("stuck"))
    harness.submit(harness.new("waits", limit_keys=("slot",)))

    harness.now = harness.core.next_deadline() or 0.0
    harness.handle(Tick())

    assert harness.now == 10.0
    assert AddWorker() in harness.commands


def test_what_waits_is_handed_out_when_its_class_is_of_another_class_of_work_now() -> None:
    harness = _limited(1, shares={"before": 0.5, "now": 0.5}, concurrency={"slot": 1})
    harness.register("X", work_class="before")
    harness.submit(harness.new("runs", "T"))
    harness.submit(harness.new("plain", "X"), harness.new("limited", "X", limit_keys=("slot",)))

    harness.register("X", work_class="now")

    assert list(harness.inbox) == ["runs"]
    while harness.inbox:
        harness.answer(next(iter(harness.inbox)), DONE)
    assert harness.resolved() == dict.fromkeys(("runs", "plain", "limited"), SUCCESS)


def test_a_worker_that_leaves_with_nothing_in_hand_is_stopped_after_a_failed_commit_too() -> None:
    ready = WorkerReady(WorkerId(0, 1), leaving=True)
    snapshot = RecoverySnapshot(1, 1, 1, [], [], [], [], [], [])

    _, decision = Coordinator.restore(snapshot, 0.0, workers=((ready, ()),))

    assert decision.commands == [StopWorker(ready.worker)]


def test_who_waits_for_a_rate_waits_no_longer_when_the_clock_is_set_back() -> None:
    harness = _limited(2, rate={"key": (1, 10.0)})
    harness.now = 100.0
    harness.submit(harness.new("first", limit_keys=("key",)), harness.new("second", limit_keys=("key",)))
    assert harness.core.next_deadline() == 110.0

    harness.now = 50.0
    harness.handle(Tick())

    assert harness.core.next_deadline() == 60.0
    harness.now = 60.0
    harness.handle(Tick())
    assert "second" in harness.inbox


def test_what_waits_behind_a_silent_worker_is_asked_back_in_time_when_the_clock_was_set_back() -> None:
    harness = _limited(1, workers=1, max_workers=2, stuck_after=10.0)
    harness.now = 100.0
    harness.submit(harness.new("runs"))
    for _ in range(10):  # its steps are known to be short
        harness.answer("runs", Advanced(state=b""))
    harness.submit(harness.new("behind"))
    assert "behind" in harness.inbox
    assert harness.core.next_deadline() == 110.0  # is one more needed?

    harness.now = 50.0
    harness.handle(WorkerReady(WorkerId(1, 1)))

    harness.now = harness.core.next_deadline() or 0.0
    assert 50.0 < harness.now < 50.1
    harness.handle(Tick())
    assert [command for command in harness.commands if isinstance(command, TakeBack)]
