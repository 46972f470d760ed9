"""Catalogue: parents, children, and what becomes of a tree when one of them fails."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pytest

from actorproc import Limits, LockKey, Procedure, Saga, StateMachineProcedure, Status, step
from actorproc.model.states import TERMINAL
from actorproc.store.memory import MemoryStore
from tests.catalogue.kit import (
    RecordingStore,
    crash_at_every_commit,
    die_once,
    ending_of,
    firsts,
    live_through_crashes,
    note,
    noted,
    on_threads,
)
from tests.kit.waiting import BOUND, wait_until

pytestmark = pytest.mark.processes


class Place(Enum):
    OPEN = 1
    FILL = 2
    CLOSE = 3


@dataclass
class Leaf(Procedure):
    folder: str
    name: str
    fails: bool = False

    def execute(self, ctx):
        note(self.folder, "do", self.name)
        if self.fails:
            raise ValueError(self.name)
        return Status.done(self.name)

    def rollback(self, ctx):
        note(self.folder, "undo", self.name)


@dataclass
class Machine(StateMachineProcedure):
    """Children come from its middle state and from its last one."""

    folder: str
    fails: str = ""
    depth: int = 1
    initial_state = Place.OPEN
    uses = (Leaf,)

    def execute_from_state(self, ctx, state):
        note(self.folder, "do", f"{ctx.id}.{state.name}")
        if state is Place.OPEN:
            return Place.FILL
        for number in range(2):
            name = f"{ctx.id}.{state.name}.{number}"
            self.add_child((name, Leaf(self.folder, name, fails=name == self.fails)))
        if state is Place.FILL:
            if self.depth:
                self.add_child((f"{ctx.id}.inner", Machine(self.folder, self.fails, self.depth - 1)))
            return Place.CLOSE
        return None

    def rollback_state(self, ctx, state):
        note(self.folder, "undo", f"{ctx.id}.{state.name}")


@dataclass
class Fan(Procedure):
    """Starts `width` leaves; the one numbered `bad` fails."""

    folder: str
    width: int
    bad: int = -1
    uses = (Leaf,)

    def execute(self, ctx):
        if ctx.children:
            return Status.done([child.output for child in ctx.children.values()])
        note(self.folder, "do", "fan")
        return Status.suspended(
            (f"leaf-{n}", Leaf(self.folder, f"{n}", fails=n == self.bad)) for n in range(self.width)
        )

    def rollback(self, ctx):
        note(self.folder, "undo", "fan")


class Tolerant(Fan):
    on_child_failure = "resume"

    def execute(self, ctx):
        if ctx.children:
            return Status.done([(str(child.state), child.output) for child in ctx.children.values()])
        return super().execute(ctx)


class BadList(Saga):
    folder: str

    @step
    def first(self, ctx):
        note(self.folder, "do", "first")

    @first.undo
    def unfirst(self, ctx):
        note(self.folder, "undo", "first")

    @step
    def second(self, ctx):
        note(self.folder, "do", "second")
        return Status.suspended([Leaf(self.folder, "good"), None])

    @second.undo
    def unsecond(self, ctx):
        note(self.folder, "undo", "second")


@dataclass
class DyingLevel(Procedure):
    """At each level the step that ends it kills its worker once, with the child's outcome in hand."""

    folder: str
    depth: int

    def execute(self, ctx):
        if self.depth and not ctx.children:
            return Status.suspended([DyingLevel(self.folder, self.depth - 1)])
        die_once(self.folder, self.depth)
        return Status.done([self.depth, *(depth for child in ctx.children.values() for depth in child.output)])


@dataclass
class NeedsBadLock(Procedure):
    def lock_keys(self):
        raise RuntimeError("which table?")

    def execute(self, ctx):
        return Status.done()


@dataclass
class StartsBadLock(Procedure):
    folder: str
    uses = (NeedsBadLock,)

    def execute(self, ctx):
        return Status.suspended([NeedsBadLock()])

    def rollback(self, ctx):
        note(self.folder, "undo", "starter")


@dataclass
class LocksBelow(Procedure):
    folder: str
    uses = (Leaf,)

    def lock_keys(self):
        return [LockKey.write("table")]

    def execute(self, ctx):
        return Status.done(ctx.id) if ctx.children else Status.suspended([("below", LockedLeaf(self.folder, "below"))])


class LockedLeaf(Leaf):
    def lock_keys(self):
        return [LockKey.write("table")]


def states(manager):
    return {info.id: str(info.state) for info in manager.list()}


