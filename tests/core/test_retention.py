"""Which finished trees leave, when, and how: decided without a clock, a thread or a file."""

from __future__ import annotations

import msgspec
import pytest

from actorproc.core.coordinator import Coordinator
from actorproc.core.lifecycle.removal import CHUNK
from actorproc.errors import NotAllowed
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.events import (
    Acknowledged,
    DeleteRequested,
    RemovalContinued,
    ResultsTaken,
    Submitted,
    TreesExpired,
)
from actorproc.model.messages.outcomes import Finished, Suspended
from actorproc.model.policies import LockKey, Retention
from actorproc.model.rows.records import NewProcedure
from actorproc.model.rows.snapshot import FinishedTree
from actorproc.model.rows.writes import (
    DeleteAcknowledgement,
    DeleteProcedure,
    DeleteRemoval,
    PutAcknowledgement,
    PutRemoval,
)
from actorproc.model.states import ProcedureState
from actorproc.store.memory import MemoryStore
from tests.core.harness import CoreHarness, boom

DAY = 86400.0


class Kept(CoreHarness):
    """A harness with a store, whose trees leave memory as soon as they have finished."""

    def __init__(self, *, retention: Retention, workers: int = 1, **traits: object) -> None:
        super().__init__(workers, **traits)
        self.store = MemoryStore()
        self.epoch = self.store.own()
        self.core._state.settings.retention = retention
        self.stored = 0

    def commit(self) -> None:
        """Store what was decided, and let go of what has finished."""
        writes, self.stored = self.writes[self.stored :], len(self.writes)
        self.store.commit(writes, self.epoch)
        self.core.settle(self.core.seal())

    def run(self, id: str, *, at: float = 0.0, **fields: object) -> None:
        """Let a procedure of one step finish at that time."""
        self.now = at
        self.submit(self.new(id, **fields))
        self.answer(id, Finished(state=b"1"))
        self.commit()

    def tree(self, root: str, *, surplus: bool = False) -> FinishedTree:
        found = self.store.finished_tree(root, CHUNK)
        assert found is not None
        return msgspec.structs.replace(found, surplus=surplus)

    def expire(self, *trees: FinishedTree, at: float) -> list[str]:
        """The procedures that leave at that time, in order."""
        self.now = at
        before = len(self.writes)
        self.handle(TreesExpired(trees, at))
        gone = [write.record.id for write in self.writes[before:] if isinstance(write, DeleteProcedure)]
        self.commit()
        return gone

    def ask(self, event: Acknowledged | DeleteRequested) -> Reply:
        decision = self.handle(event)
        return next(command for command in decision.commands if isinstance(command, Reply))

    def delete(self, id: str, *, force: bool = False) -> Reply:
        return self.ask(DeleteRequested(id, 7, force=force, tree=self.store.finished_tree(id, CHUNK)))

    def acknowledge(self, id: str) -> Reply:
        return self.ask(Acknowledged(id, 7, self.store.procedure(id)))

    def restored(self) -> Coordinator:
        return Coordinator.restore(self.store.load(), self.now, retention=self.core._state.settings.retention)[0]


def family(harness: Kept, root: str = "r", children: int = 2, *, at: float = 0.0) -> list[str]:
    """Run a root with children to its end; the ids, root first."""
    harness.now = at
    harness.submit(harness.new(root))
    names = [f"{root}.{n}" for n in range(children)]
    harness.answer(root, Suspended(state=b"1", children=tuple(child(name) for name in names)))
    for name in names:
        harness.answer(name, Finished(state=b"1"))
    harness.answer(root, Finished(state=b"2"))
    harness.commit()
    return [root, *names]


def child(id: str) -> NewProcedure:
    return NewProcedure(id=id, fresh=True, type_name="T", state=b"0", digest=b"d")


