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
from tests.core.stage import Stage, boom

DAY = 86400.0


class Kept(Stage):
    """A stage with a store, whose trees leave memory as soon as they have finished."""

    def __init__(self, *, retention: Retention, workers: int = 1, **traits: object) -> None:
        super().__init__(workers, **traits)
        self.store = MemoryStore()
        self.epoch = self.store.own()
        self.core._state.retention = retention
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
        return Coordinator.restore(self.store.load(), self.now, retention=self.core._state.retention)[0]


def family(stage: Kept, root: str = "r", children: int = 2, *, at: float = 0.0) -> list[str]:
    """Run a root with children to its end; the ids, root first."""
    stage.now = at
    stage.submit(stage.new(root))
    names = [f"{root}.{n}" for n in range(children)]
    stage.answer(root, Suspended(state=b"1", children=tuple(child(name) for name in names)))
    for name in names:
        stage.answer(name, Finished(state=b"1"))
    stage.answer(root, Finished(state=b"2"))
    stage.commit()
    return [root, *names]


def child(id: str) -> NewProcedure:
    return NewProcedure(id=id, fresh=True, type_name="T", state=b"0", digest=b"d")


def failed_with_poison(stage: Kept, root: str = "bad") -> None:
    """A root whose rollback gave up: its write lock is poisoned, its undo unit is left."""
    stage.submit(stage.new(root, locks=(LockKey.write("x"),), unit=""))
    stage.answer(root, boom())
    while root in stage.inbox:
        stage.answer(root, boom("cannot undo"))
    stage.commit()
    assert stage.store.procedure(root).state is ProcedureState.FAILED
    assert [poison.path for poison in stage.store.poisons()] == ["x"]


# ---------------------------------------------------------------------- by age, by count
def test_a_root_leaves_when_it_is_old_enough_and_no_earlier():
    stage = Kept(retention=Retention(seconds=10.0))
    stage.run("a", at=100.0)

    assert stage.expire(stage.tree("a"), at=109.9) == []
    assert stage.expire(stage.tree("a"), at=110.0) == ["a"]
    assert list(stage.store.scan()) == stage.store.steps("a") == []


def test_a_tree_leaves_as_a_whole_in_one_decision_the_root_last():
    stage = Kept(retention=Retention(seconds=10.0))
    names = family(stage)

    gone = stage.expire(stage.tree("r"), at=20.0)

    assert gone == list(reversed(names))
    assert stage.store.children("r") == list(stage.store.scan()) == []
    assert stage.store.load().damage == []


def test_without_an_age_nothing_leaves_for_its_age_and_what_is_too_many_leaves():
    stage = Kept(retention=Retention(seconds=None, count=1))
    stage.run("a")
    stage.run("b")

    assert stage.expire(stage.tree("a"), stage.tree("b"), at=1e9) == []
    assert stage.expire(stage.tree("a", surplus=True), stage.tree("b"), at=1e9) == ["a"]


def test_a_tree_with_members_left_behind_leaves_only_when_they_have_ended():
    stage = Kept(retention=Retention(seconds=10.0), workers=2)
    stage.submit(stage.new("r"))
    stage.answer(
        "r", Suspended(state=b"1", children=(child("left"), child("quick")), wait="any", on_parent_end="leave")
    )
    stage.answer("quick", Finished(state=b"1"))
    stage.answer("r", Finished(state=b"2"))
    stage.commit()
    stored = stage.store.finished_tree("r", CHUNK)

    assert stored.members[0].left_open
    assert stage.expire(stored, at=1000.0) == []
    assert "left children behind" in str(stage.ask(DeleteRequested("r", 7, tree=stored)).error)

    stage.answer("left", Finished(state=b"1"))
    stage.commit()
    assert set(stage.expire(stage.tree("r"), at=2000.0)) == {"r", "left", "quick"}


# ---------------------------------------------------------------------- what an operator has to look at
def test_a_failed_root_that_owns_poison_stays_unless_its_own_limit_says_so():
    stage = Kept(retention=Retention(seconds=10.0), rollback_supported=True)
    failed_with_poison(stage)

    assert stage.expire(stage.tree("bad", surplus=True), at=DAY) == []

    stage.core._state.retention = Retention(seconds=10.0, failed_seconds=2 * DAY)
    assert stage.expire(stage.tree("bad"), at=DAY) == []
    assert stage.expire(stage.tree("bad"), at=2 * DAY + stage.now) == ["bad"]
    assert [poison.path for poison in stage.store.poisons()] == ["x"]