def test_hbase_3_a_worker_is_killed_before_the_save_at_every_nesting_level(open_manager, folder):
    """Real processes: the last step of each of three levels is killed once, and runs exactly twice."""
    manager = open_manager()

    assert manager.run(DyingLevel(folder, 2)) == [2, 1, 0]
    assert noted(folder) == ["0", "0", "1", "1", "2", "2"]


def test_hbase_7_children_come_from_the_middle_and_from_the_last_state(folder):
    """Two machines, one in the other, and the leaves of both: exactly the expected ids, all successful."""
    with on_threads(RecordingStore(), [Machine]) as manager:
        handle = manager.submit(Machine(folder), "m")
        assert handle.result(BOUND) is None
        machines = {"m", "m.inner"}
        leaves = {f"{name}.{state}.{n}" for name in machines for state in ("FILL", "CLOSE") for n in range(2)}

        assert states(manager) == dict.fromkeys(machines | leaves, "SUCCESS")
        assert handle.info().children == {"SUCCESS": 5}


def test_hbase_7_no_crash_adds_a_child_or_leaves_one_out(folder):
    """The same machines, restarted from what each commit leaves: always the same ids in the same states."""
    crashes = crash_at_every_commit(
        Machine(folder), folder, lambda manager, handle: (ending_of(handle), states(manager))
    )

    assert crashes >= 10


def test_hbase_8_a_finished_tree_reloads_as_finished(open_manager, folder):
    """After a restart every member is what it was, outputs included, and nothing runs."""
    first = open_manager()
    first.submit(Fan(folder, 3), "root").result(BOUND)
    before = first.list()
    first.stop()
    ran = noted(folder)

    second = open_manager(procedures=[Fan])

    assert second.list() == before
    assert second.get("root").result(BOUND) == ["0", "1", "2"]
    assert second.get("leaf-1").result(BOUND) == "1"
    assert second.health().busy == 0
    assert noted(folder) == ran


def test_hbase_10_a_child_that_ended_and_a_parent_not_yet_woken_are_never_apart(folder):
    """In what each commit leaves, the parent's latch counts exactly the children that have not ended."""
    store = RecordingStore()
    with on_threads(store, [Fan], workers=2) as manager:
        manager.submit(Fan(folder, 4), "root").result(BOUND)
    latches = []
    for image, _ in store.images:
        root = image.procedure("root")
        children = [image.procedure(f"leaf-{n}") for n in range(4)]
        if root is not None and children[0] is not None:
            assert root.pending == sum(child.state not in TERMINAL for child in children)
            assert (root.state == "WAITING") == (root.pending > 0)
            latches.append(root.pending)

    assert latches[0] == 4
    assert latches[-1] == 0


def test_hbase_11_a_failed_child_rolls_the_tree_back_from_what_any_commit_leaves(folder):
    """The third of four leaves fails; wherever the host dies, the tree ends undone, each part of it once."""

    def judge(manager, handle):
        return ending_of(handle), states(manager)

    crashes = crash_at_every_commit(Fan(folder, 4, bad=2), folder, judge)

    assert crashes >= 6


def test_hbase_11_a_failed_child_rolls_the_tree_back_when_the_host_dies_before_each_record(folder):
    """Stepped restarts: every step and every undo runs twice, and the undos come in reverse order."""
    store, _ = live_through_crashes(Fan(folder, 4, bad=3))

    with on_threads(store.next_life(), [Fan]) as manager:
        assert set(states(manager).values()) == {"ROLLEDBACK"}
    undos = [line for line in noted(folder) if line.startswith("undo")]
    assert firsts(undos) == ["undo 3", "undo 2", "undo 1", "undo 0", "undo fan"]
    assert {undos.count(line) for line in undos} == {2}


def test_hbase_12_a_child_that_is_none_fails_the_parent_and_undoes_its_steps(open_manager, folder):
    """Nothing of the bad list is started; the spawning step is undone first, then the one before it."""
    manager = open_manager()
    handle = manager.submit(BadList(folder), "root")

    failure = handle.exception(BOUND)

    assert failure.state == "ROLLEDBACK"
    assert failure.cause.type_name.endswith("InvalidStatus")
    assert "None" in str(failure)
    assert noted(folder) == ["do first", "do second", "undo second", "undo first"]
    assert [info.id for info in manager.list()] == ["root"]


