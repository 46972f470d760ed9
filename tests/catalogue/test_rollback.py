"""Catalogue: undoing, step by step, whatever happens meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import pytest

from actorproc import LockKey, Procedure, RetryPolicy, Saga, StateMachineProcedure, Status, step
from actorproc.errors import KeyPoisoned, RetryLater
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
    refused,
)
from tests.kit.waiting import BOUND

pytestmark = pytest.mark.processes

QUICK = RetryPolicy(max_attempts=3, base=0.001, jitter=0.0, retry_on=(Exception, RetryLater))


class Move(Enum):
    ONE = 1
    TWO = 2
    THREE = 3


@dataclass
class Machine(StateMachineProcedure):
    """Three states, the last of which fails after its work. `how` says what goes wrong in the undo."""

    folder: str
    how: str = "ok"
    initial_state = Move.ONE
    rollback_retry = QUICK

    def execute_from_state(self, ctx, state):
        note(self.folder, "do", state.name)
        if state is Move.THREE:
            raise ValueError("no fourth")
        return Move(state.value + 1)

    def rollback_state(self, ctx, state):
        if self.how == "dies":
            die_once(self.folder, "undo", state.name)
            return
        times = note(self.folder, "undo", state.name)
        if state is Move.TWO and (self.how == "never" or (self.how == "twice" and times <= 2)):
            raise OSError(f"attempt {times}")


@dataclass
class FailingLeaf(Procedure):
    folder: str

    def execute(self, ctx):
        note(self.folder, "do", "LEAF")
        raise ValueError("leaf")

    def rollback(self, ctx):
        note(self.folder, "undo", "LEAF")


@dataclass
class ChildLast(StateMachineProcedure):
    """Three states; the last one adds a child that fails."""

    folder: str
    initial_state = Move.ONE
    uses = (FailingLeaf,)

    def execute_from_state(self, ctx, state):
        note(self.folder, "do", state.name)
        if state is Move.THREE:
            self.add_child(FailingLeaf(self.folder))
            return None
        return Move(state.value + 1)

    def rollback_state(self, ctx, state):
        note(self.folder, "undo", state.name)


class Three(Saga):
    """FATE's three operations; the last fails half-way."""

    folder: str

    @step
    def op1(self, ctx):
        note(self.folder, "do", "op1")

    @op1.undo
    def un1(self, ctx):
        note(self.folder, "undo", "op1")

    @step
    def op2(self, ctx):
        note(self.folder, "do", "op2")

    @op2.undo
    def un2(self, ctx):
        note(self.folder, "undo", "op2")

    @step
    def op3(self, ctx):
        note(self.folder, "do", "op3")
        raise ValueError("half done")

    @op3.undo
    def un3(self, ctx):
        note(self.folder, "undo", "op3")


@dataclass
class Busy(Procedure):
    """Asks to be tried later, `times` times."""

    folder: str
    times: int
    undo_fails: bool = False
    retry = QUICK
    rollback_retry = QUICK

    def lock_keys(self):
        return [LockKey.write("shelf"), LockKey.read("room")]

    def execute(self, ctx):
        if note(self.folder, "do") <= self.times:
            raise RetryLater("busy", after=0.001)
        return Status.done(ctx.attempt)

    def rollback(self, ctx):
        note(self.folder, "undo")
        if self.undo_fails:
            raise OSError("stuck")


@dataclass
class NeedsShelf(Procedure):
    mode: str = "write"

    def lock_keys(self):
        return [LockKey.write("shelf/left") if self.mode == "write" else LockKey.read("room")]

    def execute(self, ctx):
        return Status.done("went")


@dataclass
class TwoPartUndo(Procedure):
    """Fails in its fourth step; its undo takes two steps."""

    folder: str
    at: int = 0
    undone: int = 0

    def execute(self, ctx):
        self.at += 1
        note(self.folder, "do", self.at)
        if self.at == 4:
            raise ValueError("fourth")
        return Status.executing()

    def rollback(self, ctx):
        self.undone += 1
        note(self.folder, "undo", self.undone)
        return Status.executing() if self.undone < 2 else None


def undos(folder):
    return [line.removeprefix("undo ") for line in noted(folder) if line.startswith("undo")]


def judged(manager, handle):
    return ending_of(handle), len(manager.steps(handle.id))


def test_hbase_6_states_are_undone_in_reverse_with_a_crash_before_each_record(folder):
    """The host dies before every record, forward and back: each state is done and undone exactly twice."""
    store, _ = live_through_crashes(Machine(folder))

    assert str(store.procedure("root").state) == "ROLLEDBACK"
    assert noted(folder) == [
        line for way in ("do ONE", "do TWO", "do THREE", "undo THREE", "undo TWO", "undo ONE") for line in (way, way)
    ]


@pytest.mark.parametrize("how", ["ok", "twice"])
def test_hbase_6_states_are_undone_in_reverse_from_what_any_commit_leaves(folder, how):
    """The same machine restarted from before each commit; the step log has the same length in every history."""
    if how == "ok":
        assert crash_at_every_commit(Machine(folder), folder, judged) >= 6
    else:
        assert crash_at_every_commit(Three(folder), folder, judged) >= 6