def test_a_failed_root_that_had_nothing_to_undo_is_as_any_other():
    stage = Kept(retention=Retention(seconds=10.0))
    stage.submit(stage.new("a"))
    stage.answer("a", boom())
    stage.commit()

    assert stage.store.procedure("a").state is ProcedureState.FAILED
    assert stage.expire(stage.tree("a"), at=10.0) == ["a"]


def test_acknowledging_a_failure_does_not_remove_what_an_operator_must_see():
    stage = Kept(retention=Retention(acknowledged_seconds=0.0), rollback_supported=True)
    failed_with_poison(stage)

    assert stage.acknowledge("bad").value is True
    assert stage.expire(stage.tree("bad"), at=DAY) == []


# ---------------------------------------------------------------------- acknowledge
def test_an_acknowledged_result_leaves_early_also_after_a_restart():
    stage = Kept(retention=Retention(seconds=DAY, acknowledged_seconds=60.0))
    stage.run("a", at=100.0)
    stage.now = 200.0
    assert stage.acknowledge("a").value is True
    assert stage.acknowledge("a").value is True
    assert sum(isinstance(write, PutAcknowledgement) for write in stage.writes) == 1
    stage.commit()

    stage.core = stage.restored()

    assert list(stage.core.acknowledged(199.0)) == []
    assert list(stage.core.acknowledged(200.0)) == ["a"]
    assert stage.expire(stage.tree("a"), at=259.0) == []
    assert stage.expire(stage.tree("a"), at=260.0) == ["a"]
    assert stage.store.load().acknowledgements == []


def test_only_the_result_of_a_finished_root_can_be_acknowledged():
    stage = Kept(retention=Retention(), workers=2)
    stage.submit(stage.new("busy"))
    stage.commit()
    family(stage, "r", 1)

    assert isinstance(stage.acknowledge("busy").error, NotAllowed)
    assert "root r" in str(stage.acknowledge("r.0").error)
    assert stage.acknowledge("nobody").value is False


# ---------------------------------------------------------------------- delete
def test_deleting_frees_the_id_in_the_same_batch():
    stage = Kept(retention=Retention())
    stage.run("a")

    assert stage.delete("a").value is True
    # Not stored yet: what the store has under this id is void.
    assert stage.core.missing(submitted(stage, "a"), stage.now) == ()
    assert stage.submit(stage.new("a")).value == ("a",)
    stage.answer("a", Finished(state=b"1"))
    stage.commit()

    assert stage.store.procedure("a").seq == 2
    assert stage.store.load().damage == []


def submitted(stage: Kept, id: str) -> Submitted:
    return Submitted((msgspec.structs.replace(stage.new(id), fresh=False),), 1)


def test_what_is_deleted_twice_or_unknown_is_false_and_what_has_not_finished_is_refused():
    stage = Kept(retention=Retention(), workers=2)
    stage.run("a")
    stage.submit(stage.new("busy"))
    stage.commit()
    family(stage, "r", 1)

    stored = stage.store.finished_tree("a", CHUNK)
    assert stage.delete("a").value is True
    assert stage.ask(DeleteRequested("a", 7, tree=stored)).value is False
    assert stage.delete("nobody").value is False
    assert isinstance(stage.delete("busy").error, NotAllowed)
    only = FinishedTree((stage.store.procedure("r.0"),))
    assert "root r" in str(stage.ask(DeleteRequested("r.0", 7, tree=only)).error)


def test_what_owns_poison_is_deleted_by_force_only_and_its_key_stays_poisoned():
    stage = Kept(retention=Retention(), rollback_supported=True)
    failed_with_poison(stage)

    refused = stage.delete("bad").error
    assert isinstance(refused, NotAllowed)
    assert "'x'" in str(refused)
    assert "clear_poison" in str(refused)
    assert stage.delete("bad", force=True).value is True
    stage.commit()

    assert stage.store.procedure("bad") is None
    assert [poison.path for poison in stage.restored()._state.poisons.values()] == ["x"]


def test_a_tree_that_is_in_memory_is_not_removed_by_the_clock():
    stage = Kept(retention=Retention(seconds=1.0))
    stage.run("a")
    stored = stage.tree("a")
    stage.core.load(*stage.store.tree("a"))

    assert stage.expire(stored, at=DAY) == []
    assert stage.delete("a").value is True


