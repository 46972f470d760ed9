"""The lock table and the poisoned keys, as an operator sees and works them."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from actorproc import LockKey, Procedure, RetryPolicy, Status
from actorproc.errors import KeyPoisoned, ManagerStopped, ProcedureFailed
from actorproc.model.policies import LockMode
from actorproc.model.rows.records import LockRecord
from actorproc.model.rows.writes import PutLock
from actorproc.report.info import LockInfo
from actorproc.store.lmdb.store import LmdbStore

pytestmark = pytest.mark.processes


def pass_through(folder: str, name: str) -> None:
    """Say that this place was reached, then wait until the test opens the gate."""
    with Path(folder, name).open("a") as file:
        file.write("1\n")
    while not Path(folder, f"{name}.open").exists():
        time.sleep(0.005)


@dataclass
class Holder(Procedure):
    folder: str
    keys: list[str]

    def lock_keys(self) -> Iterable[LockKey]:
        return [LockKey.write(key) for key in self.keys]

    def execute(self, ctx):
        pass_through(self.folder, ctx.id)
        return Status.done("held")


@dataclass
class StepHolder(Holder):
    lock_scope = "step"


@dataclass
class Touch(Procedure):
    key: str
    write: bool = True

    def lock_keys(self) -> Iterable[LockKey]:
        return [LockKey.write(self.key) if self.write else LockKey.read(self.key)]

    def execute(self, ctx):
        return Status.done("touched")


@dataclass
class Parent(Procedure):
    folder: str
    asked: bool = False

    def execute(self, ctx):
        if not self.asked:
            self.asked = True
            return Status.suspended([Touch("inherited")])
        pass_through(self.folder, ctx.id)
        return Status.done()


@dataclass
class CannotUndo(Procedure):
    rollback_retry = RetryPolicy(max_attempts=1)
    key: str

    def lock_keys(self) -> Iterable[LockKey]:
        return [LockKey.write(self.key)]

    def execute(self, ctx):
        raise RuntimeError("half done")

    def rollback(self, ctx):
        raise RuntimeError("the other half is lost")


@dataclass
class Risky(Procedure):
    """Poisons its key before the risky second step; `ending` says how that step goes."""

    folder: str
    ending: str
    risky: bool = False

    def poison_keys(self) -> Iterable[str]:
        return ["disk/a"] if self.risky else []

    def execute(self, ctx):
        if not self.risky:
            self.risky = True
            return Status.executing()
        pass_through(self.folder, ctx.id)
        if self.ending == "fails":
            raise RuntimeError("nobody knows what the disk holds now")
        if self.ending == "calms down":
            self.risky = False
            self.ending = "done"
            return Status.executing()
        return Status.done()


def waiters(locks: list[LockInfo]) -> dict[str, list[tuple[str, str]]]:
    return {lock.path: [(waiter.procedure, waiter.mode) for waiter in lock.waiters] for lock in locks}


# ---------------------------------------------------------------- the lock table
def test_two_contended_keys_show_their_own_waiters_in_order(open_manager, gate, until):
    manager = open_manager(workers=2)
    manager.submit(Holder(gate.folder, ["cat/a"]), "h1")
    manager.submit(Holder(gate.folder, ["cat/b"]), "h2")
    gate.reached("h1")
    gate.reached("h2")

    handles = [
        manager.submit(Touch("cat/a"), "w1"),
        manager.submit(Touch("cat/b", write=False), "w2"),
        manager.submit(Touch("cat/a/below", write=False), "w3"),
        manager.submit(Touch("cat"), "w4"),
    ]
    locks = manager.locks()

    assert waiters(locks) == {
        "cat/a": [("w1", "write"), ("w3", "read"), ("w4", "write")],
        "cat/b": [("w2", "read"), ("w4", "write")],
    }
    first = next(lock for lock in locks if lock.path == "cat/a")
    assert (first.mode, first.holder, first.root, first.kind, first.reason) == ("write", "h1", "h1", "procedure", None)
    assert 0 <= first.age < 60
    assert abs(first.since + first.age - time.time()) < 60
    _, _, ticket = first.waiters[0]
    assert ticket < first.waiters[1].ticket < first.waiters[2].ticket
    assert json.loads(json.dumps(first.to_dict()))["waiters"][0] == {
        "procedure": "w1",
        "mode": "write",
        "ticket": ticket,
    }
    gate.open("h1")
    gate.open("h2")
    assert [handle.result(30) for handle in handles] == ["touched"] * 4
    assert manager.locks() == manager.dangling_locks() == []


def test_a_lock_says_whether_it_is_for_a_step_or_came_from_a_child(open_manager, gate):
    manager = open_manager(workers=2)
    manager.submit(StepHolder(gate.folder, ["step"]), "s")
    manager.submit(Parent(gate.folder), "p")
    gate.reached("s")
    gate.reached("p")

    kinds = {lock.path: (lock.holder, lock.kind) for lock in manager.locks()}

    assert kinds == {"step": ("s", "step"), "inherited": ("p", "inherited")}
    gate.open("s")
    gate.open("p")
    manager.get("s").result(30)
    manager.get("p").result(30)


def test_a_restart_keeps_holders_before_anything_runs(open_manager, gate, until):
    manager = open_manager()
    manager.submit(Holder(gate.folder, ["cat/a"]), "h")
    gate.reached("h")
    manager.submit(Touch("cat/a"), "w")
    manager.stop(drain=False)

    again = open_manager()  # the classes are not registered: nothing runs
    (lock,) = again.locks()
    late = again.submit(Touch("cat"), "late")  # its class is known now, and so that of "w" is

    assert (lock.path, lock.holder, lock.mode) == ("cat/a", "h", "write")
    until(lambda: waiters(again.locks())["cat/a"] == [("w", "write"), ("late", "write")])
    assert len(gate.arrivals("h")) == 1
    assert again.dangling_locks() == []
    gate.open("h")
    again.register(Holder)
    assert late.result(30) == again.get("w").result(30) == "touched"


def test_a_lock_of_nobody_is_reported_and_held(open_manager, tmp_path):
    manager = open_manager()
    manager.run(Touch("cat/a"), id="ended")
    assert manager.dangling_locks() == []
    manager.stop()
    store = LmdbStore(tmp_path / "state")
    epoch = store.own()
    rows = [
        LockRecord("cat/ghost", LockMode.WRITE, "ghost", "ghost", 100.0),
        LockRecord("cat/ended", LockMode.READ, "ended", "ended", 100.0),
    ]
    store.commit([PutLock(row) for row in rows], epoch)
    store.close()

    again = open_manager(procedures=[Touch])
    found = {lock.path: lock for lock in again.dangling_locks()}

    assert {path: lock.reason for path, lock in found.items()} == {
        "cat/ghost": "its holder ghost does not exist",
        "cat/ended": "its holder ended has ended SUCCESS",
    }
    assert (found["cat/ghost"].mode, found["cat/ghost"].since) == ("write", 100.0)
    assert again.submit(Touch("cat/ghost")).wait(0.2) is False
    assert [len(lock.waiters) for lock in again.locks() if lock.path == "cat/ghost"] == [1]
    assert again.run(Touch("cat/ended", write=False)) == "touched"


def test_the_lock_table_agrees_with_memory_while_procedures_come_and_go(open_manager):
    manager = open_manager(workers=2)
    handles = manager.submit_many([Touch(f"k/{number % 7}", write=number % 3 == 0) for number in range(200)])

    reports = []
    while not all(handle.wait(0) for handle in handles):
        reports += manager.dangling_locks()
        manager.locks()

    assert reports == []


# ---------------------------------------------------------------- poison
def test_a_key_poisoned_by_a_lost_rollback_refuses_work_until_an_operator_clears_it(open_manager, caplog):
    manager = open_manager()
    with pytest.raises(ProcedureFailed) as failure:
        manager.run(CannotUndo("cat/t"), id="bad")
    assert failure.value.state == "FAILED"
    manager.stop()

    manager = open_manager()
    (poison,) = manager.poisons()
    with pytest.raises(KeyPoisoned) as refused:
        manager.submit(Touch("cat/t/below"))

    assert (poison.path, poison.by, poison.root) == ("cat/t", "bad", "bad")
    assert "the other half is lost" in poison.reason
    assert abs(poison.at - time.time()) < 60
    assert json.loads(json.dumps(poison.to_dict()))["by"] == "bad"
    assert "poisoned by bad" in str(refused.value)
    assert 'manager.clear_poison("cat/t")' in str(refused.value)

    with caplog.at_level(logging.WARNING, logger="actorproc"):
        assert manager.clear_poison("cat/t", "the table was restored from a backup") is True
    assert manager.poisons() == []
    assert manager.run(Touch("cat/t/below")) == "touched"
    assert manager.clear_poison("cat/t") is False

    (line,) = [record for record in caplog.records if "clear" in record.getMessage()]
    assert line.levelno == logging.WARNING
    for part in ("cat/t", "bad", "the table was restored from a backup"):
        assert part in line.getMessage()
    manager.stop()
    again = open_manager()
    assert again.poisons() == []


@pytest.mark.parametrize("ending", ["succeeds", "calms down"])
def test_a_key_poisoned_for_a_risky_step_is_free_after_a_good_end(open_manager, gate, ending):
    manager = open_manager()
    handle = manager.submit(Risky(gate.folder, ending), "r")
    gate.reached("r")

    during = [(poison.path, poison.by) for poison in manager.poisons()]
    with pytest.raises(KeyPoisoned, match="poisoned by r"):
        manager.submit(Touch("disk"))
    gate.open("r")
    handle.result(30)

    assert during == [("disk/a", "r")]
    assert manager.poisons() == []
    assert manager.run(Touch("disk")) == "touched"


def test_a_key_poisoned_for_a_risky_step_stays_when_its_outcome_is_unknown(open_manager, gate):
    manager = open_manager()
    handle = manager.submit(Risky(gate.folder, "fails"), "r")
    gate.reached("r")
    manager.stop(drain=False)  # in the middle of the risky step
    again = open_manager(procedures=[Risky])
    assert [poison.by for poison in again.poisons()] == ["r"]
    gate.open("r")

    with pytest.raises(ProcedureFailed):
        again.get(handle.id).result(30)

    assert [poison.path for poison in again.poisons()] == ["disk/a"]
    assert again.clear_poison("disk/a") is True
    assert again.run(Touch("disk/a")) == "touched"


def test_what_can_be_no_key_is_not_cleared_but_refused(open_manager):
    manager = open_manager(workers=1)

    with pytest.raises(TypeError, match="a lock key is a string"):
        manager.clear_poison(3)
    with pytest.raises(ValueError, match="empty segment"):
        manager.clear_poison("a//b")
    with pytest.raises(TypeError, match="reason is a string"):
        manager.clear_poison("a", reason=3)
    manager.stop()
    for call in (manager.locks, manager.dangling_locks, manager.poisons, lambda: manager.clear_poison("a")):
        with pytest.raises(ManagerStopped):
            call()