def failed_with_poison(harness: Kept, root: str = "bad") -> None:
    """A root whose rollback gave up: its write lock is poisoned, its undo unit is left."""
    harness.submit(harness.new(root, locks=(LockKey.write("x"),), unit=""))
    harness.answer(root, boom())
    while root in harness.inbox:
        harness.answer(root, boom("cannot undo"))
    harness.commit()
    assert harness.store.procedure(root).state is ProcedureState.FAILED
    assert [poison.path for poison in harness.store.poisons()] == ["x"]


# ---------------------------------------------------------------------- by age, by count
def test_a_root_leaves_when_it_is_old_enough_and_no_earlier():
    harness = Kept(retention=Retention(seconds=10.0))
    harness.run("a", at=100.0)

    assert harness.expire(harness.tree("a"), at=109.9) == []
    assert harness.expire(harness.tree("a"), at=110.0) == ["a"]
    assert list(harness.store.scan()) == harness.store.steps("a") == []


def test_a_tree_leaves_as_a_whole_in_one_decision_the_root_last():
    harness = Kept(retention=Retention(seconds=10.0))
    names = family(harness)

    gone = harness.expire(harness.tree("r"), at=20.0)

    assert gone == list(reversed(names))
    assert harness.store.children("r") == list(harness.store.scan()) == []
    assert harness.store.load().damage == []


def test_without_an_age_nothing_leaves_for_its_age_and_what_is_too_many_leaves():
    harness = Kept(retention=Retention(seconds=None, count=1))
    harness.run("a")
    harness.run("b")

    assert harness.expire(harness.tree("a"), harness.tree("b"), at=1e9) == []
    assert harness.expire(harness.tree("a", surplus=True), harness.tree("b"), at=1e9) == ["a"]


def test_a_tree_with_members_left_behind_leaves_only_when_they_have_ended():
    harness = Kept(retention=Retention(seconds=10.0), workers=2)
    harness.submit(harness.new("r"))
    harness.answer(
        "r", Suspended(state=b"1", children=(child("left"), child("quick")), wait="any", on_parent_end="leave")
    )
    harness.answer("quick", Finished(state=b"1"))
    harness.answer("r", Finished(state=b"2"))
    harness.commit()
    stored = harness.store.finished_tree("r", CHUNK)

    assert stored.members[0].left_open
    assert harness.expire(stored, at=1000.0) == []
    assert "left children behind" in str(harness.ask(DeleteRequested("r", 7, tree=stored)).error)

    harness.answer("left", Finished(state=b"1"))
    harness.commit()
    assert set(harness.expire(harness.tree("r"), at=2000.0)) == {"r", "left", "quick"}


# ---------------------------------------------------------------------- what an operator has to look at
def test_a_failed_root_that_owns_poison_stays_unless_its_own_limit_says_so():
    harness = Kept(retention=Retention(seconds=10.0), rollback_supported=True)
    failed_with_poison(harness)

    assert harness.expire(harness.tree("bad", surplus=True), at=DAY) == []

    harness.core._state.settings.retention = Retention(seconds=10.0, failed_seconds=2 * DAY)
    assert harness.expire(harness.tree("bad"), at=DAY) == []
    assert harness.expire(harness.tree("bad"), at=2 * DAY + harness.now) == ["bad"]
    assert [poison.path for poison in harness.store.poisons()] == ["x"]


def test_a_failed_root_that_had_nothing_to_undo_is_as_any_other():
    harness = Kept(retention=Retention(seconds=10.0))
    harness.submit(harness.new("a"))
    harness.answer("a", boom())
    harness.commit()

    assert harness.store.procedure("a").state is ProcedureState.FAILED
    assert harness.expire(harness.tree("a"), at=10.0) == ["a"]


def test_acknowledging_a_failure_does_not_remove_what_an_operator_must_see():
    harness = Kept(retention=Retention(acknowledged_seconds=0.0), rollback_supported=True)
    failed_with_poison(harness)

    assert harness.acknowledge("bad").value is True
    assert harness.expire(harness.tree("bad"), at=DAY) == []


