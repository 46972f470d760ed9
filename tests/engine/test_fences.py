"""`ctx.fence`: a number that grows over attempts, steps, holders of a lock and owners of the store."""

from __future__ import annotations

import itertools
import os
import signal
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from actorproc import Limits, LockKey, Procedure, RetryPolicy, Saga, Status, step
from actorproc.api.replay.replayer import Replayer, registry_of
from actorproc.config import Config
from actorproc.errors import ProcedureFailed, StorageUnavailable
from actorproc.model.ids import fence_of
from actorproc.model.rows.writes import PutProcedure
from actorproc.store.memory import MemoryStore
from actorproc.testing import InlineManager

pytestmark = pytest.mark.processes

FAST = Config(commit_backoff=0.01, commit_backoff_cap=0.05)


def note(file, ctx):
    """One line for each attempt: who, step, attempt, fence."""
    with Path(file).open("a") as notes:
        notes.write(f"{ctx.id} {ctx.step} {ctx.attempt} {ctx.fence}\n")


def noted(file):
    return [
        (id, int(number), int(attempt), int(fence))
        for id, number, attempt, fence in map(str.split, file.read_text().splitlines())
    ]


def fences(file, id=None):
    return [fence for name, _, _, fence in noted(file) if id in (None, name)]


def grows(numbers):
    return all(earlier < later for earlier, later in itertools.pairwise(numbers))


@dataclass
class Writer(Procedure):
    """Has the lock for its life, and fails as often as it is told to in each step."""

    file: str
    failures: int = 0
    left: int = 2
    retry = RetryPolicy(max_attempts=5, base=0.001, retry_on=(ConnectionError,))

    def lock_keys(self):
        return [LockKey.write("outside")]

    def execute(self, ctx):
        note(self.file, ctx)
        if ctx.attempt <= self.failures:
            raise ConnectionError("not yet")
        self.left -= 1
        return Status.executing() if self.left else Status.done(ctx.fence)


@dataclass
class Loop(Procedure):
    file: str
    left: int
    seen: list = field(default_factory=list)

    def execute(self, ctx):
        self.seen.append(ctx.fence)
        self.left -= 1
        return Status.executing() if self.left else Status.done(self.seen)


@dataclass
class Deadly(Procedure):
    """Its first two attempts kill their worker."""

    file: str

    def execute(self, ctx):
        note(self.file, ctx)
        if ctx.attempt < 3:
            os.kill(os.getpid(), signal.SIGKILL)
        return Status.done(ctx.fence)


class Trip(Saga):
    file: str

    @step
    def first(self, ctx):
        note(self.file, ctx)

    @first.undo
    def take_back(self, ctx):
        note(self.file, ctx)

    @step
    def second(self, ctx):
        note(self.file, ctx)
        raise ValueError("no")

    @second.undo
    def take_back_second(self, ctx):
        note(self.file, ctx)


@dataclass
class Beside(Procedure):
    file: str
    limits = Limits(threads=4)

    def execute(self, ctx):
        note(self.file, ctx)
        return Status.done(ctx.fence) if ctx.step == 3 else Status.executing()


@dataclass
class Silent(Procedure):
    """Does not ask."""

    left: int = 2

    def execute(self, ctx):
        self.left -= 1
        return Status.executing() if self.left else Status.done()


@dataclass
class Keeps(Procedure):
    """Has its fences in its state."""

    seen: list = field(default_factory=list)

    def execute(self, ctx):
        self.seen.append(ctx.fence)
        return Status.executing() if ctx.step < 3 else Status.done(self.seen)


@dataclass
class InOneGo(Procedure):
    seen: list = field(default_factory=list)

    def execute(self, ctx):
        self.seen.append(ctx.fence)
        return Status.executing(persist=ctx.step == 2) if ctx.step < 4 else Status.done(self.seen)


TYPES = [Writer, Loop, Deadly, Trip, Beside, Silent, Keeps, InOneGo]


def test_two_procedures_in_turn_under_one_lock_of_which_the_first_has_three_attempts(open_manager, tmp_path):
    manager, file = open_manager(procedures=TYPES), tmp_path / "notes"

    first = manager.submit(Writer(str(file), failures=2, left=1), "first")
    second = manager.submit(Writer(str(file), left=2), "second")

    assert (first.result(60), second.result(60)) == (fences(file)[2], fences(file)[4])
    assert [(id, number, attempt) for id, number, attempt, _ in noted(file)] == [
        ("first", 1, 1),
        ("first", 1, 2),
        ("first", 1, 3),
        ("second", 1, 1),
        ("second", 2, 1),
    ]
    assert grows(fences(file))


