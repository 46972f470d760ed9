"""What random histories with operators and limits found, each as the shortest story that tells it."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from actorproc.core.coordinator import Coordinator
from actorproc.core.queues.timers import SLICE, TimerQueue
from actorproc.errors import KeyPoisoned, NotAllowed
from actorproc.model.ids import Mode, WorkerId
from actorproc.model.messages.commands import (
    AddWorker,
    Decision,
    Reply,
    RetireWorker,
    StartWorker,
    StopWorker,
    TakeBack,
)
from actorproc.model.messages.events import (
    AbortRequested,
    Acknowledged,
    BypassRequested,
    CrashReport,
    DeleteRequested,
    PauseRequested,
    Published,
    ResumeRequested,
    RetryRequested,
    RollbackRequested,
    Signalled,
    StepEnded,
    StepReturned,
    Tick,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.messages.outcomes import (
    Advanced,
    Answered,
    Finished,
    Outcome,
    Poisoned,
    Refused,
    Slept,
    Suspended,
    Waited,
)
from actorproc.model.policies import LockKey, Quotas, Scheduling, StepLimits
from actorproc.model.rows.records import ErrorInfo
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.states import ProcedureState
from actorproc.testing.histories.image import Image, compare_with_restored
from tests.core.stage import Stage, boom, difference, image_of, later

DONE = Finished(state=b"")
SUCCESS = ProcedureState.SUCCESS


def _stage(count: int, handed_out: Iterable[WorkerReady] = (), *, dedicated: int = 16, **terms: object) -> Stage:
    """A stage with these limits; `handed_out`: workers that lived on while memory was rebuilt."""
    stage = Stage(0)
    known = tuple((ready, ()) for ready in handed_out)
    stage.core, _ = Coordinator.restore(
        RecoverySnapshot(1, 1, 1, [], [], [], [], [], []),
        0.0,
        workers=known,
        quotas=Quotas(dedicated=dedicated),
        scheduling=Scheduling(**terms),  # type: ignore[arg-type]
    )
    stage.register("T")
    for slot in range(count):
        stage.handle(WorkerReady(WorkerId(slot, 1)))
    return stage


def _restarted(stage: Stage) -> Stage:
    """A host that knows no class yet, with what is durable of this one and no workers."""
    again = Stage(0)
    again.core, _ = Coordinator.restore(image_of(stage).snapshot(), 1.0)
    again.now = 1.0
    return again


def _stopped(stage: Stage, worker: WorkerId) -> Decision:
    return stage.handle(WorkerLost(worker, CrashReport(kind="stopped", message="stopped"), crashed=False))


def test_a_worker_of_ones_own_is_asked_for_again_when_the_one_that_was_told_to_stop_is_gone() -> None:
    stage = Stage(0, dedicated=True)
    hired = WorkerId(100, 1)
    # Given: it was started before memory was lost, so nobody has asked for it.
    assert StopWorker(hired) in stage.handle(WorkerReady(hired, reserved="p")).commands

    # When its procedure asks while it is still there, which starts no other.
    stage.submit(stage.new("p"))
    assert stage.commands.count(StartWorker("p")) == 1

    # Then it is asked for again.
    assert StartWorker("p") in _stopped(stage, hired).commands
    stage.handle(WorkerReady(WorkerId(101, 1), reserved="p"))
    assert stage.inbox["p"].token.worker == WorkerId(101, 1)


def test_an_ancestor_is_bypassed_when_a_grandchild_that_outlived_its_parent_has_ended() -> None:
    stage = Stage(3)
    stage.submit(stage.new("a"))
    stage.answer("a", Suspended(state=b"", children=(stage.new("b"), stage.new("other"))))
    stage.answer(
        "b", Suspended(state=b"", children=(stage.new("c"), stage.new("d")), wait="any", on_parent_end="leave")
    )
    stage.answer("c", DONE)
    stage.answer("b", DONE)
    stage.answer("other", Waited(state=b"", event="never"))

    stage.handle(BypassRequested("other", 2, ancestors=True))
    assert stage.state("a") is not SUCCESS
    stage.answer("d", DONE)

    assert stage.resolved() == dict.fromkeys(("a", "b", "c", "d", "other"), SUCCESS)


def test_a_retried_root_does_not_wait_outside_with_locks_that_somebody_inside_needs() -> None:
    key = (LockKey.write("k"),)
    stage = _stage(2, max_running=1)
    stage.submit(stage.new("failed", locks=key))
    stage.answer("failed", boom())
    assert stage.state("failed") is ProcedureState.FAILED
    # Somebody else runs now, and wants the key in its next step.
    stage.submit(stage.new("inside"))

    stage.handle(RetryRequested("failed", 2))
    stage.answer("inside", Advanced(state=b"", acquire=key))
    stage.answer("failed", DONE)
    stage.answer("inside", DONE)

    assert stage.resolved()["failed"] is stage.resolved()["inside"] is SUCCESS


@pytest.mark.parametrize("outcome", [Waited(state=b"", event="never"), Slept(state=b"", seconds=9.0)])
def test_a_parent_that_begins_to_wait_lends_its_slot_to_a_child_that_waits_for_one(outcome: Outcome) -> None:
    key = (LockKey.write("k"),)
    stage = _stage(3, concurrency={"slot": 1})
    stage.submit(stage.new("stranger", locks=key))
    stage.submit(stage.new("p", limit_keys=("slot",)))
    slow = stage.new("slow", limit_keys=("slot",), locks=key)
    stage.answer("p", Suspended(state=b"", children=(stage.new("quick"), slow), wait="any"))
    # Given: the parent has the slot again and runs, when its child has its lock and wants that slot.
    stage.answer("quick", DONE)
    stage.answer("stranger", DONE)
    assert "p" in stage.inbox
    assert "slow" not in stage.inbox

    stage.answer("p", outcome)

    assert "slow" in stage.inbox


def test_the_last_worker_is_not_retired_for_a_slot_that_is_empty() -> None:
    # Given: slot 0 was retired, then memory was rebuilt, which counts it again.
    stage = _stage(0, [WorkerReady(WorkerId(1, 1))], workers=1, max_workers=2, extra_worker_idle=5.0)

    stage.now = 100.0
    stage.handle(Tick())

    assert not any(isinstance(command, RetireWorker) for command in stage.commands)
    assert stage.core.next_deadline() is None
    stage.submit(stage.new("p"))
    assert "p" in stage.inbox


def test_a_root_that_is_being_bypassed_cannot_be_rolled_back() -> None:
    stage = Stage(2, rollback_supported=True)
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c"), stage.new("d"))))
    stage.answer("c", Waited(state=b"", event="never"))
    stage.handle(BypassRequested("c", 2, ancestors=True))

    decision = stage.handle(RollbackRequested("p", 3))

    reply = next(command for command in decision.commands if isinstance(command, Reply))
    assert isinstance(reply.error, NotAllowed)
    stage.answer("d", DONE)
    assert stage.resolved()["p"] is SUCCESS


def test_a_retry_goes_on_with_the_signal_that_a_stopped_child_had_taken() -> None:
    stage = Stage(1)
    stage.register("C", rollback_supported=True)
    stage.submit(stage.new("p"))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c", "C"), stage.new("d"))))
    stage.answer("c", Waited(state=b"", event="e"))
    # Given: it is woken, and stopped before it ran; it had nothing to undo, its root cannot be undone.
    stage.handle(Published("e", b"hello", 2))
    stage.answer("d", boom())
    assert stage.state("c") is ProcedureState.ROLLEDBACK
    assert stage.state("p") is ProcedureState.FAILED

    stage.handle(RetryRequested("p", 3))

    assert stage.inbox["c"].event == b"hello"


def test_waiters_keep_their_order_whichever_class_is_registered_first_after_a_restart() -> None:
    key = (LockKey.write("k"),)
    stage = Stage(1)
    stage.register("Reader")
    stage.register("Writer")
    stage.submit(stage.new("holder", locks=key))
    stage.submit(stage.new("reader", "Reader", locks=(LockKey.read("k"),)))
    stage.submit(stage.new("writer", "Writer", locks=key))

    again = _restarted(stage)
    for name in ("Writer", "Reader", "T"):
        again.register(name)
    assert [row.procedure for row in again.core.lock_waiters()] == ["reader", "writer"]
    again.handle(WorkerReady(WorkerId(0, 1)))
    again.answer("holder", DONE)

    assert "reader" in again.inbox
    assert "writer" not in again.inbox


def test_a_waiter_whose_class_comes_late_does_not_queue_behind_younger_ones() -> None:
    stage = Stage(2)
    stage.register("Reader")
    stage.submit(stage.new("holder", locks=(LockKey.write("k"),)))
    stage.submit(stage.new("other", locks=(LockKey.write("l"),)))
    stage.submit(stage.new("reader", "Reader", locks=(LockKey.read("k"),)))
    stage.submit(stage.new("writer", locks=(LockKey.write("k"), LockKey.write("l"))))

    # Given: only the writer stands in line when the key becomes free, and it needs another one too.
    again = _restarted(stage)
    again.register("T")
    again.handle(WorkerReady(WorkerId(0, 1)))
    again.handle(WorkerReady(WorkerId(1, 1)))
    again.answer("holder", DONE)
    assert "writer" not in again.inbox

    again.register("Reader")

    assert "reader" in again.inbox


def test_a_grant_to_an_old_ticket_breaks_the_cycle_that_it_closes() -> None:
    a, k, other = (LockKey.write(name) for name in ("a", "k", "other"))
    stage = Stage(8)
    stage.register("Late")
    stage.submit(stage.new("holder", locks=(k,)))
    stage.submit(stage.new("other", locks=(other,)))
    stage.submit(stage.new("first"), stage.new("second", locks=(a,)))
    # Given: a child of the first waits for the holder, and its class comes late; its sibling waits for the second.
    stage.answer("first", Suspended(state=b"", children=(stage.new("old", "Late", locks=(k,)), stage.new("kin"))))
    stage.answer("kin", Advanced(state=b"", acquire=(LockKey.write("x"),)))
    stage.answer("kin", Advanced(state=b"", acquire=(a,)))

    again = _restarted(stage)
    again.register("T")
    for slot in range(4):
        again.handle(WorkerReady(WorkerId(slot, 1)))
    again.answer("holder", DONE)
    # The second may have the one key, and waits for the other.
    again.answer("second", Advanced(state=b"", acquire=(k, other)))
    again.register("Late")
    assert "old" in again.inbox

    # Then the younger tree gives way: each of the two waits for what the other holds.
    assert again.resolved()["second"] is ProcedureState.FAILED
    assert "kin" in again.inbox


def test_a_parked_member_of_a_failing_tree_is_undone_when_its_class_was_registered_before_its_turn() -> None:
    stage = Stage(3, rollback_supported=True)
    stage.register("C", rollback_supported=True)
    stage.submit(stage.new("p", unit="u"))
    children = (stage.new("c", "C", unit="u"), stage.new("d", unit="u"), stage.new("e", unit="u"))
    stage.answer("p", Suspended(state=b"", children=children))
    # Given: one is parked, its tree fails, and the host dies while a step of the tree still runs.
    stage.answer("c", Refused(reason="not today"))
    stage.answer("d", boom())

    again = _restarted(stage)
    again.register("C", rollback_supported=True)
    again.register("T", rollback_supported=True)
    again.handle(WorkerReady(WorkerId(0, 1)))

    assert again.undo_all() == ["e:u", "d:u", "c:u", "p:u"]
    assert again.resolved()["p"] is ProcedureState.ROLLEDBACK


def test_a_key_that_only_strangers_poison_any_more_is_not_given_to_the_sibling_that_waits_for_it() -> None:
    key = (LockKey.write("k"),)
    stage = Stage(3)
    stage.submit(stage.new("p"))
    first = stage.new("first", locks=key, poisons=("k",))
    stage.answer("p", Suspended(state=b"", children=(first, stage.new("waiter", locks=key))))
    stage.submit(stage.new("stranger", poisons=("k",)))
    assert {"first", "stranger"} <= stage.inbox.keys()

    stage.answer("first", DONE)

    assert "waiter" not in stage.inbox
    record = stage.core.view("waiter")
    assert record is not None
    assert record.error is not None
    assert record.error.type_name == "KeyPoisoned"


def test_two_undos_that_need_what_the_parent_of_the_other_keeps_are_no_deadlock() -> None:
    stage = Stage(4)
    stage.register("Parent", rollback_supported=True, on_child_failure="resume")
    stage.register("Step", rollback_supported=True, lock_scope="step")
    stage.submit(stage.new("root", "Parent"))
    shared = (LockKey.read("a/b"),)
    parents = (stage.new("p", "Parent", locks=shared), stage.new("q", "Parent", locks=shared))
    stage.answer("root", Suspended(state=b"", children=parents))
    for name in "pq":
        stage.answer(name, Suspended(state=b"", children=(stage.new(f"{name}.c", "Step", unit="u"),)))
        # Given: each child needs alone what both parents share, so neither gets it, nor can undo without it.
        stage.answer(f"{name}.c", Advanced(state=b"", acquire=(LockKey.write("a"),)))

    # Then one of the parents gives way: what it keeps is in nobody's way while it waits to be undone itself.
    error = stage.core.view("q").error  # type: ignore[union-attr]
    assert error is not None
    assert error.kind == "deadlock"
    assert stage.undo_all() == ["p.c:u"]
    stage.answer("p", DONE)
    assert stage.undo_all() == ["q.c:u"]
    assert stage.resolved()["q"] is ProcedureState.ROLLEDBACK
    assert stage.resolved()["p"] is SUCCESS


def test_a_failure_within_a_failing_tree_begins_no_undo_of_its_own_below_a_bypassed_root() -> None:
    stage = Stage(4, rollback_supported=True)
    stage.submit(stage.new("root"))
    children = (stage.new("a", unit="u"), stage.new("b"), stage.new("d", unit="u"))
    stage.answer("root", Suspended(state=b"", children=children))
    stage.answer("a", Suspended(state=b"", children=(stage.new("slow"),)))
    stage.answer("d", Waited(state=b"", event="never"))
    # Given: the tree is being undone, its root is bypassed with a child, and a step of another one runs on.
    stage.handle(RollbackRequested("root", 2))
    stage.answer("b", boom())
    stage.handle(BypassRequested("b", 3, ancestors=True))

    stage.answer("slow", Poisoned(state=b"", keys=("k",), error=ErrorInfo("error", "Half", "half done")))

    assert stage.undo_all() == ["d:u", "a:u"]
    assert stage.resolved() == {
        "root": SUCCESS,
        "b": SUCCESS,
        **dict.fromkeys(("a", "d", "slow"), ProcedureState.ROLLEDBACK),
    }


def test_a_retried_root_that_was_paused_is_refused_a_key_that_was_poisoned_meanwhile() -> None:
    key = (LockKey.write("k"),)
    stage = Stage(2)
    stage.submit(stage.new("failed", locks=key))
    stage.answer("failed", boom())
    stage.submit(stage.new("other", locks=key))
    # Given: it stands in line for its keys again, and is paused, when the one before it poisons them.
    stage.handle(RetryRequested("failed", 2))
    stage.handle(PauseRequested("failed", 3))
    stage.answer("other", Poisoned(state=b"", keys=("k",), error=ErrorInfo("error", "Half", "half done")))

    stage.handle(ResumeRequested("failed", 4))

    assert "failed" not in stage.inbox
    error = stage.core.view("failed").error  # type: ignore[union-attr]
    assert error is not None
    assert error.type_name == "KeyPoisoned"


def test_a_parent_that_is_asked_about_its_abort_lends_its_slot_all_the_same() -> None:
    stage = _stage(3, concurrency={"slot": 1})
    stage.register("Asked", asks_abort=True)
    stage.submit(stage.new("p", "Asked", limit_keys=("slot",)))
    stage.answer("p", Suspended(state=b"", children=(stage.new("c"),)))
    stage.handle(AbortRequested("p", 2))
    assert stage.inbox["p"].token.mode is Mode.ASK_ABORT

    stage.answer("c", Suspended(state=b"", children=(stage.new("slow", limit_keys=("slot",)),)))

    assert "slow" in stage.inbox


def test_a_retried_root_that_is_being_bypassed_takes_its_keys_for_those_that_go_on() -> None:
    key = (LockKey.write("k"),)
    stage = Stage(3, on_child_failure="fail")
    stage.submit(stage.new("root", locks=key))
    stage.answer("root", Suspended(state=b"", children=(stage.new("a"), stage.new("b"))))
    stage.answer("a", boom())
    stage.answer("b", boom())
    stage.submit(stage.new("other", locks=key))
    # Given: it stands in line for its key again, behind somebody else, when one below it is bypassed with it.
    stage.handle(RetryRequested("root", 2))
    stage.handle(BypassRequested("a", 3, ancestors=True))
    image = Image(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []))
    image.apply(stage.writes)
    assert compare_with_restored(stage.core, image) is None

    stage.answer("other", DONE)
    stage.answer("b", DONE)

    assert stage.resolved()["root"] is SUCCESS


def test_a_tree_that_holds_nothing_any_more_stands_in_line_by_age() -> None:
    stage = Stage(4)
    stage.submit(stage.new("holder", locks=(LockKey.write("a"),)))
    stage.submit(stage.new("reader", locks=(LockKey.read("b/c"),)))
    stage.submit(stage.new("p", locks=(LockKey.write("d"),)))
    # Given: somebody waits for two keys, and a child of a tree that holds one, behind it, for one of these.
    stage.submit(stage.new("old", locks=(LockKey.read("a"), LockKey.read("b/d"))))
    left = stage.new("left", locks=(LockKey.write("b"),))
    stage.answer("p", Suspended(state=b"", children=(stage.new("quick"), left), wait="any", on_parent_end="leave"))
    stage.answer("quick", DONE)
    # When its parent leaves it behind, and with it the locks.
    stage.answer("p", DONE)

    stage.answer("holder", DONE)

    assert "old" in stage.inbox
    image = Image(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []))
    image.apply(stage.writes)
    assert compare_with_restored(stage.core, image) is None


def test_a_parent_that_is_done_and_takes_its_children_along_keeps_no_slot_meanwhile() -> None:
    stage = _stage(4, concurrency={"slot": 1})
    stage.register("Step", rollback_supported=True, lock_scope="step")
    key = (LockKey.write("k"),)
    stage.submit(stage.new("p", limit_keys=("slot",)))
    slow = stage.new("slow", "Step", unit="u", locks=key)
    stage.answer("p", Suspended(state=b"", children=(stage.new("quick"), slow), wait="any"))
    stage.answer("slow", Slept(state=b"", seconds=9.0))
    stage.answer("quick", DONE)
    # Given: the key that its child needs to be undone is with somebody who waits for the slot of the parent.
    stage.submit(stage.new("other", locks=key, limit_keys=("slot",)))
    assert "other" not in stage.inbox

    stage.answer("p", DONE)

    stage.answer("other", DONE)
    assert stage.undo_all() == ["slow:u"]
    assert stage.resolved()["p"] is SUCCESS


def test_a_parent_that_is_bypassed_with_the_child_behind_it_in_the_same_worker_has_not_failed() -> None:
    stage = Stage(1, rollback_supported=True)
    stage.submit(stage.new("p", unit="u"))
    for _ in range(20):  # short steps, so that a worker is given several at once
        stage.answer("p", Advanced(state=b"", unit="u"))
    key = (LockKey.write("k"),)
    children = (stage.new("quick", unit="u", locks=key), stage.new("slow", unit="u", locks=key))
    stage.answer("p", Suspended(state=b"", children=children, wait="any"))
    stage.answer("quick", DONE)
    assert list(stage.inbox) == ["p", "slow"]

    # When the worker that has both in hand dies of the force.
    stage.handle(BypassRequested("p", 2, children=True, force=True))
    stage.kill(0)

    assert stage.resolved()["p"] is stage.resolved()["slow"] is SUCCESS
    parent = stage.core.view("p")
    assert parent is None or not parent.failing


@pytest.mark.parametrize("is_returned", [False, True])
def test_the_undo_of_a_tree_goes_on_when_one_that_ended_while_it_was_asked_to_abort_is_answered_for(
    is_returned: bool,
) -> None:
    stage = Stage(5, rollback_supported=True)
    stage.register("Asked", rollback_supported=True, asks_abort=True)
    stage.register("Root", rollback_supported=True, on_child_failure="resume")
    stage.submit(stage.new("root", "Root", unit="u"))
    stage.answer("root", Suspended(state=b"", children=(stage.new("p", "Asked"),)))
    stage.answer("p", Suspended(state=b"", children=(stage.new("failing"),)))
    # Given: a worker is asking it, and meanwhile what it waits for has failed.
    stage.handle(AbortRequested("p", 2))
    question = stage.inbox.pop("p").token
    assert question.mode is Mode.ASK_ABORT
    stage.answer("failing", boom())
    assert "root" not in stage.inbox

    stage.handle(StepReturned(question) if is_returned else StepEnded(question, Answered(allowed=False)))

    assert stage.state("p") is ProcedureState.ROLLEDBACK
    stage.answer("root", boom())
    assert stage.undo_all() == ["root:u"]
    assert "root" in stage.resolved()


def test_an_undo_stands_before_an_older_waiter_after_a_restart_too() -> None:
    stage = Stage(3)
    stage.register("Step", rollback_supported=True, lock_scope="step")
    a, b = (LockKey.write(name) for name in "ab")
    # Given: a tree that holds nothing between its steps, and an older waiter for one of the two keys its undo needs.
    stage.submit(stage.new("undone", "Step", unit="u", locks=(a, b)))
    stage.answer("undone", Slept(state=b"", seconds=9.0))
    stage.submit(stage.new("keeper", locks=(a,)), stage.new("quick", locks=(b,)), stage.new("waiter", locks=(b,)))
    stage.handle(AbortRequested("undone", 2, force=True))

    # When that one is free and the other is not.
    stage.answer("quick", DONE)

    assert "waiter" not in stage.inbox
    assert difference(stage) is None


def test_a_parent_that_goes_on_when_its_child_is_undone_lends_its_slot_to_whoever_keeps_the_key_for_that() -> None:
    stage = _stage(2, concurrency={"slot": 1})
    stage.register("Parent", on_child_failure="resume")
    stage.register("Step", rollback_supported=True, lock_scope="step")
    key = (LockKey.write("k"),)
    stage.submit(stage.new("p", "Parent", limit_keys=("slot",)))
    stage.answer("p", Suspended(state=b"", children=(stage.new("child", "Step", unit="u", locks=key),)))
    stage.answer("child", Slept(state=b"", seconds=9.0))
    # Given: who has the key that the child needs to be undone waits for the slot of the parent.
    stage.submit(stage.new("other", locks=key, limit_keys=("slot",)))
    assert "other" not in stage.inbox

    stage.handle(AbortRequested("child", 2, force=True))

    stage.answer("other", DONE)
    assert stage.undo_all() == ["child:u"]
    stage.answer("p", DONE)
    assert stage.resolved()["p"] is SUCCESS


def test_a_parent_that_inherits_in_line_does_not_wait_for_the_sibling_before_it_that_waits_for_it() -> None:
    stage = Stage(4)
    stage.submit(stage.new("root"))
    stage.answer("root", Suspended(state=b"", children=(stage.new("first"), stage.new("second"))))
    children = (stage.new("quick"), stage.new("slow", locks=(LockKey.write("a/b"),)))
    stage.answer("second", Suspended(state=b"", children=children, wait="any"))
    stage.answer("quick", DONE)
    # Given: two siblings stand in line for the same key, both because of a child of the second.
    for name in ("first", "second"):
        stage.answer(name, Advanced(state=b"", acquire=(LockKey.write("a"),)))

    stage.answer("slow", DONE)

    stage.answer("second", DONE)
    stage.answer("first", DONE)
    assert stage.resolved()["first"] is stage.resolved()["second"] is SUCCESS


def test_a_deadline_that_passed_beyond_the_point_of_no_return_ends_a_child_that_outlives_its_root() -> None:
    stage = Stage(3)
    stage.submit(stage.new("root", no_return=True))
    children = (stage.new("quick"), stage.new("left", deadline=5.0))
    stage.answer("root", Suspended(state=b"", children=children, wait="any", on_parent_end="leave"))
    stage.answer("left", Waited(state=b"", event="never"))
    stage.answer("quick", DONE)
    # Given: its time is up while there is only the way forward.
    stage.now = 6.0
    stage.handle(Tick())
    assert stage.state("left") is ProcedureState.WAITING

    stage.answer("root", DONE)
    assert stage.core.next_deadline() == 5.0
    stage.handle(Tick())

    assert stage.resolved()["left"] is ProcedureState.FAILED


def test_what_a_bypassed_procedure_leaves_to_its_parent_closes_no_cycle_unseen() -> None:
    stage = Stage(9)
    stage.register("Parent", rollback_supported=True, on_child_failure="resume")
    stage.register("Step", rollback_supported=True, lock_scope="step")
    key, other, own, last = ((LockKey.write(name),) for name in ("key", "other", "own", "last"))
    stage.submit(stage.new("stranger"), stage.new("second"), stage.new("root", "Parent"))
    parents = (stage.new("p", "Parent"), stage.new("q", "Parent", locks=own))
    stage.answer("root", Suspended(state=b"", children=parents))
    stage.answer("q", Suspended(state=b"", children=(stage.new("undone", "Step", unit="u", locks=key + other),)))
    stage.answer("undone", Slept(state=b"", seconds=9.0))
    children = (stage.new("bypassed", "Parent", locks=key), stage.new("waiter"))
    stage.answer("p", Suspended(state=b"", children=children))
    stage.answer("bypassed", Suspended(state=b"", children=(stage.new("below", "Step", unit="u", locks=last),)))
    stage.answer("below", Slept(state=b"", seconds=9.0))
    stage.answer("stranger", Advanced(state=b"", acquire=other))
    stage.answer("second", Advanced(state=b"", acquire=last))
    # Given: an undo waits for a stranger. What a failing relative holds is not in its way, and this one's undo waits too.
    stage.handle(AbortRequested("undone", 2, force=True))
    stage.handle(AbortRequested("bypassed", 3, force=True))
    stage.answer("waiter", Advanced(state=b"", acquire=own))

    # When this one is bypassed, its key goes to its parent, which goes forward and waits for the waiter.
    stage.handle(BypassRequested("bypassed", 4, children=True))

    error = stage.core.view("waiter").error  # type: ignore[union-attr]
    assert error is not None
    assert error.kind == "deadlock"
    stage.answer("stranger", DONE)
    stage.answer("p", DONE)
    assert stage.undo_all() == ["undone:u"]
    stage.answer("q", DONE)
    stage.answer("root", DONE)
    assert stage.resolved()["root"] is SUCCESS


def test_nobody_fails_for_the_locks_of_an_undo_that_is_not_to_run() -> None:
    stage = Stage(5)
    stage.register("Parent", rollback_supported=True, on_child_failure="resume")
    stage.register("Step", rollback_supported=True, lock_scope="step")
    read, write = (LockKey.read("a/b"),), (LockKey.write("a"),)
    stage.submit(stage.new("root", "Parent"))
    parents = (stage.new("p", "Parent"), stage.new("q", "Parent", locks=read))
    stage.answer("root", Suspended(state=b"", children=parents))
    stage.answer("q", Suspended(state=b"", children=(stage.new("poisoned", "Step", unit="u", locks=write),)))
    children = (stage.new("undone", "Step", unit="u"), stage.new("quick"))
    stage.answer("p", Suspended(state=b"", children=children, wait="any"))
    stage.answer("quick", DONE)
    stage.answer("p", Advanced(state=b"", acquire=read))
    stage.answer("undone", Advanced(state=b"", acquire=write))
    # Given: an undo waits for what the other parent keeps, and would be in the way of an undo below that one.
    stage.handle(AbortRequested("undone", 2, force=True))

    # When that is not to run, as nobody knows what the step left.
    stage.answer("poisoned", Poisoned(state=b"", keys=("z",), error=ErrorInfo("poisoned", "Half", "half done")))

    assert stage.resolved()["poisoned"] is ProcedureState.FAILED
    for name in "pq":
        assert stage.core.view(name).error is None  # type: ignore[union-attr]
        assert name in stage.inbox


def test_who_has_lost_its_own_worker_to_one_that_waits_for_its_slot_gives_it_that() -> None:
    stage = _stage(1, concurrency={"slot": 1}, dedicated=1)
    alone = StepLimits(dedicated=True)
    key = (LockKey.write("k"),)
    stage.submit(stage.new("stranger", locks=key))
    stage.submit(stage.new("p", limits=alone, limit_keys=("slot",)))
    stage.handle(WorkerReady(WorkerId(5, 1), reserved="p"))
    # Given: while a child waits for a key the slot is lent, but the worker is not; another one waits for such a worker.
    stage.answer("p", Suspended(state=b"", children=(stage.new("child", locks=key),)))
    stage.submit(stage.new("other", limits=alone, limit_keys=("slot",)))
    stage.answer("stranger", DONE)
    stage.answer("child", DONE)
    assert "p" in stage.inbox

    # When its worker dies, and the other one gets the next.
    stage.kill(5)
    stage.handle(WorkerReady(WorkerId(6, 1), reserved="other"))

    stage.answer("other", DONE)
    stage.handle(WorkerReady(WorkerId(7, 1), reserved="p"))
    stage.answer("p", DONE)
    assert stage.resolved()["other"] is stage.resolved()["p"] is SUCCESS


@pytest.mark.parametrize("has_begun", [False, True])
def test_a_step_that_a_retry_takes_up_again_has_its_keys_poisoned(has_begun: bool) -> None:
    stage = Stage(3)
    stage.register("Risky", rollback_supported=True)
    stage.submit(stage.new("root"))
    risky = stage.new("risky", "Risky", poisons=("k",), due_at=None if has_begun else 5.0)
    stage.answer("root", Suspended(state=b"", children=(stage.new("failed"), risky)))
    # Given: it came to a clean end with its tree, which failed and cannot be undone.
    stage.answer("failed", boom())
    if has_begun:
        stage.answer("risky", boom())
    assert stage.state("risky") is ProcedureState.ROLLEDBACK
    assert stage.submit(stage.new("before", locks=(LockKey.write("k"),))).error is None
    stage.answer("before", DONE)

    stage.handle(RetryRequested("root", 2))

    assert "risky" in stage.inbox
    assert isinstance(stage.submit(stage.new("after", locks=(LockKey.write("k"),))).error, KeyPoisoned)
    for name in ("failed", "risky", "root"):
        stage.answer(name, DONE)
    assert stage.submit(stage.new("later", locks=(LockKey.write("k"),))).error is None


@pytest.mark.parametrize("outcome", [later(), Refused(reason="another version"), Advanced(state=b"")])
def test_an_answer_that_comes_before_the_kill_does_not_save_one_that_is_aborted_by_force(outcome: Outcome) -> None:
    stage = Stage(1, asks_abort=True)
    stage.submit(stage.new("p"))
    stage.answer("p", Advanced(state=b""))
    stage.handle(AbortRequested("p", 2, force=True))

    stage.answer("p", outcome)

    assert stage.resolved()["p"] is ProcedureState.FAILED
    assert not stage.inbox


@pytest.mark.parametrize("way", ["refused", "lost", "returned"])
def test_who_is_aborted_by_force_while_it_is_asked_cannot_refuse(way: str) -> None:
    stage = Stage(1, asks_abort=True)
    stage.submit(stage.new("p"))
    stage.answer("p", Waited(state=b"", event="never"))
    stage.handle(AbortRequested("p", 2))
    question = stage.inbox.pop("p").token
    stage.handle(AbortRequested("p", 3, force=True))

    if way == "refused":
        stage.handle(StepEnded(question, Answered(allowed=False)))
    elif way == "returned":
        stage.handle(StepReturned(question))
    else:
        stage.handle(WorkerLost(WorkerId(0, 1), CrashReport(kind="host", message="its host is gone"), crashed=False))

    assert stage.resolved()["p"] is ProcedureState.FAILED


def test_a_signal_takes_nobodys_number_when_the_clock_was_set_back_before_a_restart() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p"))
    for number, at in enumerate((100.0, 50.0)):
        stage.now = at
        stage.answer("p", Waited(state=b"", event="go"))
        stage.handle(Published("go", b"", 2, dedup=f"id-{number}"))

    again = _restarted(stage)
    again.handle(Published("go", b"", 3, dedup="id-2"))

    stage.writes += again.writes
    assert image_of(stage).events.keys() == {("event go", 1), ("event go", 2), ("event go", 3)}


def test_a_signal_that_was_taken_before_a_failure_counts_once_after_a_retry_too() -> None:
    stage = Stage(2)
    stage.submit(stage.new("root"))
    stage.answer("root", Suspended(state=b"", children=(stage.new("child"),)))
    stage.answer("child", Waited(state=b"", event="go"))
    stage.handle(Signalled("child", b"1", 2, dedup="id"))
    stage.answer("child", boom())
    assert stage.state("root") is ProcedureState.FAILED
    stage.handle(RetryRequested("root", 3))

    stage.handle(Signalled("child", b"1", 4, dedup="id"))
    stage.answer("child", Waited(state=b"", event="go"))
    assert "child" not in stage.inbox

    # What cannot be tried again needs no ids, nor does what is removed.
    stage.handle(BypassRequested("root", 5, children=True))
    assert not image_of(stage).events
    assert difference(stage) is None


@pytest.mark.parametrize("verb", ["delete", "bypass"])
def test_ids_of_signals_to_what_failed_go_with_its_tree(verb: str) -> None:
    stage = Stage(1)
    stage.submit(stage.new("p"))
    stage.answer("p", Waited(state=b"", event="go"))
    stage.handle(Signalled("p", b"1", 2, dedup="id"))
    stage.answer("p", boom())
    assert stage.core.fingerprint()["taken"]

    stage.handle(DeleteRequested("p", 3) if verb == "delete" else BypassRequested("p", 3))

    assert not stage.core.fingerprint()["taken"]
    assert not image_of(stage).events


def test_what_is_due_next_is_what_goes_off_next_also_when_a_time_was_noted_again() -> None:
    timers = TimerQueue()
    for at, name in ((1.0, "first"), (2.0, "again")):
        timers.add(at, name)
    timers.discard(2.0, "again")
    timers.add(2.0, "again")
    for number in range(SLICE):
        timers.add(3.0, f"other-{number}")

    assert timers.due(4.0) == timers.pop_due(4.0)


def test_a_worker_is_added_when_all_are_stuck_and_one_that_needs_a_free_slot_waits() -> None:
    stage = _stage(1, workers=1, max_workers=2, stuck_after=10.0, concurrency={"slot": 1})
    stage.submit(stage.new("stuck"))
    stage.submit(stage.new("waits", limit_keys=("slot",)))

    stage.now = stage.core.next_deadline() or 0.0
    stage.handle(Tick())

    assert stage.now == 10.0
    assert AddWorker() in stage.commands


def test_what_waits_is_handed_out_when_its_class_is_of_another_class_of_work_now() -> None:
    stage = _stage(1, shares={"before": 0.5, "now": 0.5}, concurrency={"slot": 1})
    stage.register("X", work_class="before")
    stage.submit(stage.new("runs", "T"))
    stage.submit(stage.new("plain", "X"), stage.new("limited", "X", limit_keys=("slot",)))

    stage.register("X", work_class="now")

    assert list(stage.inbox) == ["runs"]
    while stage.inbox:
        stage.answer(next(iter(stage.inbox)), DONE)
    assert stage.resolved() == dict.fromkeys(("runs", "plain", "limited"), SUCCESS)


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("force", [False, True])
def test_an_abort_that_was_asked_for_beyond_the_point_of_no_return_is_asked_of_a_child_that_outlives_its_root(
    force: bool, runs: bool
) -> None:
    stage = Stage(2)
    stage.submit(stage.new("root", unit="point", no_return=True))
    children = (stage.new("child"), stage.new("ends"))
    stage.answer("root", Suspended(state=b"", children=children, wait="any", on_parent_end="leave"))
    if not runs:
        stage.answer("child", Waited(state=b"", event="never"))
    stage.answer("ends", DONE)
    stage.handle(AbortRequested("child", 2, force=force))
    assert not stage.resolved().get("child")

    stage.answer("root", DONE)

    if not runs:
        assert stage.resolved()["child"] is ProcedureState.FAILED
    else:
        assert bool(stage.kills()) is force
        stage.answer("child", Advanced(state=b""))
        assert stage.resolved()["child"] is ProcedureState.FAILED


def test_a_deadline_that_passed_before_the_clock_was_set_back_is_not_forgotten() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p", deadline=10.0))
    stage.now = 11.0
    stage.handle(Tick())
    assert stage.kills()

    # When its answer comes before the kill, and it waits now.
    stage.now = 5.0
    stage.answer("p", Waited(state=b"", event="never"))

    assert stage.core.next_deadline() == 10.0
    stage.now = 10.0
    stage.handle(Tick())
    assert stage.resolved()["p"] is ProcedureState.FAILED


def test_a_failure_that_was_taken_is_no_longer_acknowledged_when_its_procedure_is_bypassed() -> None:
    stage = Stage(1)
    stage.submit(stage.new("p"))
    stage.answer("p", boom())
    stage.handle(Acknowledged("p", 2))
    assert list(stage.core.acknowledged(stage.now)) == ["p"]

    stage.handle(BypassRequested("p", 3))

    assert not list(stage.core.acknowledged(stage.now))
    assert not image_of(stage).acknowledgements


def test_a_worker_that_leaves_with_nothing_in_hand_is_stopped_after_a_failed_commit_too() -> None:
    ready = WorkerReady(WorkerId(0, 1), leaving=True)
    snapshot = RecoverySnapshot(1, 1, 1, [], [], [], [], [], [])

    _, decision = Coordinator.restore(snapshot, 0.0, workers=((ready, ()),))

    assert decision.commands == [StopWorker(ready.worker)]


def test_who_waits_for_a_rate_waits_no_longer_when_the_clock_is_set_back() -> None:
    stage = _stage(2, rate={"key": (1, 10.0)})
    stage.now = 100.0
    stage.submit(stage.new("first", limit_keys=("key",)), stage.new("second", limit_keys=("key",)))
    assert stage.core.next_deadline() == 110.0

    stage.now = 50.0
    stage.handle(Tick())

    assert stage.core.next_deadline() == 60.0
    stage.now = 60.0
    stage.handle(Tick())
    assert "second" in stage.inbox


def test_a_child_that_was_bypassed_in_a_failing_tree_leaves_room_for_the_next_after_a_retry() -> None:
    stage = Stage(3)
    stage.submit(stage.new("root"))
    stage.answer("root", Suspended(state=b"", children=(stage.new("fails"), stage.new("parent"))))
    children = tuple(stage.new(name) for name in ("first", "second", "third"))
    stage.answer("parent", Suspended(state=b"", children=children, wait="any", max_parallel=1))
    stage.answer("first", DONE)
    stage.answer("parent", Waited(state=b"", event="third was here"))
    stage.answer("fails", boom())
    stage.handle(BypassRequested("second", 2, force=True))
    stage.answer("second", DONE)
    assert stage.state("root") is ProcedureState.FAILED

    stage.handle(RetryRequested("root", 3))

    assert stage.state("parent") is ProcedureState.WAITING
    assert "third" in stage.inbox
    assert difference(stage) is None


def test_a_retry_counts_nothing_off_at_a_parent_that_had_ended_and_left_its_child_behind() -> None:
    stage = Stage(3, rollback_supported=True)
    stage.submit(stage.new("root", unit="first"))
    stage.answer("root", Suspended(state=b"", children=(stage.new("parent", unit="unit"),)))
    children = (stage.new("left", unit="unit"), stage.new("ends"))
    stage.answer("parent", Suspended(state=b"", children=children, wait="any", on_parent_end="leave"))
    stage.answer("ends", DONE)
    stage.answer("parent", DONE)
    stage.answer("root", boom())
    stage.answer("left", boom())
    # Given: all of them are undone but the root, whose own undo gives up.
    for name in ("left", "parent", "root"):
        assert stage.inbox[name].token.mode is Mode.ROLLBACK
        stage.answer(name, boom() if name == "root" else DONE)
    assert stage.state("parent") is ProcedureState.ROLLEDBACK

    stage.handle(RetryRequested("root", 2))

    parent = stage.core.view("parent")
    assert parent is not None
    assert (parent.pending, parent.succeeded, parent.failed) == (0, 1, 0)


def test_what_waits_behind_a_silent_worker_is_asked_back_in_time_when_the_clock_was_set_back() -> None:
    stage = _stage(1, workers=1, max_workers=2, stuck_after=10.0)
    stage.now = 100.0
    stage.submit(stage.new("runs"))
    for _ in range(10):  # its steps are known to be short
        stage.answer("runs", Advanced(state=b""))
    stage.submit(stage.new("behind"))
    assert "behind" in stage.inbox
    assert stage.core.next_deadline() == 110.0  # is one more needed?

    stage.now = 50.0
    stage.handle(WorkerReady(WorkerId(1, 1)))

    stage.now = stage.core.next_deadline() or 0.0
    assert 50.0 < stage.now < 50.1
    stage.handle(Tick())
    assert [command for command in stage.commands if isinstance(command, TakeBack)]


def test_a_wait_that_was_over_in_vain_beyond_the_point_of_no_return_ends_a_child_that_outlives_its_root() -> None:
    stage = Stage(2)
    stage.submit(stage.new("root", unit="point", no_return=True))
    children = (stage.new("child"), stage.new("ends"))
    stage.answer("root", Suspended(state=b"", children=children, wait="any", on_parent_end="leave"))
    stage.answer("child", Waited(state=b"", event="never", timeout=5.0))
    stage.now = 5.0
    stage.handle(Tick())
    assert stage.state("child") is ProcedureState.WAITING_TIMEOUT
    stage.answer("ends", DONE)

    stage.answer("root", DONE)
    stage.now = stage.core.next_deadline() or 0.0
    stage.handle(Tick())

    assert stage.now == 5.0
    assert stage.resolved()["child"] is ProcedureState.FAILED


def test_who_loses_the_cover_of_a_parent_that_ends_is_not_in_line_behind_one_who_waits_for_its_own_parent() -> None:
    stage = Stage(6)
    stage.submit(stage.new("root", locks=(LockKey.write("a"),)))
    children = (
        stage.new("keeper", locks=(LockKey.read("a/b"),)),
        stage.new("reader", locks=(LockKey.read("a"),)),
        stage.new("writer", locks=(LockKey.write("a/b"),)),
        stage.new("ends"),
    )
    stage.answer("root", Suspended(state=b"", children=children, wait="any", on_parent_end="leave"))
    # Given: below the root's own lock the child of the keeper goes before the writer, and waits for the reader alone.
    stage.answer("keeper", Suspended(state=b"", children=(stage.new("child", locks=(LockKey.write("a/b"),)),)))
    assert not {"writer", "child"} & stage.inbox.keys()
    stage.answer("ends", DONE)

    stage.answer("root", DONE)
    stage.answer("reader", DONE)

    assert "child" in stage.inbox
    for name in ("child", "keeper", "writer"):
        stage.answer(name, DONE)
    assert set(stage.resolved().values()) == {ProcedureState.SUCCESS}


@pytest.mark.parametrize("pause", [Slept(state=b"", seconds=9.0), Waited(state=b"", event="never")])
def test_a_class_without_abort_is_not_asked_whatever_it_had_before_the_restart(pause: Outcome) -> None:
    stage = Stage(1, asks_abort=True)
    stage.submit(stage.new("p"))
    stage.answer("p", pause)
    stage.handle(AbortRequested("p", 2))
    assert stage.inbox["p"].token.mode is Mode.ASK_ABORT

    again = _restarted(stage)
    again.register("T")

    assert again.resolved()["p"] is ProcedureState.FAILED
    again.handle(WorkerReady(WorkerId(0, 2)))
    assert not again.inbox
