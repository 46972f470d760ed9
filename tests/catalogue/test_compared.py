"""What a comparison with the other systems asks for and no row of their tests names, and from what any commit leaves."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pytest

from actorproc import LockKey, Procedure, ProcedureAborted, Saga, StateMachineProcedure, Status, step
from actorproc.model.states import Phase
from actorproc.store.memory import MemoryStore
from tests.catalogue.kit import crash_at_every_commit, ending_of, forget, note, noted, on_threads
from tests.kit.waiting import BOUND, wait_until

pytestmark = pytest.mark.processes


@dataclass
class Periodic(Procedure):
    """Does its turn and sleeps, until it is told to stop."""

    folder: str
    turns: int = 0

    def execute(self, ctx):
        self.turns += 1
        note(self.folder, "turn", self.turns)
        return Status.sleep(0.003)


def test_hbase_45_a_task_that_sleeps_between_its_turns_starts_and_stops(folder):
    """The periodic task: turns follow each other across a restart, and none comes after it was stopped."""
    store = MemoryStore()
    with on_threads(store, [Periodic]) as manager:
        manager.submit(Periodic(folder), "chore")
        wait_until(lambda: len(noted(folder)) >= 3)
    with on_threads(store.clone(), [Periodic]) as manager:
        handle = manager.get("chore")
        before = len(noted(folder))
        wait_until(lambda: len(noted(folder)) >= before + 3)

        assert manager.abort("chore")

        assert isinstance(handle.exception(BOUND), ProcedureAborted)
        turns = noted(folder)
        assert manager.locks() == []
    assert noted(folder) == turns
    assert len(turns) - len(set(turns)) <= 1


@dataclass
class Later(Procedure):
    """Takes a second lock after its first step, and undoes all with both when it fails."""

    folder: str
    fails: bool = False
    at: int = 0

    def lock_keys(self):
        return [LockKey.read("shop")]

    def execute(self, ctx):
        self.at += 1
        note(self.folder, "step", self.at)
        if self.at == 1:
            return Status.executing(acquire=[LockKey.write("shelf/one")])
        if self.fails:
            raise ValueError("no")
        return Status.wait("go", timeout=0.01)

    def on_timeout(self, ctx):
        return Status.done(sorted(lock["path"] for lock in ctx.query(ctx.id)["locks"]))

    def rollback(self, ctx):
        note(self.folder, "undo", *sorted(lock["path"] for lock in ctx.query(ctx.id)["locks"]))


def test_uncovered_a_lock_taken_later_is_held_to_the_end_whatever_commit_a_crash_leaves(folder):
    def judge(manager, handle):
        return ending_of(handle), manager.locks()

    assert crash_at_every_commit(Later(folder), folder, judge) >= 3
    assert crash_at_every_commit(Later(folder, fails=True), folder, judge) >= 3

    with on_threads(MemoryStore()) as manager:
        assert manager.run(Later(folder)) == ["shelf/one", "shop"]
        assert manager.submit(Later(folder, fails=True)).exception(BOUND).state == "ROLLEDBACK"
    assert noted(folder)[-1] == "undo shelf/one shop"


@dataclass
class Heir(Procedure):
    """A parent and its child, which waits."""

    child: bool = False
    at: int = 0

    def execute(self, ctx):
        self.at += 1
        if self.child:
            return Status.wait("go") if self.at == 1 else Status.done()
        return Status.suspended([("heir", Heir(child=True))]) if self.at == 1 else Status.done()


def test_uncovered_a_child_inherits_owner_priority_and_deadline_over_a_restart(folder):
    store = MemoryStore()
    with on_threads(store, [Heir]) as manager:
        manager.submit(Heir(), "parent", owner="ada", priority=3, deadline=4e9)
        # The parent is seen suspended as soon as that is decided, the child when it is stored.
        wait_until(lambda: [info.id for info in manager.list(phase=Phase.WAITING)] == ["heir"])
        image = store.clone()
    with on_threads(image, [Heir]) as manager:
        child = manager.info("heir")
        assert (child.owner, child.priority, child.deadline) == ("ada", 3, 4e9)


@dataclass
class Undoable(Procedure):
    folder: str
    waits: bool = True

    def execute(self, ctx):
        note(self.folder, "do", ctx.id)
        return Status.wait("never") if self.waits else Status.done()

    def rollback(self, ctx):
        note(self.folder, "undo", ctx.id)


@dataclass
class Asked(Undoable):
    """Has a say in its abort."""

    def abort(self, ctx):
        note(self.folder, "asked", ctx.id)
        return True


@pytest.mark.parametrize(("verb", "kind"), [("abort", Undoable), ("abort", Asked), ("rollback", Asked)])
def test_uncovered_what_an_operator_stops_is_undone_whatever_commit_a_crash_leaves(folder, verb, kind):
    """The wish is stored with its answer: later lives need not be told again."""

    def judge(manager, handle):
        wait_until(lambda: handle.info().phase is Phase.WAITING or manager.audit("root"))
        if not manager.audit("root"):
            getattr(manager, verb)("root", reason="enough")
        return ending_of(handle)[0], [row.verb for row in manager.audit("root")]

    assert crash_at_every_commit(kind(folder), folder, judge) >= 3


class Order(Saga):
    """One of its steps has several children; the last step fails when told so."""

    folder: str
    fails: bool
    uses = (Undoable,)

    @step
    def book(self, ctx):
        note(self.folder, "do", "book")

    @book.undo
    def unbook(self, ctx):
        note(self.folder, "undo", "book")

    @step
    def parts(self, ctx):
        return Status.suspended([(f"part-{n}", Undoable(self.folder, waits=False)) for n in range(3)], max_parallel=1)

    @parts.undo
    def no_parts(self, ctx):
        note(self.folder, "undo", "parts")

    @step
    def ship(self, ctx):
        if self.fails:
            raise ValueError("no")
        return sorted(ctx.children)


def test_uncovered_a_saga_with_several_children_in_a_step_ends_alike_whatever_commit_a_crash_leaves(folder):
    def judge(_, handle):
        return ending_of(handle)

    assert crash_at_every_commit(Order(folder, fails=False), folder, judge) >= 5
    assert crash_at_every_commit(Order(folder, fails=True), folder, judge) >= 8

    with on_threads(MemoryStore()) as manager:
        assert manager.run(Order(folder, fails=False)) == ["part-0", "part-1", "part-2"]
    forget(folder)
    with on_threads(MemoryStore()) as manager:
        assert manager.submit(Order(folder, fails=True)).exception(BOUND).state == "ROLLEDBACK"
    undone = [line for line in noted(folder) if line.startswith("undo")]
    assert undone == ["undo part-2", "undo part-1", "undo part-0", "undo parts", "undo book"]


class Place(Enum):
    HERE = 1
    THERE = 2


@dataclass
class Stays(StateMachineProcedure):
    """Stays three times in its first state, yielding with its lock held, and tells how often it stayed."""

    folder: str
    initial_state = Place.HERE

    def lock_keys(self):
        return [LockKey.write("place")]

    def execute_from_state(self, ctx, state):
        note(self.folder, state.name, self.cycles, *(lock["path"] for lock in ctx.query(ctx.id)["locks"]))
        if state is Place.HERE:
            return Status.executing(yield_=True) if self.cycles < 3 else Place.THERE
        return Status.done(self.cycles)


def test_uncovered_a_machine_that_stays_counts_and_yields_with_its_lock_whatever_commit_a_crash_leaves(folder):
    def judge(_, handle):
        return ending_of(handle)

    assert crash_at_every_commit(Stays(folder), folder, judge) >= 5

    with on_threads(MemoryStore()) as manager:
        assert manager.run(Stays(folder)) == 0
    assert noted(folder) == [*(f"HERE {number} place" for number in range(4)), "THERE 0 place"]