def test_fences_grow_over_the_owners_of_a_store(open_manager, tmp_path):
    ends = []
    for life in range(3):
        manager = open_manager(procedures=TYPES)
        seen = manager.run(Loop("", 5), id=f"loop-{life}")
        ends.append((seen[0], seen[-1]))
        manager.stop()

    assert grows([fence for pair in ends for fence in pair])
    assert [fence >> 40 for fence, _ in ends] == [1, 2, 3]


def test_steps_that_follow_at_once_and_those_that_wait_in_a_worker_have_fences_of_their_own(open_manager):
    manager = open_manager(procedures=TYPES, workers=1)

    handles = manager.submit_many(Loop("", 20) for _ in range(50))

    for handle in handles:
        seen = handle.result(60)
        assert len(seen) == 20
        assert grows(seen)


def test_an_attempt_after_the_death_of_a_worker_has_a_greater_fence(open_manager, tmp_path):
    manager, file = open_manager(procedures=TYPES), tmp_path / "notes"

    assert manager.run(Deadly(str(file))) == fences(file)[2]

    assert grows(fences(file))


def test_undo_steps_have_fences_too(open_manager, tmp_path):
    manager, file = open_manager(procedures=TYPES), tmp_path / "notes"

    with pytest.raises(ProcedureFailed):
        manager.run(Trip(str(file)))

    assert len(fences(file)) == 4
    assert grows(fences(file))


def test_steps_on_threads_of_one_worker_have_fences(open_manager, tmp_path):
    manager, file = open_manager(procedures=TYPES, workers=1), tmp_path / "notes"

    handles = manager.submit_many((f"beside-{number}", Beside(str(file))) for number in range(4))
    for handle in handles:
        handle.result(60)

    assert all(grows(fences(file, handle.id)) and len(fences(file, handle.id)) == 3 for handle in handles)


def test_steps_that_run_in_one_go_share_a_fence(open_manager):
    seen = open_manager(procedures=TYPES).run(InOneGo())

    assert seen[0] == seen[1] < seen[2] == seen[3]


def test_the_testing_kit_without_processes_has_fences(tmp_path):
    with InlineManager(procedures=TYPES) as manager:
        first, second = manager.run(Keeps()), manager.run(Keeps())

    assert grows(first + second)
    assert {fence >> 40 for fence in first + second} == {1}


class LateStore(MemoryStore):
    """Each third commit is applied, and then reported as failed."""

    def __init__(self):
        super().__init__()
        self.commits = itertools.count(1)

    def commit(self, writes, epoch, batch=0):
        super().commit(writes, epoch, batch)
        if next(self.commits) % 3 == 0:
            raise StorageUnavailable("the disk did not say whether it took it")


@pytest.mark.parametrize("applied", [True, False])
def test_fences_grow_over_commits_that_fail(open_manager, applied):
    class LostStore(LateStore):
        def commit(self, writes, epoch, batch=0):
            if next(self.commits) % 3 == 0:
                raise StorageUnavailable("the disk is full")
            MemoryStore.commit(self, writes, epoch, batch)

    manager = open_manager(store=LateStore() if applied else LostStore(), config=FAST, procedures=TYPES)

    assert grows(manager.run(Loop("", 12)))


def test_a_fence_is_the_number_of_the_commit_that_handed_the_attempt_out(open_manager):
    class Numbered(MemoryStore):
        def __init__(self):
            super().__init__()
            self.handed_out = {}

        def commit(self, writes, epoch, batch=0):
            super().commit(writes, epoch, batch)
            for write in writes:
                if type(write) is PutProcedure and write.record.attempt:
                    self.handed_out.setdefault((write.record.step, write.record.attempt), fence_of(epoch, batch))

    store = Numbered()
    manager = open_manager(store=store, procedures=TYPES)

    assert manager.run(Keeps()) == [store.handed_out[number, 1] for number in (1, 2, 3)]


# ---------------------------------------------------------------- replays
def test_a_replay_sees_the_fences_of_then_and_only_they_are_stored_that_were_asked_for(open_manager):
    store = MemoryStore()
    manager = open_manager(store=store, procedures=TYPES)
    seen = manager.run(Keeps(), id="keeps")
    manager.run(Silent(), id="silent")

    assert [record.fence for record in store.steps("keeps")] == [0, *seen]
    assert [record.fence for record in store.steps("silent")] == [0, 0, 0]
    replayer = Replayer(store, registry_of([Keeps], None), quiet=True)
    for number in (1, 2, 3):
        result = replayer.replay("keeps", number)
        assert (result.verdict, list(result.differences)) == ("same", [])