# ---------------------------------------------------------------------- acknowledge
def test_an_acknowledged_result_leaves_early_also_after_a_restart():
    harness = Kept(retention=Retention(seconds=DAY, acknowledged_seconds=60.0))
    harness.run("a", at=100.0)
    harness.now = 200.0
    assert harness.acknowledge("a").value is True
    assert harness.acknowledge("a").value is True
    assert sum(isinstance(write, PutAcknowledgement) for write in harness.writes) == 1
    harness.commit()

    harness.core = harness.restored()

    assert list(harness.core.acknowledged(199.0)) == []
    assert list(harness.core.acknowledged(200.0)) == ["a"]
    assert harness.expire(harness.tree("a"), at=259.0) == []
    assert harness.expire(harness.tree("a"), at=260.0) == ["a"]
    assert harness.store.load().acknowledgements == []


def test_only_the_result_of_a_finished_root_can_be_acknowledged():
    harness = Kept(retention=Retention(), workers=2)
    harness.submit(harness.new("busy"))
    harness.commit()
    family(harness, "r", 1)

    assert isinstance(harness.acknowledge("busy").error, NotAllowed)
    assert "root r" in str(harness.acknowledge("r.0").error)
    assert harness.acknowledge("nobody").value is False


# ---------------------------------------------------------------------- delete
def test_deleting_frees_the_id_in_the_same_batch():
    harness = Kept(retention=Retention())
    harness.run("a")

    assert harness.delete("a").value is True
    # Not stored yet: what the store has under this id is void.
    assert harness.core.missing(submitted(harness, "a"), harness.now) == ()
    assert harness.submit(harness.new("a")).value == ("a",)
    harness.answer("a", Finished(state=b"1"))
    harness.commit()

    assert harness.store.procedure("a").seq == 2
    assert harness.store.load().damage == []


def submitted(harness: Kept, id: str) -> Submitted:
    return Submitted((msgspec.structs.replace(harness.new(id), fresh=False),), 1)


def test_what_is_deleted_twice_or_unknown_is_false_and_what_has_not_finished_is_refused():
    harness = Kept(retention=Retention(), workers=2)
    harness.run("a")
    harness.submit(harness.new("busy"))
    harness.commit()
    family(harness, "r", 1)

    stored = harness.store.finished_tree("a", CHUNK)
    assert harness.delete("a").value is True
    assert harness.ask(DeleteRequested("a", 7, tree=stored)).value is False
    assert harness.delete("nobody").value is False
    assert isinstance(harness.delete("busy").error, NotAllowed)
    only = FinishedTree((harness.store.procedure("r.0"),))
    assert "root r" in str(harness.ask(DeleteRequested("r.0", 7, tree=only)).error)


def test_what_owns_poison_is_deleted_by_force_only_and_its_key_stays_poisoned():
    harness = Kept(retention=Retention(), rollback_supported=True)
    failed_with_poison(harness)

    refused = harness.delete("bad").error
    assert isinstance(refused, NotAllowed)
    assert "'x'" in str(refused)
    assert "clear_poison" in str(refused)
    assert harness.delete("bad", force=True).value is True
    harness.commit()

    assert harness.store.procedure("bad") is None
    assert [poison.path for poison in harness.restored()._state.locks.poisons.values()] == ["x"]


def test_a_tree_that_is_in_memory_is_not_removed_by_the_clock():
    harness = Kept(retention=Retention(seconds=1.0))
    harness.run("a")
    stored = harness.tree("a")
    harness.core.load(*harness.store.tree("a"))

    assert harness.expire(stored, at=DAY) == []
    assert harness.delete("a").value is True


def test_one_that_cannot_leave_keeps_none_of_those_behind_it():
    harness = Kept(retention=Retention(seconds=1.0))
    harness.run("a")
    harness.run("b")
    trees = (harness.tree("a"), harness.tree("b"))
    harness.core.load(*harness.store.tree("a"))

    assert harness.expire(*trees, at=DAY) == ["b"]


