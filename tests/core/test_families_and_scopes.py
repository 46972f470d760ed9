"""Parents, children and failure scopes: outcomes, signals, retries and damage."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from actorproc.core.coordinator import Coordinator
from actorproc.model.ids import Mode, WorkerId
from actorproc.model.messages.events import (
    AbortRequested,
    BypassRequested,
    DeleteRequested,
    Published,
    RetryRequested,
    Signalled,
    Submitted,
    TypeRegistered,
    WorkerReady,
)
from actorproc.model.messages.outcomes import (
    Advanced,
    Finished,
    Refused,
    Suspended,
    Waited,
)
from actorproc.model.policies import Backoff, LockKey, Scheduling, TypeMeta
from actorproc.model.rows.records import ProcedureRecord, UndoRecord, Wait
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.states import Phase, ProcedureState
from tests.core.harness import CoreHarness, boom, difference, image_of, restarted

DONE = Finished(state=b"")
LOCK = LockKey.write("k")
FAILED = ProcedureState.FAILED


def test_a_rollback_that_gives_up_below_two_resuming_parents_is_handed_to_the_nearest_one() -> None:
    harness = CoreHarness(workers=1)
    harness.register("R", on_child_failure="resume", rollback_supported=True)
    harness.register("C", rollback_supported=True, rollback_retry=Backoff(max_attempts=1))
    harness.submit(harness.new("outer", "R", unit="o"))
    harness.answer("outer", Suspended(state=b"", children=(harness.new("inner", "R", unit="i"),), unit="o2"))
    harness.answer(
        "inner", Suspended(state=b"", children=(harness.new("leaf", "C", unit="", locks=(LOCK,)),), unit="i2")
    )
    harness.answer("leaf", boom())
    harness.answer("leaf", boom())

    assert harness.state("leaf") == ProcedureState.FAILED
    assert harness.inbox["inner"].children_step == 1
    harness.answer("inner", boom())
    assert harness.undo_all() == ["inner:i2", "inner:i"]
    assert harness.state("inner") == ProcedureState.ROLLEDBACK
    harness.answer("outer", DONE)
    assert harness.state("outer") == ProcedureState.SUCCESS


def test_grandchildren_of_a_parent_that_compensates_itself_are_left_alone() -> None:
    harness = CoreHarness(workers=1, rollback_supported=True)
    harness.register("K", undo_children=False, rollback_supported=True)
    harness.submit(harness.new("root", unit="r"))
    harness.answer("root", Suspended(state=b"", children=(harness.new("keep", "K", unit="k"),), unit="r2"))
    harness.answer("keep", Suspended(state=b"", children=(harness.new("leaf", unit="", locks=(LOCK,)),), unit="k2"))
    harness.answer("leaf", DONE)
    harness.answer("keep", DONE)
    harness.answer("root", boom())

    assert harness.undo_all() == ["root:r2", "keep:k2", "keep:k", "root:r"]
    assert harness.state("leaf") == ProcedureState.SUCCESS


def _head(name: str, parent: str | None, root: str, seq: int, **fields: object) -> ProcedureRecord:
    return ProcedureRecord(id=name, type_name="T", version=1, root=root, parent=parent, seq=seq, **fields)  # type: ignore[arg-type]


def _restored(snapshot: RecoverySnapshot) -> CoreHarness:
    harness = CoreHarness(workers=0)
    harness.core, _ = Coordinator.restore(snapshot, 0.0)
    harness.handle(TypeRegistered(TypeMeta(type_name="T")))
    harness.handle(WorkerReady(WorkerId(0, 1)))
    return harness


def test_a_tree_with_a_damaged_member_stands_still_and_the_others_run() -> None:
    waiting = {"state": ProcedureState.WAITING, "step": 2, "awaiting": 1, "pending": 1, "width": 1, "children": 1}
    top = _head("top", None, "top", 1, **waiting)
    leaf = _head("leaf", "middle", "top", 3)
    other = _head("other", None, "other", 4)
    units = [UndoRecord("top", 1, "middle", "", 1)]

    harness = _restored(RecoverySnapshot(1, 5, 1, [top, leaf, other], units, [], [], [], []))

    assert set(harness.inbox) == {"other"}
    harness.answer("other", DONE)
    assert harness.core.phase(top)[0] is Phase.PARKED
    assert harness.core.phase(leaf)[0] is Phase.PARKED
    for event in (AbortRequested("top", reply=1), Signalled("leaf", b"", reply=2)):
        assert any(getattr(command, "error", None) is not None for command in harness.handle(event).commands)
    reply = next(iter(harness.handle(Submitted((harness.new("leaf"),), reply=3)).commands))
    assert reply.error is not None, "its record must not be written over"


def test_a_retried_parent_has_not_lost_a_child_that_it_never_counted() -> None:
    harness = CoreHarness(4, rollback_supported=True)
    harness.submit(harness.new("r"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("p", unit=""), harness.new("other"))))
    children = (harness.new("left"), harness.new("quick"))
    harness.answer("p", Suspended(state=b"", children=children, wait="any", on_parent_end="leave"))
    harness.answer("quick", DONE)
    harness.answer("p", DONE)
    harness.answer("other", boom())
    harness.answer("left", Advanced(state=b""))
    harness.answer("p", boom("cannot be undone"))
    assert (harness.state("p"), harness.state("left")) == (FAILED, FAILED)

    harness.handle(RetryRequested("r", 2))

    p = harness.core.view("p")
    assert p is not None
    assert (p.pending, p.succeeded, p.failed) == (1, 1, 0)


@pytest.mark.parametrize("wait", ["all", "any", "each"])
def test_a_parent_sees_the_end_of_a_child_that_came_while_it_ran_also_when_it_was_the_last(wait: Wait) -> None:
    harness = CoreHarness(3)
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("a"), harness.new("b")), wait="any"))
    harness.answer("a", DONE)
    harness.answer("b", DONE)

    harness.answer("p", Suspended(state=b"", children=(), wait=wait))

    p = harness.core.view("p")
    assert p is not None
    assert (harness.inbox["p"].children_step, p.seen) == (1, 2)
    # What comes after that is another group.
    harness.answer("p", Suspended(state=b"", children=(harness.new("c"),), wait=wait))
    assert "p" not in harness.inbox
    harness.answer("c", DONE)
    assert (harness.inbox["p"].children_step, p.seen) == (3, 3)


def test_a_submit_again_is_the_same_one_also_when_a_newer_version_of_its_class_has_run_a_step_of_it() -> None:
    harness = CoreHarness()
    harness.submit(harness.new("p"))
    harness.register("T", version=2)
    harness.answer("p", Advanced(state=b"", version=2))

    reply = harness.submit(
        replace(harness.new("p"), version=2, digest=b"of a state with one more field", is_compared=True)
    )

    assert (reply.value, reply.error) == (("p",), None)
    assert difference(harness) is None


def test_a_retried_root_counts_as_running_before_it_runs_a_step_itself() -> None:
    harness = CoreHarness(workers=0)
    snapshot = RecoverySnapshot(1, 1, 1, [], [], [], [], [], [])
    harness.core, _ = Coordinator.restore(snapshot, 0.0, scheduling=Scheduling(max_running=1))
    harness.register("T")
    for slot in range(3):
        harness.handle(WorkerReady(WorkerId(slot, 1)))
    harness.submit(harness.new("r"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("c"),)))
    harness.answer("c", boom())

    harness.handle(RetryRequested("r", 2))
    harness.submit(harness.new("new"))

    assert set(harness.inbox) == {"c"}
    harness.answer("c", DONE)
    harness.answer("r", DONE)
    assert set(harness.inbox) == {"new"}


def test_a_retry_goes_on_with_the_signal_that_a_stopped_child_had_taken() -> None:
    harness = CoreHarness(1)
    harness.register("C", rollback_supported=True)
    harness.submit(harness.new("p"))
    harness.answer("p", Suspended(state=b"", children=(harness.new("c", "C"), harness.new("d"))))
    harness.answer("c", Waited(state=b"", event="e"))
    # Given: it is woken, and stopped before it ran; it had nothing to undo, its root cannot be undone.
    harness.handle(Published("e", b"hello", 2))
    harness.answer("d", boom())
    assert harness.state("c") is ProcedureState.ROLLEDBACK
    assert harness.state("p") is ProcedureState.FAILED

    harness.handle(RetryRequested("p", 3))

    assert harness.inbox["c"].event == b"hello"


def test_a_parked_member_of_a_failing_tree_is_undone_when_its_class_was_registered_before_its_turn() -> None:
    harness = CoreHarness(3, rollback_supported=True)
    harness.register("C", rollback_supported=True)
    harness.submit(harness.new("p", unit="u"))
    children = (harness.new("c", "C", unit="u"), harness.new("d", unit="u"), harness.new("e", unit="u"))
    harness.answer("p", Suspended(state=b"", children=children))
    # Given: one is parked, its tree fails, and the host dies while a step of the tree still runs.
    harness.answer("c", Refused(reason="not today"))
    harness.answer("d", boom())

    again = restarted(harness, after=1.0)
    again.register("C", rollback_supported=True)
    again.register("T", rollback_supported=True)
    again.handle(WorkerReady(WorkerId(0, 1)))

    assert again.undo_all() == ["e:u", "d:u", "c:u", "p:u"]
    assert again.resolved()["p"] is ProcedureState.ROLLEDBACK


def test_a_signal_that_was_taken_before_a_failure_counts_once_after_a_retry_too() -> None:
    harness = CoreHarness(2)
    harness.submit(harness.new("root"))
    harness.answer("root", Suspended(state=b"", children=(harness.new("child"),)))
    harness.answer("child", Waited(state=b"", event="go"))
    harness.handle(Signalled("child", b"1", 2, dedup="id"))
    harness.answer("child", boom())
    assert harness.state("root") is ProcedureState.FAILED
    harness.handle(RetryRequested("root", 3))

    harness.handle(Signalled("child", b"1", 4, dedup="id"))
    harness.answer("child", Waited(state=b"", event="go"))
    assert "child" not in harness.inbox

    # What cannot be tried again needs no ids, nor does what is removed.
    harness.handle(BypassRequested("root", 5, children=True))
    assert not image_of(harness).events
    assert difference(harness) is None


@pytest.mark.parametrize("verb", ["delete", "bypass"])
def test_ids_of_signals_to_what_failed_go_with_its_tree(verb: str) -> None:
    harness = CoreHarness(1)
    harness.submit(harness.new("p"))
    harness.answer("p", Waited(state=b"", event="go"))
    harness.handle(Signalled("p", b"1", 2, dedup="id"))
    harness.answer("p", boom())
    assert harness.core.fingerprint()["taken"]

    harness.handle(DeleteRequested("p", 3) if verb == "delete" else BypassRequested("p", 3))

    assert not harness.core.fingerprint()["taken"]
    assert not image_of(harness).events


def test_a_retry_counts_nothing_off_at_a_parent_that_had_ended_and_left_its_child_behind() -> None:
    harness = CoreHarness(3, rollback_supported=True)
    harness.submit(harness.new("root", unit="first"))
    harness.answer("root", Suspended(state=b"", children=(harness.new("parent", unit="unit"),)))
    children = (harness.new("left", unit="unit"), harness.new("ends"))
    harness.answer("parent", Suspended(state=b"", children=children, wait="any", on_parent_end="leave"))
    harness.answer("ends", DONE)
    harness.answer("parent", DONE)
    harness.answer("root", boom())
    harness.answer("left", boom())
    # Given: all of them are undone but the root, whose own undo gives up.
    for name in ("left", "parent", "root"):
        assert harness.inbox[name].token.mode is Mode.ROLLBACK
        harness.answer(name, boom() if name == "root" else DONE)
    assert harness.state("parent") is ProcedureState.ROLLEDBACK

    harness.handle(RetryRequested("root", 2))

    parent = harness.core.view("parent")
    assert parent is not None
    assert (parent.pending, parent.succeeded, parent.failed) == (0, 1, 0)