def test_one_that_cannot_leave_keeps_none_of_those_behind_it():
    stage = Kept(retention=Retention(seconds=1.0))
    stage.run("a")
    stage.run("b")
    trees = (stage.tree("a"), stage.tree("b"))
    stage.core.load(*stage.store.tree("a"))

    assert stage.expire(*trees, at=DAY) == ["b"]


def test_a_root_that_runs_again_is_not_acknowledged_any_more():
    stage = Kept(retention=Retention())
    stage.run("a")
    assert stage.acknowledge("a").value is True
    stage.commit()
    stage.core.load(*stage.store.tree("a"))
    record = stage.core.view("a")

    record.state, record.finished_at = ProcedureState.RUNNABLE, None  # as `retry` does
    stage.core._state.touch(record)
    stage.handle(Acknowledged("nobody", 1))

    assert any(isinstance(write, DeleteAcknowledgement) for write in stage.writes)
    assert list(stage.core.acknowledged(1e9)) == []


# ---------------------------------------------------------------------- large trees
def remove_in_parts(stage: Kept, root: str, part: int) -> int:
    """Go on with a removal until it is over; the number of commits."""
    commits = 0
    while stage.core.removals:
        members, more = stage.store.removed_members(root, part)
        stage.handle(RemovalContinued(root, tuple(members), more))
        stage.commit()
        commits += 1
    return commits


