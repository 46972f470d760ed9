"""Catalogue: who holds what, in which order, and what a failure leaves closed."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from actorproc import LockKey, Procedure, RetryPolicy, Status
from actorproc.errors import KeyPoisoned, RetryLater
from actorproc.model.states import Phase
from actorproc.store.memory import MemoryStore
from tests.catalogue.kit import RecordingStore, crash_at_every_commit, ending_of, note, noted, on_threads, refused
from tests.kit.waiting import BOUND, wait_until

pytestmark = pytest.mark.processes

QUICK = RetryPolicy(max_attempts=2, base=0.001, jitter=0.0)


@dataclass
class Holder(Procedure):
    """Holds its keys until the gate named after it is open, or does not wait when there is no gate."""

    folder: str
    name: str
    writes: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    gated: bool = False

    def lock_keys(self):
        return [*map(LockKey.write, self.writes), *map(LockKey.read, self.reads)]

    def execute(self, ctx):
        note(self.folder, "enter", self.name)
        while self.gated and not Path(self.folder, f"{self.name}.open").exists():
            time.sleep(0.002)
        note(self.folder, "leave", self.name)
        return Status.done(self.name)


@dataclass
class Slow(Holder):
    """Two steps, with a pause in between in which nobody runs."""

    left: int = 1

    def execute(self, ctx):
        if self.left:
            self.left -= 1
            note(self.folder, "enter", self.name)
            return Status.sleep(0.003)
        note(self.folder, "leave", self.name)
        return Status.done(self.name)


@dataclass
class Risky(Procedure):
    """Poisons "t" before its second step. `how` says how that one goes."""

    folder: str
    how: str
    at: int = 0
    retry = QUICK

    def lock_keys(self):
        return [LockKey.write("t")]

    def poison_keys(self):
        return ["t"] if self.at == 1 else []

    def execute(self, ctx):
        if self.at == 0:
            self.at = 1
            return Status.executing()
        if self.how == "cleans":
            self.at = 2
            return Status.executing() if note(self.folder, "go on") == 1 else Status.done("clean")
        if self.how == "cleans, then fails":
            if note(self.folder, "fail") == 1:
                self.at = 2
                return Status.executing()
            raise ValueError("after the risk")
        if self.how == "asks for more time":
            raise RetryLater("busy", after=0.001)
        if self.how == "says so":
            return Status.poisoned(["t"], "told so")
        if self.how == "done":
            return Status.done("done")
        raise ValueError("in the middle of the risk")


class Undoable(Risky):
    def rollback(self, ctx):
        note(self.folder, "undo")


@dataclass
class Patient(Procedure):
    """Waits for a signal with its lock in hand."""

    def lock_keys(self):
        return [LockKey.write("t")]

    def execute(self, ctx):
        return Status.done("went on") if ctx.event is not None else Status.wait("go")


@dataclass
class Needs(Procedure):
    key: str = "t"

    def lock_keys(self):
        return [LockKey.read(self.key)]

    def execute(self, ctx):
        return Status.done("went")


def hold(manager, folder, name, **keys):
    return manager.submit(Holder(folder, name, **keys), name)


def test_hbase_52_the_lock_listing_shows_holder_and_mode_and_the_waiter_says_for_whom(open_manager, folder, until):
    """One writer holds, a reader waits behind it: the table names the first, the second names what it waits for."""
    manager = open_manager(workers=2)
    first = hold(manager, folder, "first", writes=("db/t",), reads=("conf",), gated=True)
    until(lambda: noted(folder) == ["enter first"])
    second = hold(manager, folder, "second", reads=("db",))

    held = {(lock.path, str(lock.mode), lock.holder) for lock in manager.locks()}
    waiters = {waiter.procedure for lock in manager.locks() for waiter in lock.waiters}
    info = second.info()
    Path(folder, "first.open").touch()

    assert held == {("db/t", "write", "first"), ("conf", "read", "first")}
    assert waiters == {"second"}
    assert info.phase is Phase.LOCKED_OUT
    assert "first" in info.reason
    assert [first.result(BOUND), second.result(BOUND)] == ["first", "second"]
    assert manager.locks() == []


def test_iotdb_91_procedures_that_want_one_key_run_in_the_order_of_their_submits(folder):
    """Twelve writers of one key and four workers: one after the other, first come first served."""
    names = [f"{number:02}" for number in range(12)]
    with on_threads(MemoryStore(), workers=4) as manager:
        handles = [hold(manager, folder, name, writes=("k",)) for name in names]
        assert [handle.result(BOUND) for handle in handles] == names

    assert noted(folder) == [line for name in names for line in (f"enter {name}", f"leave {name}")]


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_uncovered_locks_declared_in_any_order_neither_overlap_nor_dead_lock(folder, seed):
    """Forty procedures with random sets of read and write keys: all end, and no two conflict at any time."""
    random = Random(seed)
    keys = ["a", "a/b", "a/c", "d", "d/e"]
    wanted = {}
    for number in range(40):
        chosen = random.sample(keys, 2)
        split = random.randrange(3)
        wanted[f"{number}"] = (tuple(chosen[:split]), tuple(chosen[split:]))
    with on_threads(MemoryStore(), workers=4) as manager:
        handles = manager.submit_many(
            (name, Slow(folder, name, writes, reads)) for name, (writes, reads) in wanted.items()
        )
        assert [handle.result(BOUND) for handle in handles] == list(wanted)
        assert manager.locks() == []

    inside: set[str] = set()
    for line in noted(folder):
        way, name = line.split()
        if way == "leave":
            inside.discard(name)
            continue
        for other in inside:
            assert not conflict(wanted[name], wanted[other]), f"{name} and {other} at once"
        inside.add(name)
    assert not inside


def conflict(mine, theirs):
    """One of the two writes what the other needs, or something above or below it."""

    def meet(left, right):
        return any(
            a == b or a.startswith(f"{b}/") or b.startswith(f"{a}/") for a in left for b in (*right[0], *right[1])
        )

    return meet(mine[0], theirs) or meet(theirs[0], mine)


def test_uncovered_share_and_exclusive_of_one_key_do_not_lock_out_their_own_procedure(folder):
    """Greptime sorts shared keys before exclusive ones and waits for itself; here the stronger wish wins."""
    with on_threads(MemoryStore()) as manager:
        assert hold(manager, folder, "both", writes=("k",), reads=("k", "k/below")).result(BOUND) == "both"


def test_uncovered_a_half_done_holder_keeps_its_keys_across_a_restart(open_manager, folder):
    """After the restart nobody slips in before the procedure that held the key, though it stands still."""
    first = open_manager()
    first.submit(Patient(), "holder")
    wait_until(lambda: first.info("holder").phase is Phase.WAITING)
    first.submit(Needs("t/below"), "behind")
    first.stop()

    second = open_manager(procedures=[Patient, Needs])
    held = [(lock.path, lock.holder) for lock in second.locks()]
    phase = second.info("behind").phase
    second.signal("holder", "go")

    assert held == [("t", "holder")]
    assert phase is Phase.LOCKED_OUT
    assert second.get("holder").result(BOUND) == "went on"


def test_uncovered_locks_of_what_any_commit_leaves_are_free_in_the_end(folder):
    """A holder restarted from before each of its commits ends as it did, and its locks end with it."""

    def judge(manager, handle):
        return ending_of(handle), manager.locks()

    assert crash_at_every_commit(Slow(folder, "s", writes=("a/b", "c"), reads=("d",)), folder, judge) >= 2


@pytest.mark.parametrize("how", ["cleans", "done"])
def test_greptime_84_poison_that_was_set_is_gone_when_the_procedure_took_it_back_or_ended_well(folder, how):
    """Set before the risky step, taken back after it or by the good end: the key is free for others."""
    store = RecordingStore()
    with on_threads(store, [Risky, Needs]) as manager:
        assert ending_of(manager.submit(Risky(folder, how), "risky"))[0] == "SUCCESS"
        assert manager.run(Needs()) == "went"

    seen = [poison.path for image, _ in store.images for poison in image.load().poisons]
    assert "t" in seen, "it was set before the risky step"
    assert store.load().poisons == []


def test_greptime_84_poison_taken_back_before_a_failure_does_not_stay(folder):
    """The risk was over when it failed, so the key is free (it has no rollback that could have given up)."""
    with on_threads(MemoryStore(), [Risky, Needs]) as manager:
        assert ending_of(manager.submit(Risky(folder, "cleans, then fails"), "risky"))[0] == "FAILED"
        assert manager.run(Needs()) == "went"


@pytest.mark.parametrize("how", ["fails", "asks for more time", "says so"])
def test_greptime_84_poison_stays_when_the_procedure_fails_during_the_risk(folder, how):
    """By an error, by used-up retries, or because it says so: the key is refused, and the error says by whom."""
    with on_threads(MemoryStore(), [Risky, Needs]) as manager:
        assert ending_of(manager.submit(Risky(folder, how), "risky"))[0] == "FAILED"

        error = refused(lambda: manager.submit(Needs(), "refused"))

        assert isinstance(error, KeyPoisoned)
        assert "risky" in str(error)
        assert "refused" not in {info.id for info in manager.list()}
        assert manager.run(Needs("other")) == "went"


def test_greptime_84_poison_that_stayed_goes_when_an_operator_clears_it(open_manager, folder):
    """It outlives a restart, is listed with its author, and after the clearing the key serves everybody."""
    first = open_manager()
    first.submit(Risky(folder, "fails"), "risky").exception(BOUND)
    first.stop()
    second = open_manager(procedures=[Risky, Needs])
    listed = [(poison.path, poison.by) for poison in second.poisons()]

    assert second.clear_poison("t") is True

    assert listed == [("t", "risky")]
    assert second.poisons() == []
    assert second.run(Needs()) == "went"


def test_greptime_84_poison_is_gone_when_the_failed_procedure_was_undone(folder):
    """A rollback that worked leaves a sound object: its poison goes with the procedure."""
    with on_threads(MemoryStore(), [Undoable, Needs]) as manager:
        assert ending_of(manager.submit(Undoable(folder, "fails"), "risky"))[0] == "ROLLEDBACK"
        assert noted(folder) == ["undo"]
        assert manager.run(Needs()) == "went"


def test_greptime_84_who_waits_for_a_key_that_is_poisoned_meanwhile_fails(folder):
    """It was accepted while the key was only locked; it does not get a poisoned object."""
    with on_threads(MemoryStore(), [Risky, Needs], workers=2) as manager:
        manager.pause()
        handles = manager.submit_many([("risky", Risky(folder, "fails")), ("waits", Needs())])
        manager.resume()

        failure = handles[1].exception(BOUND)

    assert "poisoned by risky" in str(failure)


def test_greptime_84_poison_and_the_step_it_guards_are_one_commit_at_every_crash(folder):
    """Restarted from before each commit, the poison is there exactly when the procedure stands at its risky step."""
    store = RecordingStore()
    with on_threads(store, [Risky]) as manager:
        manager.submit(Risky(folder, "fails"), "risky").exception(BOUND)
    for image, _ in store.images:
        head = image.procedure("risky")
        if head is not None:
            assert bool(image.load().poisons) == (head.step >= 2)
            with on_threads(image.clone(), [Risky, Needs]) as manager:
                assert ending_of(manager.get("risky")) == ("FAILED", "RemoteError")
                assert isinstance(refused(lambda manager=manager: manager.submit(Needs())), KeyPoisoned)