def test_hbase_6_every_undo_kills_its_worker_once(open_manager, folder):
    """Real processes: a killed undo is taken up again at the same state, and none is left out."""
    manager = open_manager()

    failure = manager.submit(Machine(folder, "dies"), "root").exception(BOUND)

    assert failure.state == "ROLLEDBACK"
    assert undos(folder) == ["THREE", "THREE", "TWO", "TWO", "ONE", "ONE"]


def test_hbase_14_a_rollback_that_throws_twice_still_completes(open_manager, folder):
    """It is retried by its own policy, at the state where it threw."""
    manager = open_manager()

    failure = manager.submit(Machine(folder, "twice"), "root").exception(BOUND)

    assert failure.state == "ROLLEDBACK"
    assert undos(folder) == ["THREE", "TWO", "TWO", "TWO", "ONE"]


@pytest.mark.parametrize("crashing", [False, True])
def test_hbase_19_a_child_that_fails_on_the_last_state_and_the_count_of_undos(folder, crashing):
    """Three states and the child are undone once each, and twice each when the host dies before each record."""
    if crashing:
        live_through_crashes(ChildLast(folder))
    else:
        with on_threads(RecordingStore(), [ChildLast, FailingLeaf]) as manager:
            assert ending_of(manager.submit(ChildLast(folder), "root"))[0] == "ROLLEDBACK"

    found = undos(folder)
    states = [name for name in found if name != "LEAF"]
    assert len(states) == (6 if crashing else 3)
    assert len(found) == (8 if crashing else 4)
    assert firsts(found) == ["LEAF", "THREE", "TWO", "ONE"]


def test_hbase_20_a_position_is_given_up_only_after_its_undo(folder):
    """HBase counts down even when the undo raises. Here every unit is gone after success, none after giving up."""
    good, bad = RecordingStore(), RecordingStore()
    with on_threads(good, [Machine]) as manager:
        assert ending_of(manager.submit(Machine(folder, "twice"), "root"))[0] == "ROLLEDBACK"
    with on_threads(bad, [Machine]) as manager:
        assert ending_of(manager.submit(Machine(folder, "never"), "root"))[0] == "FAILED"

    assert good.procedure("root").undone == 3
    assert good.load().units == []
    assert bad.procedure("root").undone == 1, "THREE is undone, TWO and ONE are still to be"


def test_hbase_26_an_interrupted_rollback_is_not_skipped(folder):
    """Where HBase loses the interrupted state, the next life begins with it, at every commit of a two-part undo."""
    assert crash_at_every_commit(TwoPartUndo(folder), folder, judged) >= 6

    store, _ = live_through_crashes(TwoPartUndo(folder))
    assert undos(folder) == ["1", "1", "2", "2"]
    assert str(store.procedure("root").state) == "ROLLEDBACK"


def test_accumulo_61_the_failing_operation_is_undone_too(open_manager, folder):
    """An exception in the third operation undoes the third, the second and the first."""
    manager = open_manager()

    failure = manager.submit(Three(folder), "root").exception(BOUND)

    assert failure.step == 3
    assert noted(folder) == ["do op1", "do op2", "do op3", "undo op3", "undo op2", "undo op1"]


def test_greptime_83_retry_later_is_tried_again_and_succeeds(open_manager, folder):
    """Two refusals are within the policy of three attempts: the third attempt gives the output."""
    assert open_manager().run(Busy(folder, times=2)) == 3


def test_greptime_83_when_the_retries_are_used_up_rollback_is_called_once(open_manager, folder):
    """Three attempts, one rollback, locks free again, nothing poisoned."""
    manager = open_manager()

    failure = manager.submit(Busy(folder, times=99), "root").exception(BOUND)

    assert failure.state == "ROLLEDBACK"
    assert noted(folder) == ["do"] * 3 + ["undo"]
    assert manager.locks() == []
    assert manager.run(NeedsShelf()) == "went"


def test_greptime_83_a_rollback_that_gives_up_leaves_a_failure_and_its_record(open_manager, folder):
    """Three rollback attempts, then FAILED with the rollback's own error as the closing record."""
    manager = open_manager()

    failure = manager.submit(Busy(folder, times=99, undo_fails=True), "root").exception(BOUND)

    assert failure.state == "FAILED"
    assert noted(folder) == ["do"] * 3 + ["undo"] * 3
    closing = manager.steps("root")[-1]
    assert (closing.kind.name, closing.outcome) == ("ROLLBACK", "failed")
    assert "stuck" in closing.error.message


def test_greptime_83_after_a_rollback_gave_up_its_write_locks_are_refused_also_after_a_restart(open_manager, folder):
    """The half-undone shelf is closed to everybody, what was only read is not; a restart changes nothing."""
    first = open_manager()
    first.submit(Busy(folder, times=99, undo_fails=True), "root").exception(BOUND)
    for manager in (first, None):
        if manager is None:
            first.stop()
            manager = open_manager(procedures=[Busy])  # noqa: PLW2901 - the same questions to the next life
        error = refused(lambda manager=manager: manager.submit(NeedsShelf()))
        assert isinstance(error, KeyPoisoned)
        assert "shelf" in str(error)
        assert "root" in str(error)
        assert manager.run(NeedsShelf("read")) == "went"