def test_a_large_tree_is_hidden_first_and_then_leaves_in_bounded_commits_across_any_crash():
    stage = Kept(retention=Retention(seconds=10.0), workers=1)
    size = CHUNK + 40
    names = family(stage, "r", size)

    assert stage.expire(stage.tree("r"), at=20.0) == []
    assert any(isinstance(write, PutRemoval) for write in stage.writes)
    assert stage.store.procedure("r") is stage.store.procedure(names[-1]) is None

    commits = 0
    while stage.core.removals:
        stage.core = stage.restored()  # the host dies between any two commits
        members, more = stage.store.removed_members("r", 100)
        stage.handle(RemovalContinued("r", tuple(members), more))
        stage.commit()
        commits += 1
        assert list(stage.store.scan()) == []

    assert commits == -(-(size + 1) // 100)
    assert any(isinstance(write, DeleteRemoval) for write in stage.writes)
    assert all(stage.store.procedure(name, removed=True) is None for name in names)
    assert stage.store.load().damage == []


def test_a_tree_whose_removal_is_not_stored_yet_is_not_brought_back_for_its_other_ids():
    stage = Kept(retention=Retention(seconds=10.0))
    names = family(stage)
    stored = stage.store.tree("r")

    stage.delete("r")
    stage.core.load(*stored)

    assert [stage.core.view(name) for name in names] == [None] * len(names)


def submit_again(stage: Kept, id: str) -> None:
    """As the ring does: who uses an id of a half removed tree has the rest of it removed first."""
    again = Submitted((msgspec.structs.replace(stage.new(id), fresh=False),), 8)
    for name in stage.core.missing(again, stage.now):
        root = stage.store.procedure(name, removed=True).root
        assert root in stage.core.removals
        members, _ = stage.store.removed_members(root, None)
        stage.handle(RemovalContinued(root, tuple(members), more=False))
    stage.handle(again)


def test_ids_of_a_large_tree_can_be_used_again_one_by_one_while_it_is_removed():
    stage = Kept(retention=Retention(seconds=10.0))
    *_, last = family(stage, "r", CHUNK + 1)
    assert stage.delete("r").value is True
    stage.commit()
    members, more = stage.store.removed_members("r", 10)
    stage.handle(RemovalContinued("r", tuple(members), more))

    submit_again(stage, last)
    submit_again(stage, "r")
    stage.commit()

    assert {head.id for head in stage.store.scan()} == {"r", last}
    assert stage.store.load().damage == []


def test_the_id_of_a_large_tree_whose_removal_is_not_stored_yet_can_be_used_again():
    stage = Kept(retention=Retention(seconds=10.0))
    family(stage, "r", CHUNK + 1)
    assert stage.delete("r").value is True

    submit_again(stage, "r")
    stage.commit()
    remove_in_parts(stage, "r", 100)

    assert stage.store.procedure("r").state is ProcedureState.RUNNABLE
    assert [head.id for head in stage.store.scan()] == ["r"]
    assert stage.store.load().damage == []


def test_half_removed_trees_are_judged_no_second_time_and_cannot_be_deleted_again():
    stage = Kept(retention=Retention(seconds=10.0))
    family(stage, "r", CHUNK + 1)
    stored = stage.tree("r")
    stage.expire(stored, at=20.0)

    assert stage.expire(stored, at=30.0) == []
    assert sum(isinstance(write, PutRemoval) for write in stage.writes) == 1
    assert stage.ask(DeleteRequested("r", 7, tree=stored)).value is False
    assert remove_in_parts(stage, "r", 1000) == 1


def test_memory_after_a_removal_is_what_a_restart_gives():
    stage = Kept(retention=Retention(seconds=10.0))
    family(stage, "r", 3)
    stage.run("a")
    stage.acknowledge("a")
    stage.commit()
    stage.expire(stage.tree("r"), at=20.0)

    again = Coordinator.rebuilt(stage.store.load(), stage.now)

    assert again.fingerprint() == stage.core.fingerprint()


@pytest.mark.parametrize("unknown", ["r", "r.0"])
def test_a_removal_of_what_is_not_being_removed_does_nothing(unknown):
    stage = Kept(retention=Retention())
    names = family(stage, "r", 1)

    decision = stage.handle(RemovalContinued(unknown, tuple(stage.store.tree("r")[0]), more=False))

    assert decision.writes == []
    assert [head.id for head in stage.store.scan()] == names


# ---------------------------------------------------------------- results that were taken
def take(stage: Kept, *roots: str) -> tuple[list[str], tuple[str, ...]]:
    """Who leaves when the program has taken these results, and who is said not to be at rest."""
    trees = tuple(stage.tree(root) for root in roots)
    decision = stage.handle(ResultsTaken(roots, 9, trees))
    (reply,) = (command for command in decision.commands if isinstance(command, Reply))
    return [write.record.id for write in decision.writes if isinstance(write, DeleteProcedure)], reply.value


def test_calls_leave_when_their_results_were_taken() -> None:
    stage = Kept(retention=Retention())
    stage.run("a")
    stage.run("b")
    stage.run("kept")

    assert take(stage, "a", "b") == (["a", "b"], ())
    stage.commit()

    assert [head.id for head in stage.store.scan()] == ["kept"]


def test_a_call_that_is_not_at_rest_is_named_and_stays() -> None:
    stage = Kept(retention=Retention())
    stage.submit(stage.new("runs"))
    stage.store.commit(stage.writes, stage.epoch)
    stage.stored = len(stage.writes)
    running = FinishedTree((stage.store.procedure("runs"),))

    decision = stage.handle(ResultsTaken(("runs",), 9, (running,)))

    assert [command.value for command in decision.commands if isinstance(command, Reply)] == [("runs",)]
    assert not any(isinstance(write, DeleteProcedure) for write in decision.writes)
    stage.answer("runs", Finished(state=b"1"))
    stage.commit()
    assert take(stage, "runs") == (["runs"], ())


def test_a_call_whose_end_is_not_stored_yet_is_named_and_stays() -> None:
    stage = Kept(retention=Retention())
    stage.submit(stage.new("ends"))
    stage.answer("ends", Finished(state=b"1"))
    stage.store.commit(stage.writes, stage.epoch)

    assert take(stage, "ends") == ([], ("ends",))
    stage.stored = len(stage.writes)
    stage.core.settle(stage.core.seal())
    assert take(stage, "ends") == (["ends"], ())


def test_a_result_that_is_taken_twice_is_removed_once() -> None:
    stage = Kept(retention=Retention())
    stage.run("a")
    tree = stage.tree("a")

    first, _ = take(stage, "a")
    second = stage.handle(ResultsTaken(("a",), 10, (tree,)))

    assert first == ["a"]
    assert not any(isinstance(write, DeleteProcedure) for write in second.writes)


def test_the_id_of_a_call_that_is_gone_may_be_used_anew() -> None:
    stage = Kept(retention=Retention())
    stage.run("a")
    take(stage, "a")
    stage.commit()

    stage.run("a", at=1.0)

    assert [(head.id, head.state) for head in stage.store.scan()] == [("a", ProcedureState.SUCCESS)]
