"""Bypassed procedures among parents, children and failures."""

from __future__ import annotations

from actorproc.errors import NotAllowed
from actorproc.model.messages.commands import (
    Reply,
)
from actorproc.model.messages.events import (
    AbortRequested,
    Acknowledged,
    BypassRequested,
    RetryRequested,
    RollbackRequested,
)
from actorproc.model.messages.outcomes import (
    Advanced,
    Finished,
    Poisoned,
    Slept,
    Suspended,
    Waited,
)
from actorproc.model.policies import LockKey
from actorproc.model.rows.records import ErrorInfo
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.states import ProcedureState
from actorproc.testing.histories.image import Image
from tests.core.harness import CoreHarness, boom, difference, image_of
from tests.simulator.core_sim.restored import compare_with_restored

FAILED = ProcedureState.FAILED
SUCCESS = ProcedureState.SUCCESS
KEY = (LockKey.write("k"),)
DONE = Finished(state=b"")


def test_a_retry_waits_for_no_keys_that_a_bypassed_child_was_still_waiting_for() -> None:
    harness = CoreHarness(3)
    harness.submit(harness.new("stranger", locks=KEY))
    harness.submit(harness.new("r"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("a"), harness.new("waiter", locks=KEY))))
    harness.handle(BypassRequested("waiter", 2))
    assert harness.state("waiter") is SUCCESS
    harness.answer("a", boom())
    assert harness.state("r") is FAILED

    harness.handle(RetryRequested("r", 3))

    assert "a" in harness.inbox


def test_an_ancestor_is_bypassed_when_a_grandchild_that_outlived_its_parent_has_ended() -> None:
    harness = CoreHarness(3)
    harness.submit(harness.new("a"))
    harness.answer("a", Suspended(state=b"", children=(harness.new("b"), harness.new("other"))))
    harness.answer(
        "b", Suspended(state=b"", children=(harness.new("c"), harness.new("d")), wait="any", on_parent_end="leave")
    )
    harness.answer("c", DONE)
    harness.answer("b", DONE)
    harness.answer("other", Waited(state=b"", event="never"))

    harness.handle(BypassRequested("other", 2, ancestors=True))
    assert harness.state("a") is not SUCCESS
    harness.answer("d", DONE)

    assert harness.resolved() == dict.fromkeys(("a", "b", "c", "d", "other"), SUCCESS)


def test_a_root_that_is_being_bypassed_cannot_be_rolled_back() -> None:
    harness = CoreHarness(2, rollback_supported=True)
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c"), harness.new("d"))))
    harness.answer("c", Waited(state=b"", event="never"))
    harness.handle(BypassRequested("c", 2, ancestors=True))

    decision = harness.handle(RollbackRequested("p", 3))

    reply = next(command for command in decision.commands if isinstance(command, Reply))
    assert isinstance(reply.error, NotAllowed)
    harness.answer("d", DONE)
    assert harness.resolved()["p"] is SUCCESS


def test_a_failure_within_a_failing_tree_begins_no_undo_of_its_own_below_a_bypassed_root() -> None:
    harness = CoreHarness(4, rollback_supported=True)
    harness.submit(harness.new("root"))
    children = (harness.new("a", unit="u"), harness.new("b"), harness.new("d", unit="u"))
    harness.answer("root", Suspended(state=b"", children=children))
    harness.answer("a", Suspended(state=b"", children=(harness.new("slow"),)))
    harness.answer("d", Waited(state=b"", event="never"))
    # Given: the tree is being undone, its root is bypassed with a child, and a step of another one runs on.
    harness.handle(RollbackRequested("root", 2))
    harness.answer("b", boom())
    harness.handle(BypassRequested("b", 3, ancestors=True))

    harness.answer("slow", Poisoned(state=b"", keys=("k",), error=ErrorInfo("error", "Half", "half done")))

    assert harness.undo_all() == ["d:u", "a:u"]
    assert harness.resolved() == {
        "root": SUCCESS,
        "b": SUCCESS,
        **dict.fromkeys(("a", "d", "slow"), ProcedureState.ROLLEDBACK),
    }


def test_a_retried_root_that_is_being_bypassed_takes_its_keys_for_those_that_go_on() -> None:
    key = (LockKey.write("k"),)
    harness = CoreHarness(3, on_child_failure="fail")
    harness.submit(harness.new("root", locks=key))
    harness.answer("root", Suspended(state=b"", children=(harness.new("a"), harness.new("b"))))
    harness.answer("a", boom())
    harness.answer("b", boom())
    harness.submit(harness.new("other", locks=key))
    # Given: it stands in line for its key again, behind somebody else, when one below it is bypassed with it.
    harness.handle(RetryRequested("root", 2))
    harness.handle(BypassRequested("a", 3, ancestors=True))
    image = Image(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []))
    image.apply(harness.writes)
    assert compare_with_restored(harness.core, image) is None

    harness.answer("other", DONE)
    harness.answer("b", DONE)

    assert harness.resolved()["root"] is SUCCESS


