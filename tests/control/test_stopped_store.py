"""A store that no manager runs on takes an operator's verbs: durable at once, carried out by the next manager."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import threading
import time
from dataclasses import dataclass

import pytest

import actorproc
from actorproc import LockKey, Procedure, RetryPolicy, Saga, Status, step
from actorproc.errors import (
    EngineError,
    KeyPoisoned,
    ManagerStopped,
    NotAllowed,
    ProcedureAborted,
    StorageUnavailable,
    StoreInUse,
    UnknownProcedure,
)
from tests.kit.managers import LIGHT

BOUND = 30.0

pytestmark = pytest.mark.processes


@dataclass
class Waits(Procedure):
    """Waits for an event; undone by doing nothing."""

    event: str = "go"

    def execute(self, ctx):
        return Status.wait(self.event) if ctx.event is None else Status.done(ctx.event)

    def rollback(self, ctx):
        return None


class Stubborn(Waits):
    """Lets nobody abort it."""

    def abort(self, ctx):
        return False


class Half(Saga):
    """Fails, and cannot be undone before a file exists."""

    mended: str

    def lock_keys(self):
        return [LockKey.write("catalog/half")]

    @step
    def first(self, ctx):
        pass

    @first.undo
    def unfirst(self, ctx):
        if not os.path.exists(self.mended):  # noqa: PTH110 - in a worker
            raise RuntimeError("the undo fails")

    @step
    def second(self, ctx):
        raise ValueError("the second step fails")


Half.rollback_retry = RetryPolicy(max_attempts=1)


@dataclass
class Parent(Procedure):
    """Waits for two children of given ids."""

    started: bool = False

    def execute(self, ctx):
        if self.started:
            return Status.done(sorted(ctx.children))
        self.started = True
        return Status.suspended([(f"{ctx.id}.{n}", Waits("never")) for n in range(2)])


@dataclass
class Add(Procedure):
    a: int
    b: int

    def execute(self, ctx):
        return Status.done(self.a + self.b)


CLASSES = (Waits, Stubborn, Half, Parent, Add)


def until(condition):
    deadline = time.monotonic() + BOUND
    while not (value := condition()):
        assert time.monotonic() < deadline
        time.sleep(0.005)
    return value


@pytest.fixture
def manager(tmp_path):
    """Makes managers on one store; the store is stopped when the ``with`` ends."""
    return lambda: actorproc.ProcedureManager(tmp_path / "state", procedures=CLASSES, workers=1, **LIGHT)


@pytest.fixture
def stopped(tmp_path):
    from actorproc.api.stopped import StoppedStore  # not in workers, which import this module

    return lambda: StoppedStore(tmp_path / "state")


def waiting(manager, *names):
    """Until all of these, which may have to be submitted first, stand still."""
    until(lambda: {info.id for info in manager.list(phase=("waiting", "suspended"))} >= set(names))


# ---------------------------------------------------------------- each verb
def test_an_abort_is_kept_and_the_class_is_asked_by_the_next_manager(manager, stopped):
    with manager() as first:
        first.submit(Waits(), "polite")
        first.submit(Stubborn(), "stubborn")
        waiting(first, "polite", "stubborn")
    with stopped() as store:
        assert store.abort("polite", reason="not needed") is True
        assert store.abort("stubborn") is True
        assert not store.has_ended("polite")
    with manager() as second:
        assert isinstance(second.get("polite").exception(BOUND), ProcedureAborted)
        assert [(row.verb, row.reason) for row in second.audit("polite")] == [("abort", "not needed")]
        assert second.info("stubborn").phase == "waiting"
        second.signal("stubborn", "cash")
        assert second.get("stubborn").result(BOUND) == "cash"


def test_what_has_not_begun_is_aborted_at_once_and_by_force_nobody_is_asked(manager, stopped):
    with manager() as first:
        first.submit(Stubborn(), "stubborn")
        waiting(first, "stubborn")
        first.pause()
        first.submit(Add(1, 1), "new")
    with stopped() as store:
        assert store.abort("new")
        assert store.has_ended("new")
        assert store.abort("new") is False
        assert store.abort("stubborn", force=True)
        assert store.resume() is True
    with manager() as second:
        assert second.get("stubborn").exception(BOUND).state == "ROLLEDBACK"
        assert second.info("new").state == "ROLLEDBACK"


def test_a_failed_rollback_is_retried_and_its_poison_goes(manager, stopped, tmp_path):
    with manager() as first:
        first.submit(Half(str(tmp_path / "mended")), "half").wait(BOUND)
        assert [poison.path for poison in first.poisons()] == ["catalog/half"]
    (tmp_path / "mended").touch()
    with stopped() as store:
        store.retry("half", reason="mended")
    with manager() as second:
        assert second.get("half").exception(BOUND).state == "ROLLEDBACK"
        assert second.poisons() == []


def test_poison_is_cleared_and_refuses_until_then(manager, stopped):
    with manager() as first:
        first.submit(Half("/nowhere"), "half").wait(BOUND)
    with stopped() as store:
        with pytest.raises(KeyPoisoned):
            store.submit(Half("/nowhere"), "other")
        assert store.clear_poison("catalog/half", reason="looked at it") is True
        assert store.clear_poison("catalog/half") is False
        store.submit(Half("/nowhere"), "other")
    with manager() as second:
        assert second.get("other").wait(BOUND)
        assert [(row.verb, row.reason) for row in second.audit()] == [("clear-poison", "looked at it")]


def test_a_bypassed_child_lets_its_parent_go_on(manager, stopped):
    with manager() as first:
        first.submit(Parent(), "p")
        waiting(first, "p", "p.0", "p.1")
    with stopped() as store:
        with pytest.raises(NotAllowed, match="descendants"):
            store.bypass("p")
        assert store.bypass("p.0")
        assert store.signal("p.1", 1, reason="by hand")
        assert store.signal("p.0") is False
    with manager() as second:
        assert second.get("p").result(BOUND) == ["p.0", "p.1"]
        assert [row.verb for row in second.audit("p.1")] == ["signal"]


def test_pauses_outlive_the_start_and_resumes_end_them(manager, stopped):
    with manager() as first:
        first.submit(Waits(), "one")
        waiting(first, "one")
    with stopped() as store:
        assert store.pause("one", reason="audit")
        assert store.signal("one", "x")
    with manager() as second:
        assert second.info("one").phase == "paused"
    with stopped() as store:
        assert store.resume("one")
        assert store.resume("one") is False
    with manager() as third:
        assert third.get("one").result(BOUND) == "x"


def test_a_rollback_is_begun_and_finished_by_the_next_manager(manager, stopped):
    with manager() as first:
        first.submit(Waits(), "one")
        waiting(first, "one")
    with stopped() as store:
        assert store.rollback("one", reason="wrong data")
        assert not store.has_ended("one")
    with manager() as second:
        assert second.get("one").exception(BOUND).state == "ROLLEDBACK"


def test_results_are_acknowledged_and_deleted_with_trees_of_any_size(manager, stopped, monkeypatch):
    monkeypatch.setattr("actorproc.core.lifecycle.removal.CHUNK", 1)
    monkeypatch.setattr("actorproc.control.stopped.CHUNK", 1)
    monkeypatch.setattr("actorproc.engine.housekeeping.retention_sweeper.CHUNK", 1)
    with manager() as first:
        first.run(Add(1, 1), id="sum")
        first.submit(Parent(), "p")
        waiting(first, "p.0", "p.1")
        first.signal("p.0", 1)
        first.signal("p.1", 1)
        first.get("p").result(BOUND)
    with stopped() as store:
        assert store.acknowledge("sum", reason="taken")
        assert store.acknowledge("nobody") is False
        assert store.delete("p", "not needed")
        assert store.delete("p") is False
        assert store.compact().before > 0
    with manager() as second:
        assert [info.id for info in second.list()] == ["sum"]
        assert {(row.verb, row.detail) for row in second.audit()} == {("acknowledge", "sum"), ("delete", "p")}
        assert second.run(Add(2, 2), id="p") == 4


def test_a_submit_is_stored_and_waits_for_a_manager_that_knows_the_class(manager, stopped, tmp_path):
    with manager():
        pass
    with stopped() as store:
        handle = store.submit(Add(20, 22), "sum", tags=["later"])
        assert store.submit(Add(20, 22), "sum").id == handle.id == "sum"
        with pytest.raises(ManagerStopped):
            handle.result(BOUND)
    with actorproc.ProcedureManager(tmp_path / "state", workers=1) as ignorant:
        assert ignorant.info("sum").phase == "parked"
    with manager() as second:
        assert second.get("sum").result(BOUND) == 42


# ---------------------------------------------------------------- whose it is, and when it breaks
def test_nothing_is_made_where_there_is_no_store(tmp_path, stopped):
    with pytest.raises(EngineError, match="no store"):
        stopped().open()
    assert not (tmp_path / "state").exists()


def test_a_running_manager_keeps_its_store(manager, stopped):
    with manager():
        store = stopped()
        with pytest.raises(StoreInUse, match="in use"):
            store.open()


def test_what_nobody_knows_is_unknown_and_what_must_run_needs_a_manager(manager, stopped):
    with manager():
        pass
    with stopped() as store:
        with pytest.raises(UnknownProcedure):
            store.abort("nobody")
        with pytest.raises(ManagerStopped, match="no manager runs"):
            store.workers()
        with pytest.raises(ManagerStopped, match="no manager runs"):
            store.watch()
    with pytest.raises(EngineError, match="with"):
        store.abort("nobody")


def test_a_run_needs_a_manager_and_is_refused_before_anything_is_stored(manager, stopped):
    with manager():
        pass
    with stopped() as store:
        with pytest.raises(ManagerStopped, match="only a running one has 'run'"):
            store.run(Add(20, 22), "sum")

        assert store.list() == []


def test_a_verb_whose_commit_fails_is_not_said_to_be_done(manager, stopped, monkeypatch):
    with manager() as first:
        first.submit(Waits(), "one")
        waiting(first, "one")

    def full(*_):
        raise StorageUnavailable("the disk is full")

    with stopped() as store, monkeypatch.context() as patch:
        patch.setattr("actorproc.store.lmdb.store.LmdbStore.commit", full)
        with pytest.raises(StorageUnavailable):
            store.pause("one", reason="lost")
    with manager() as second:
        assert second.info("one").phase == "waiting"
        assert second.audit("one") == []


def test_after_a_commit_that_failed_every_verb_says_so_and_none_waits(manager, stopped, monkeypatch):
    with manager() as first:
        first.submit_many([("one", Waits()), ("two", Waits())])
        waiting(first, "one")
        waiting(first, "two")

    def full(*_):
        raise StorageUnavailable("the disk is full")

    said = []

    def pause(store, name):
        try:
            store.pause(name)
        except StorageUnavailable as error:
            said.append((name, str(error)))

    with stopped() as store, monkeypatch.context() as patch:
        patch.setattr("actorproc.store.lmdb.store.LmdbStore.commit", full)
        for name in ("one", "two"):
            verb = threading.Thread(target=pause, args=(store, name), daemon=True)
            verb.start()
            verb.join(BOUND)

    assert said == [("one", "the disk is full"), ("two", "the disk is full")]


HOLDS = """
import sys, time
from actorproc.api.stopped import StoppedStore
with StoppedStore(sys.argv[1]) as store:
    print("has it", flush=True)
    sys.stdin.read()