def test_a_root_that_runs_again_is_not_acknowledged_any_more():
    harness = Kept(retention=Retention())
    harness.run("a")
    assert harness.acknowledge("a").value is True
    harness.commit()
    harness.core.load(*harness.store.tree("a"))
    record = harness.core.view("a")

    record.state, record.finished_at = ProcedureState.RUNNABLE, None  # as `retry` does
    harness.core._state.decision.touch(record)
    harness.handle(Acknowledged("nobody", 1))

    assert any(isinstance(write, DeleteAcknowledgement) for write in harness.writes)
    assert list(harness.core.acknowledged(1e9)) == []


# ---------------------------------------------------------------------- large trees
def remove_in_parts(harness: Kept, root: str, part: int) -> int:
    """Go on with a removal until it is over; the number of commits."""
    commits = 0
    while harness.core.removals:
        members, more = harness.store.removed_members(root, part)
        harness.handle(RemovalContinued(root, tuple(members), more))
        harness.commit()
        commits += 1
    return commits


def test_a_large_tree_is_hidden_first_and_then_leaves_in_bounded_commits_across_any_crash():
    harness = Kept(retention=Retention(seconds=10.0), workers=1)
    size = CHUNK + 40
    names = family(harness, "r", size)

    assert harness.expire(harness.tree("r"), at=20.0) == []
    assert any(isinstance(write, PutRemoval) for write in harness.writes)
    assert harness.store.procedure("r") is harness.store.procedure(names[-1]) is None

    commits = 0
    while harness.core.removals:
        harness.core = harness.restored()  # the host dies between any two commits
        members, more = harness.store.removed_members("r", 100)
        harness.handle(RemovalContinued("r", tuple(members), more))
        harness.commit()
        commits += 1
        assert list(harness.store.scan()) == []

    assert commits == -(-(size + 1) // 100)
    assert any(isinstance(write, DeleteRemoval) for write in harness.writes)
    assert all(harness.store.procedure(name, removed=True) is None for name in names)
    assert harness.store.load().damage == []


def test_a_tree_whose_removal_is_not_stored_yet_is_not_brought_back_for_its_other_ids():
    harness = Kept(retention=Retention(seconds=10.0))
    names = family(harness)
    stored = harness.store.tree("r")

    harness.delete("r")
    harness.core.load(*stored)

    assert [harness.core.view(name) for name in names] == [None] * len(names)


def submit_again(harness: Kept, id: str) -> None:
    """As the commit pipeline does: who uses an id of a half removed tree has the rest of it removed first."""
    again = Submitted((msgspec.structs.replace(harness.new(id), fresh=False),), 8)
    for name in harness.core.missing(again, harness.now):
        root = harness.store.procedure(name, removed=True).root
        assert root in harness.core.removals
        members, _ = harness.store.removed_members(root, None)
        harness.handle(RemovalContinued(root, tuple(members), more=False))
    harness.handle(again)


def test_ids_of_a_large_tree_can_be_used_again_one_by_one_while_it_is_removed():
    harness = Kept(retention=Retention(seconds=10.0))
    *_, last = family(harness, "r", CHUNK + 1)
    assert harness.delete("r").value is True
    harness.commit()
    members, more = harness.store.removed_members("r", 10)
    harness.handle(RemovalContinued("r", tuple(members), more))

    submit_again(harness, last)
    submit_again(harness, "r")
    harness.commit()

    assert {head.id for head in harness.store.scan()} == {"r", last}
    assert harness.store.load().damage == []


def test_the_id_of_a_large_tree_whose_removal_is_not_stored_yet_can_be_used_again():
    harness = Kept(retention=Retention(seconds=10.0))
    family(harness, "r", CHUNK + 1)
    assert harness.delete("r").value is True

    submit_again(harness, "r")
    harness.commit()
    remove_in_parts(harness, "r", 100)

    assert harness.store.procedure("r").state is ProcedureState.RUNNABLE
    assert [head.id for head in harness.store.scan()] == ["r"]
    assert harness.store.load().damage == []


def test_half_removed_trees_are_judged_no_second_time_and_cannot_be_deleted_again():
    harness = Kept(retention=Retention(seconds=10.0))
    family(harness, "r", CHUNK + 1)
    stored = harness.tree("r")
    harness.expire(stored, at=20.0)

    assert harness.expire(stored, at=30.0) == []
    assert sum(isinstance(write, PutRemoval) for write in harness.writes) == 1
    assert harness.ask(DeleteRequested("r", 7, tree=stored)).value is False
    assert remove_in_parts(harness, "r", 1000) == 1


def test_memory_after_a_removal_is_what_a_restart_gives():
    harness = Kept(retention=Retention(seconds=10.0))
    family(harness, "r", 3)
    harness.run("a")
    harness.acknowledge("a")
    harness.commit()
    harness.expire(harness.tree("r"), at=20.0)

    again = Coordinator.rebuilt(harness.store.load(), harness.now)

    assert again.fingerprint() == harness.core.fingerprint()


@pytest.mark.parametrize("unknown", ["r", "r.0"])
def test_a_removal_of_what_is_not_being_removed_does_nothing(unknown):
    harness = Kept(retention=Retention())
    names = family(harness, "r", 1)

    decision = harness.handle(RemovalContinued(unknown, tuple(harness.store.tree("r")[0]), more=False))

    assert decision.writes == []
    assert [head.id for head in harness.store.scan()] == names


# ---------------------------------------------------------------- results that were taken
def take(harness: Kept, *roots: str) -> tuple[list[str], tuple[str, ...]]:
    """Who leaves when the program has taken these results, and who is said not to be at rest."""
    trees = tuple(harness.tree(root) for root in roots)
    decision = harness.handle(ResultsTaken(roots, 9, trees))
    (reply,) = (command for command in decision.commands if isinstance(command, Reply))
    return [write.record.id for write in decision.writes if isinstance(write, DeleteProcedure)], reply.value


def test_calls_leave_when_their_results_were_taken() -> None:
    harness = Kept(retention=Retention())
    harness.run("a")
    harness.run("b")
    harness.run("kept")

    assert take(harness, "a", "b") == (["a", "b"], ())
    harness.commit()

    assert [head.id for head in harness.store.scan()] == ["kept"]


def test_a_call_that_is_not_at_rest_is_named_and_stays() -> None:
    harness = Kept(retention=Retention())
    harness.submit(harness.new("runs"))
    harness.store.commit(harness.writes, harness.epoch)
    harness.stored = len(harness.writes)
    running = FinishedTree((harness.store.procedure("runs"),))

    decision = harness.handle(ResultsTaken(("runs",), 9, (running,)))

    assert [command.value for command in decision.commands if isinstance(command, Reply)] == [("runs",)]
    assert not any(isinstance(write, DeleteProcedure) for write in decision.writes)
    harness.answer("runs", Finished(state=b"1"))
    harness.commit()
    assert take(harness, "runs") == (["runs"], ())


def test_a_call_whose_end_is_not_stored_yet_is_named_and_stays() -> None:
    harness = Kept(retention=Retention())
    harness.submit(harness.new("ends"))
    harness.answer("ends", Finished(state=b"1"))
    harness.store.commit(harness.writes, harness.epoch)

    assert take(harness, "ends") == ([], ("ends",))
    harness.stored = len(harness.writes)
    harness.core.settle(harness.core.seal())
    assert take(harness, "ends") == (["ends"], ())


def test_a_result_that_is_taken_twice_is_removed_once() -> None:
    harness = Kept(retention=Retention())
    harness.run("a")
    tree = harness.tree("a")

    first, _ = take(harness, "a")
    second = harness.handle(ResultsTaken(("a",), 10, (tree,)))

    assert first == ["a"]
    assert not any(isinstance(write, DeleteProcedure) for write in second.writes)


def test_the_id_of_a_call_that_is_gone_may_be_used_anew() -> None:
    harness = Kept(retention=Retention())
    harness.run("a")
    take(harness, "a")
    harness.commit()

    harness.run("a", at=1.0)

    assert [(head.id, head.state) for head in harness.store.scan()] == [("a", ProcedureState.SUCCESS)]
