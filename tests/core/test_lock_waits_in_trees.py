"""Lock waits in trees: order, inheritance, deadlocks, and the locks that a retry takes again."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from actorproc.model.ids import WorkerId
from actorproc.model.messages.events import (
    AbortRequested,
    RetryRequested,
    WorkerReady,
)
from actorproc.model.messages.outcomes import (
    Advanced,
    Finished,
    Poisoned,
    Slept,
    Suspended,
)
from actorproc.model.policies import LockKey, LockMode, LockScope
from actorproc.model.rows.records import ErrorInfo
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.rows.writes import PutLock
from actorproc.model.states import ProcedureState
from actorproc.testing.histories.image import Image
from tests.core.harness import CoreHarness, boom, difference, heads_of, restarted
from tests.simulator.core_sim.restored import compare_with_restored

LOCK = LockKey.write("k")
DONE = Finished(state=b"")
FAILED = ProcedureState.FAILED
ROLLEDBACK = ProcedureState.ROLLEDBACK
KEY = (LockKey.write("k"),)
SUCCESS = ProcedureState.SUCCESS


def test_acquiring_the_same_key_at_each_step_does_not_grow_the_head() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    for _ in range(20):
        harness.answer("p", Advanced(state=b"", acquire=(LOCK,)))

    assert heads_of(harness)["p"].locks == (LOCK,)
    assert len([write for write in harness.writes if isinstance(write, PutLock)]) == 1


def _held(harness: CoreHarness) -> dict[str, Mapping[str, LockMode]]:
    return dict(harness.core.lock_holders())


def test_a_retry_takes_again_what_a_finished_child_left_to_a_parent_without_anything_to_undo() -> None:
    harness = CoreHarness(3)
    harness.register("Undoable", rollback_supported=True)
    harness.submit(harness.new("r"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("m", "Undoable"),)))
    harness.answer("m", Suspended(state=b"", children=(harness.new("c", locks=KEY),)))
    harness.answer("c", DONE)
    assert _held(harness) == {"m": {"k": LockMode.WRITE}}
    harness.answer("m", boom())
    assert (harness.state("r"), harness.state("m")) == (FAILED, ROLLEDBACK)

    harness.handle(RetryRequested("r", 2))

    assert _held(harness) == {"r": {"k": LockMode.WRITE}}
    assert harness.inbox["m"].token.step == 2


def test_a_retry_does_not_take_what_a_failed_child_had_given_up_before_the_tree_failed() -> None:
    harness = CoreHarness(3)
    harness.register("R", on_child_failure="resume")
    harness.submit(harness.new("r", "R"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("m"),)))
    harness.answer("m", Suspended(state=b"", children=(harness.new("c", locks=KEY),)))
    harness.answer("c", DONE)
    harness.answer("m", boom())
    assert _held(harness) == {}
    harness.submit(harness.new("stranger", locks=KEY))
    harness.answer("r", boom())

    harness.handle(RetryRequested("r", 2))

    assert harness.inbox["r"].token.step == 2
    assert set(_held(harness)) == {"stranger"}


def test_what_outlives_a_parent_leaves_no_lock_to_a_grandparent_that_undoes_no_children() -> None:
    harness = CoreHarness(4)
    harness.register("G", undo_children=False)
    harness.submit(harness.new("g", "G"))
    harness.answer("g", Suspended(state=b"", children=(harness.new("p"), harness.new("other"))))
    children = (harness.new("quick"), harness.new("slow", locks=KEY))
    harness.answer("p", Suspended(state=b"", children=children, wait="any", on_parent_end="leave"))
    harness.answer("quick", DONE)
    harness.answer("p", DONE)
    harness.submit(harness.new("stranger", locks=KEY))
    assert "stranger" not in harness.inbox

    harness.answer("slow", DONE)

    assert "stranger" in harness.inbox


def test_a_retry_waits_for_no_keys_of_children_that_were_made_when_the_tree_failed_already() -> None:
    harness = CoreHarness(3)
    harness.submit(harness.new("stranger", locks=KEY))
    harness.submit(harness.new("r"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("a"), harness.new("b"))))
    harness.answer("a", boom())
    harness.answer("b", Suspended(state=b"", children=(harness.new("late", locks=KEY),)))
    assert harness.state("r") is FAILED

    harness.handle(RetryRequested("r", 2))

    assert "a" in harness.inbox
    assert "late" not in harness.inbox
    harness.answer("stranger", DONE)
    assert set(_held(harness)) == {"late"}
    assert difference(harness) is None


def _fail_with_a_child_that_held_the_key(harness: CoreHarness) -> None:
    """Root ``r`` of ``a``, which ran under the key and failed, while ``b`` ran; nothing of them can be undone."""
    harness.submit(harness.new("r"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("a", locks=KEY), harness.new("b"))))
    harness.answer("a", Advanced(state=b""))
    harness.answer("a", boom())


def test_a_root_that_fails_while_it_takes_its_keys_again_takes_them_at_the_next_retry_too() -> None:
    harness = CoreHarness(4)
    _fail_with_a_child_that_held_the_key(harness)
    harness.answer("b", DONE)
    assert harness.state("r") is FAILED
    harness.submit(harness.new("stranger", locks=KEY))
    harness.handle(RetryRequested("r", 2))
    assert not {"a", "b"} & harness.inbox.keys()
    harness.handle(AbortRequested("r", 3, force=True))
    assert harness.state("r") is FAILED

    harness.handle(RetryRequested("r", 4))

    assert not {"a", "b"} & harness.inbox.keys()
    harness.answer("stranger", DONE)
    assert {"a", "b"} <= harness.inbox.keys()
    assert difference(harness) is None


@pytest.mark.parametrize("scope", ["procedure", "step"])
def test_a_retried_root_asks_for_what_it_acquired_when_its_tree_failed_already(scope: LockScope) -> None:
    harness = CoreHarness(3)
    harness.register("R", lock_scope=scope)
    harness.submit(harness.new("r", "R"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("a"), harness.new("quick")), wait="any"))
    harness.answer("quick", DONE)
    harness.answer("a", boom())
    harness.answer("r", Advanced(state=b"", acquire=KEY))
    harness.submit(harness.new("stranger", locks=KEY))

    harness.handle(RetryRequested("r", 2))

    assert "a" in harness.inbox
    assert "r" not in harness.inbox
    harness.answer("stranger", DONE)
    assert "r" in harness.inbox
    assert _held(harness) == {"r": {"k": LockMode.WRITE}}
    assert difference(harness) is None


def test_waiters_keep_their_order_whichever_class_is_registered_first_after_a_restart() -> None:
    key = (LockKey.write("k"),)
    harness = CoreHarness(1)
    harness.register("Reader")
    harness.register("Writer")
    harness.submit(harness.new("holder", locks=key))
    harness.submit(harness.new("reader", "Reader", locks=(LockKey.read("k"),)))
    harness.submit(harness.new("writer", "Writer", locks=key))

    again = restarted(harness, after=1.0)
    for name in ("Writer", "Reader", "T"):
        again.register(name)
    assert [row.procedure for row in again.core.lock_waiters()] == ["reader", "writer"]
    again.handle(WorkerReady(WorkerId(0, 1)))
    again.answer("holder", DONE)

    assert "reader" in again.inbox
    assert "writer" not in again.inbox


def test_a_waiter_whose_class_comes_late_does_not_queue_behind_younger_ones() -> None:
    harness = CoreHarness(2)
    harness.register("Reader")
    harness.submit(harness.new("holder", locks=(LockKey.write("k"),)))
    harness.submit(harness.new("other", locks=(LockKey.write("l"),)))
    harness.submit(harness.new("reader", "Reader", locks=(LockKey.read("k"),)))
    harness.submit(harness.new("writer", locks=(LockKey.write("k"), LockKey.write("l"))))

    # Given: only the writer stands in line when the key becomes free, and it needs another one too.
    again = restarted(harness, after=1.0)
    again.register("T")
    again.handle(WorkerReady(WorkerId(0, 1)))
    again.handle(WorkerReady(WorkerId(1, 1)))
    again.answer("holder", DONE)
    assert "writer" not in again.inbox

    again.register("Reader")

    assert "reader" in again.inbox


def test_a_grant_to_an_old_ticket_breaks_the_cycle_that_it_closes() -> None:
    a, k, other = (LockKey.write(name) for name in ("a", "k", "other"))
    harness = CoreHarness(8)
    harness.register("Late")
    harness.submit(harness.new("holder", locks=(k,)))
    harness.submit(harness.new("other", locks=(other,)))
    harness.submit(harness.new("first"), harness.new("second", locks=(a,)))
    # Given: a child of the first waits for the holder, and its class comes late; its sibling waits for the second.
    harness.answer("first", Suspended(state=b"", children=(harness.new("old", "Late", locks=(k,)), harness.new("kin"))))
    harness.answer("kin", Advanced(state=b"", acquire=(LockKey.write("x"),)))
    harness.answer("kin", Advanced(state=b"", acquire=(a,)))

    again = restarted(harness, after=1.0)
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


def test_two_undos_that_need_what_the_parent_of_the_other_keeps_are_no_deadlock() -> None:
    harness = CoreHarness(4)
    harness.register("Parent", rollback_supported=True, on_child_failure="resume")
    harness.register("Step", rollback_supported=True, lock_scope="step")
    harness.submit(harness.new("root", "Parent"))
    shared = (LockKey.read("a/b"),)
    parents = (harness.new("p", "Parent", locks=shared), harness.new("q", "Parent", locks=shared))
    harness.answer("root", Suspended(state=b"", children=parents))
    for name in "pq":
        harness.answer(name, Suspended(state=b"", children=(harness.new(f"{name}.c", "Step", unit="u"),)))
        # Given: each child needs alone what both parents share, so neither gets it, nor can undo without it.
        harness.answer(f"{name}.c", Advanced(state=b"", acquire=(LockKey.write("a"),)))

    # Then one of the parents gives way: what it keeps is in nobody's way while it waits to be undone itself.
    error = harness.core.view("q").error  # type: ignore[union-attr]
    assert error is not None
    assert error.kind == "deadlock"
    assert harness.undo_all() == ["p.c:u"]
    harness.answer("p", DONE)
    assert harness.undo_all() == ["q.c:u"]
    assert harness.resolved()["q"] is ProcedureState.ROLLEDBACK
    assert harness.resolved()["p"] is SUCCESS


def test_a_tree_that_holds_nothing_any_more_stands_in_line_by_age() -> None:
    harness = CoreHarness(4)
    harness.submit(harness.new("holder", locks=(LockKey.write("a"),)))
    harness.submit(harness.new("reader", locks=(LockKey.read("b/c"),)))
    harness.submit(harness.new("p", locks=(LockKey.write("d"),)))
    # Given: somebody waits for two keys, and a child of a tree that holds one, behind it, for one of these.
    harness.submit(harness.new("old", locks=(LockKey.read("a"), LockKey.read("b/d"))))
    left = harness.new("left", locks=(LockKey.write("b"),))
    harness.answer("p", Suspended(state=b"", children=(harness.new("quick"), left), wait="any", on_parent_end="leave"))
    harness.answer("quick", DONE)
    # When its parent leaves it behind, and with it the locks.
    harness.answer("p", DONE)

    harness.answer("holder", DONE)

    assert "old" in harness.inbox
    image = Image(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []))
    image.apply(harness.writes)
    assert compare_with_restored(harness.core, image) is None


def test_an_undo_stands_before_an_older_waiter_after_a_restart_too() -> None:
    harness = CoreHarness(3)
    harness.register("Step", rollback_supported=True, lock_scope="step")
    a, b = (LockKey.write(name) for name in "ab")
    # Given: a tree that holds nothing between its steps, and an older waiter for one of the two keys its undo needs.
    harness.submit(harness.new("undone", "Step", unit="u", locks=(a, b)))
    harness.answer("undone", Slept(state=b"", seconds=9.0))
    harness.submit(
        harness.new("keeper", locks=(a,)), harness.new("quick", locks=(b,)), harness.new("waiter", locks=(b,))
    )
    harness.handle(AbortRequested("undone", 2, force=True))

    # When that one is free and the other is not.
    harness.answer("quick", DONE)

    assert "waiter" not in harness.inbox
    assert difference(harness) is None


def test_a_parent_that_inherits_in_line_does_not_wait_for_the_sibling_before_it_that_waits_for_it() -> None:
    harness = CoreHarness(4)
    harness.submit(harness.new("root"))
    harness.answer("root", Suspended(state=b"", children=(harness.new("first"), harness.new("second"))))
    children = (harness.new("quick"), harness.new("slow", locks=(LockKey.write("a/b"),)))
    harness.answer("second", Suspended(state=b"", children=children, wait="any"))
    harness.answer("quick", DONE)
    # Given: two siblings stand in line for the same key, both because of a child of the second.
    for name in ("first", "second"):
        harness.answer(name, Advanced(state=b"", acquire=(LockKey.write("a"),)))

    harness.answer("slow", DONE)

    harness.answer("second", DONE)
    harness.answer("first", DONE)
    assert harness.resolved()["first"] is harness.resolved()["second"] is SUCCESS


def test_nobody_fails_for_the_locks_of_an_undo_that_is_not_to_run() -> None:
    harness = CoreHarness(5)
    harness.register("Parent", rollback_supported=True, on_child_failure="resume")
    harness.register("Step", rollback_supported=True, lock_scope="step")
    read, write = (LockKey.read("a/b"),), (LockKey.write("a"),)
    harness.submit(harness.new("root", "Parent"))
    parents = (harness.new("p", "Parent"), harness.new("q", "Parent", locks=read))
    harness.answer("root", Suspended(state=b"", children=parents))
    harness.answer("q", Suspended(state=b"", children=(harness.new("poisoned", "Step", unit="u", locks=write),)))
    children = (harness.new("undone", "Step", unit="u"), harness.new("quick"))
    harness.answer("p", Suspended(state=b"", children=children, wait="any"))
    harness.answer("quick", DONE)
    harness.answer("p", Advanced(state=b"", acquire=read))
    harness.answer("undone", Advanced(state=b"", acquire=write))
    # Given: an undo waits for what the other parent keeps, and would be in the way of an undo below that one.
    harness.handle(AbortRequested("undone", 2, force=True))

    # When that is not to run, as nobody knows what the step left.
    harness.answer("poisoned", Poisoned(state=b"", keys=("z",), error=ErrorInfo("poisoned", "Half", "half done")))

    assert harness.resolved()["poisoned"] is ProcedureState.FAILED
    for name in "pq":
        assert harness.core.view(name).error is None  # type: ignore[union-attr]
        assert name in harness.inbox


def test_who_loses_the_cover_of_a_parent_that_ends_is_not_in_line_behind_one_who_waits_for_its_own_parent() -> None:
    harness = CoreHarness(6)
    harness.submit(harness.new("root", locks=(LockKey.write("a"),)))
    children = (
        harness.new("keeper", locks=(LockKey.read("a/b"),)),
        harness.new("reader", locks=(LockKey.read("a"),)),
        harness.new("writer", locks=(LockKey.write("a/b"),)),
        harness.new("ends"),
    )
    harness.answer("root", Suspended(state=b"", children=children, wait="any", on_parent_end="leave"))
    # Given: below the root's own lock the child of the keeper goes before the writer, and waits for the reader alone.
    harness.answer("keeper", Suspended(state=b"", children=(harness.new("child", locks=(LockKey.write("a/b"),)),)))
    assert not {"writer", "child"} & harness.inbox.keys()
    harness.answer("ends", DONE)

    harness.answer("root", DONE)
    harness.answer("reader", DONE)

    assert "child" in harness.inbox
    for name in ("child", "keeper", "writer"):
        harness.answer(name, DONE)
    assert set(harness.resolved().values()) == {ProcedureState.SUCCESS}