"""


def test_a_manager_waits_for_a_command_that_has_the_store_for_a_moment(manager, tmp_path):
    with manager():
        pass
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, tmp_path / "state"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as command:
        assert command.stdout.readline() == b"has it\n"
        threading.Timer(0.3, command.stdin.close).start()
        with manager() as second:
            assert second.run(Add(1, 2)) == 3


def test_a_command_that_stays_is_named(manager, tmp_path, monkeypatch):
    monkeypatch.setattr("actorproc.store.lmdb.owner_lock._PATIENCE", {"command": 0.1, "": 0.1})
    with manager():
        pass
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, tmp_path / "state"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as command:
        assert command.stdout.readline() == b"has it\n"
        with pytest.raises(StoreInUse, match=f"a command .process {command.pid}"):
            manager().start()
        command.stdin.close()


# ---------------------------------------------------------------- a full disk
@pytest.mark.parametrize("length", [60_000, 100], ids=["long", "short"])
def test_what_is_removed_makes_room_where_the_file_cannot_grow(manager, stopped, tmp_path, length):
    long = "x" * length
    data = tmp_path / "state" / "data.mdb"
    with manager() as first:
        for n in range(8):
            first.run(Add(long, long), f"p{n}")
    size = data.stat().st_size
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        with stopped() as store:
            assert all(store.delete(f"p{n}") for n in range(8))
            assert not any(store.delete(f"p{n}") for n in range(8))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    with manager() as second:
        assert second.run(Add(long, long)) == 2 * long
    assert data.stat().st_size <= size


def test_what_is_stored_is_looked_at_inside_too_and_what_needs_a_manager_says_so(manager, stopped):
    with manager() as first:
        first.submit(Waits(), "one")
        waiting(first, "one")
        assert first.run(Add("a", "b"), "two") == "ab"

    with stopped() as store:
        assert store.info("one").phase == "waiting"
        assert [info.id for info in store.list()] == ["one", "two"]
        assert len(store.steps("two")) == 2
        assert store.tree("one").info.id == "one"
        assert store.locks() == store.poisons() == store.signals() == store.logs("one") == []
        assert store.why("one").says
        assert store.get("one").info().id == "one"
        store.abort("one", reason="by hand")
        assert [row.verb for row in store.audit("one")] == ["abort"]
        assert store.info("one").aborting
        for call in (store.workers, store.metrics, store.watch, lambda: store.get("one").result(1)):
            with pytest.raises(ManagerStopped, match="start one"):
                call()
        with pytest.raises(UnknownProcedure):
            store.info("never")
    with pytest.raises(EngineError):
        store.info("one")


def test_a_commit_that_failed_and_is_on_disk_all_the_same_is_not_made_twice(manager, stopped, monkeypatch):
    with manager() as first:
        first.submit(Waits(), "one")
        waiting(first, "one")
    from actorproc.store.lmdb.store import LmdbStore  # not in workers

    commit, asked = LmdbStore.commit, []

    def late(store, writes, epoch, batch=0):
        asked.append(batch)
        commit(store, writes, epoch, batch)
        if len(asked) == 1:
            raise StorageUnavailable("the disk failed at the last moment")

    with stopped() as store, monkeypatch.context() as patch:
        patch.setattr("actorproc.store.lmdb.store.LmdbStore.commit", late)
        store.signal("one", 7)
        assert asked == [1]
        store.publish("other", 8)
        assert asked == [1, 2]

    with manager() as second:
        assert second.get("one").result(BOUND) == 7