def test_accumulo_61_a_child_whose_locks_cannot_be_told_fails_the_parent(open_manager, folder):
    """What FATE calls isReady is `lock_keys` here: an exception in it reaches the submitter, or fails the spawner."""
    manager = open_manager()

    with pytest.raises(RuntimeError, match="which table"):
        manager.submit(NeedsBadLock(), "alone")
    failure = manager.submit(StartsBadLock(folder), "root").exception(BOUND)

    assert "which table?" in str(failure)
    assert failure.state == "ROLLEDBACK"
    assert noted(folder) == ["undo starter"]
    assert [info.id for info in manager.list()] == ["root"]


def test_hbase_43_a_wide_tree_with_ids_across_every_boundary_rolls_back(folder):
    """A hundred and thirty children, the last of which fails: not one undo is lost or made twice."""
    with on_threads(MemoryStore(), [Fan]) as manager:
        assert ending_of(manager.submit(Fan(folder, 130, bad=129), "root")) == ("ROLLEDBACK", "RemoteError")
        assert set(states(manager).values()) == {"ROLLEDBACK"}

    undos = [line.removeprefix("undo ") for line in noted(folder) if line.startswith("undo")]
    assert undos == [*(str(n) for n in reversed(range(130))), "fan"]


def test_greptime_80_nothing_but_the_records_of_a_finished_tree_is_kept(folder):
    """When a tree has succeeded no undo unit, lock, timer or open procedure of it is left in the store."""
    store = RecordingStore()
    with on_threads(store, [LocksBelow, LockedLeaf]) as manager:
        assert manager.submit(LocksBelow(folder), "root").result(BOUND) == "root"
        assert manager.locks() == []

    left = store.load()
    assert (left.procedures, left.units, left.locks, left.events, left.poisons) == ([], [], [], [], [])


def test_greptime_81_a_parent_that_asked_for_it_sees_which_child_failed(open_manager, folder):
    """With `on_child_failure = "resume"` the outcomes come in order, and only the failed child is undone."""
    manager = open_manager(workers=2)

    output = manager.run(Tolerant(folder, 3, bad=1))

    assert output == [("SUCCESS", "0"), ("ROLLEDBACK", None), ("SUCCESS", "2")]
    assert [line for line in noted(folder) if line.startswith("undo")] == ["undo 1"]


def test_greptime_81_a_parent_that_did_not_ask_fails_with_the_childs_reason(open_manager, folder):
    """Without it the parent's own failure names the child, its step and its exception."""
    manager = open_manager()

    failure = manager.submit(Fan(folder, 3, bad=1), "root").exception(BOUND)

    assert "leaf-1" in str(failure)
    assert "ValueError" in failure.cause.type_name
    assert failure.state == "ROLLEDBACK"


def test_iotdb_91_one_failed_child_of_ten_and_the_counts_are_right(open_manager, folder):
    """Each child that was handed out is undone once, those that never were are not; the parent's unit comes last.

    One that was handed out has not run for sure: a worker with nothing to do takes over what another has not begun,
    and then the tree fails.
    """
    events = []
    manager = open_manager(workers=2, on_event=events.append)

    failure = manager.submit(Fan(folder, 10, bad=4), "root").exception(BOUND)
    lines = noted(folder)
    done = {line.removeprefix("do ") for line in lines if line.startswith("do")}
    undone = [line.removeprefix("undo ") for line in lines if line.startswith("undo")]

    assert failure.state == "ROLLEDBACK"
    wait_until(lambda: any(event.kind == "rolled-back" and event.id == "root" for event in events))
    handed_out = {event.id.removeprefix("leaf-") for event in events if event.kind == "started"} - {"root"}
    assert sorted(undone) == sorted({"fan"} | handed_out)
    assert done <= set(undone)
    assert undone[-1] == "fan"
    assert manager.info("root").children == {"ROLLEDBACK": 10}


def test_greptime_7692_a_child_may_lock_what_its_parent_holds(open_manager, folder):
    """The parent of a locked table waits for a child that locks the same table: the child shares it."""
    manager = open_manager()

    assert manager.submit(LocksBelow(folder), "root").result(BOUND) == "root"


def test_hbase_55_a_worker_killed_right_after_its_answer_repeats_nothing(folder, monkeypatch):
    """The answer that reached the host counts, whatever becomes of the worker that gave it."""
    for one in (Fan, Leaf):  # on a slow machine a step is killed more often than it is tried by default
        monkeypatch.setattr(one, "limits", Limits(crashes=10_000))
    with on_threads(RecordingStore(), [Fan], workers=2) as manager:
        handle = manager.submit(Fan(folder, 20), "root")
        while not handle.done():
            worker = next(iter(manager._tree.pool.facts()), None)
            if worker is not None:
                manager._tree.pool.crash(worker)
            handle.wait(0.02)

        assert ending_of(handle)[0] == "SUCCESS"