def test_a_parent_that_is_bypassed_with_the_child_behind_it_in_the_same_worker_has_not_failed() -> None:
    harness = CoreHarness(1, rollback_supported=True)
    harness.submit(harness.new("p", unit="u"))
    for _ in range(20):  # short steps, so that a worker is given several at once
        harness.answer("p", Advanced(state=b"", unit="u"))
    key = (LockKey.write("k"),)
    children = (harness.new("quick", unit="u", locks=key), harness.new("slow", unit="u", locks=key))
    harness.answer("p", Suspended(state=b"", children=children, wait="any"))
    harness.answer("quick", DONE)
    assert list(harness.inbox) == ["p", "slow"]

    # When the worker that has both in hand dies of the force.
    harness.handle(BypassRequested("p", 2, children=True, force=True))
    harness.kill(0)

    assert harness.resolved()["p"] is harness.resolved()["slow"] is SUCCESS
    parent = harness.core.view("p")
    assert parent is None or not parent.failing


def test_what_a_bypassed_procedure_leaves_to_its_parent_closes_no_cycle_unseen() -> None:
    harness = CoreHarness(9)
    harness.register("Parent", rollback_supported=True, on_child_failure="resume")
    harness.register("Step", rollback_supported=True, lock_scope="step")
    key, other, own, last = ((LockKey.write(name),) for name in ("key", "other", "own", "last"))
    harness.submit(harness.new("stranger"), harness.new("second"), harness.new("root", "Parent"))
    parents = (harness.new("p", "Parent"), harness.new("q", "Parent", locks=own))
    harness.answer("root", Suspended(state=b"", children=parents))
    harness.answer("q", Suspended(state=b"", children=(harness.new("undone", "Step", unit="u", locks=key + other),)))
    harness.answer("undone", Slept(state=b"", seconds=9.0))
    children = (harness.new("bypassed", "Parent", locks=key), harness.new("waiter"))
    harness.answer("p", Suspended(state=b"", children=children))
    harness.answer("bypassed", Suspended(state=b"", children=(harness.new("below", "Step", unit="u", locks=last),)))
    harness.answer("below", Slept(state=b"", seconds=9.0))
    harness.answer("stranger", Advanced(state=b"", acquire=other))
    harness.answer("second", Advanced(state=b"", acquire=last))
    # Given: an undo waits for a stranger. What a failing relative holds is not in its way, and this one's undo waits too.
    harness.handle(AbortRequested("undone", 2, force=True))
    harness.handle(AbortRequested("bypassed", 3, force=True))
    harness.answer("waiter", Advanced(state=b"", acquire=own))

    # When this one is bypassed, its key goes to its parent, which goes forward and waits for the waiter.
    harness.handle(BypassRequested("bypassed", 4, children=True))

    error = harness.core.view("waiter").error  # type: ignore[union-attr]
    assert error is not None
    assert error.kind == "deadlock"
    harness.answer("stranger", DONE)
    harness.answer("p", DONE)
    assert harness.undo_all() == ["undone:u"]
    harness.answer("q", DONE)
    harness.answer("root", DONE)
    assert harness.resolved()["root"] is SUCCESS


def test_a_failure_that_was_taken_is_no_longer_acknowledged_when_its_procedure_is_bypassed() -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p"))
    harness.answer("p", boom())
    harness.handle(Acknowledged("p", 2))
    assert list(harness.core.acknowledged(harness.now)) == ["p"]

    harness.handle(BypassRequested("p", 3))

    assert not list(harness.core.acknowledged(harness.now))
    assert not image_of(harness).acknowledgements


def test_a_child_that_was_bypassed_in_a_failing_tree_leaves_room_for_the_next_after_a_retry() -> None:
    harness = CoreHarness(3)
    harness.submit(harness.new("root"))
    harness.answer("root", Suspended(state=b"", children=(harness.new("fails"), harness.new("parent"))))
    children = tuple(harness.new(name) for name in ("first", "second", "third"))
    harness.answer("parent", Suspended(state=b"", children=children, wait="any", max_parallel=1))
    harness.answer("first", DONE)
    harness.answer("parent", Waited(state=b"", event="third was here"))
    harness.answer("fails", boom())
    harness.handle(BypassRequested("second", 2, force=True))
    harness.answer("second", DONE)
    assert harness.state("root") is ProcedureState.FAILED

    harness.handle(RetryRequested("root", 3))

    assert harness.state("parent") is ProcedureState.WAITING
    assert "third" in harness.inbox
    assert difference(harness) is None
