"""A manager whose store another owner has taken over: it ends in order, and stores nothing more."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from pathlib import Path

import pytest

from actorproc import Procedure, Status
from actorproc.config import Config
from actorproc.errors import (
    Deposed,
    InternalError,
    ManagerStopped,
    StorageUnavailable,
    StoreDamaged,
    StoreFormat,
    UnknownProcedure,
)
from actorproc.store.memory import MemoryStore
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes

FAST = Config(commit_backoff=0.01, commit_backoff_cap=0.05)


@dataclass
class Patient(Procedure):
    """Runs until its file is there."""

    file: str

    def execute(self, ctx):
        note = Path(self.file + ".tmp")
        note.write_text(str(os.getpid()))
        note.replace(self.file + ".begun")
        wait_until(Path(self.file).exists)
        return Status.done(ctx.attempt)


@dataclass
class Quick(Procedure):
    number: int

    def execute(self, ctx):
        return Status.done(self.number)


class Taken(MemoryStore):
    """Lets another owner take it over, and says so itself when it is told to."""

    def __init__(self):
        super().__init__()
        self.error = None
        self.told = None
        self.at_reopen = None
        self.at_reopened = threading.Event()
        self.after = []

    def when_deposed(self, told):
        self.told = told

    def commit(self, writes, epoch, batch=0):
        if self.error is not None:
            self.after.append(batch)
            raise self.error
        super().commit(writes, epoch, batch)

    def reopen(self):
        if self.at_reopen is not None:
            self.at_reopened.set()
            raise self.at_reopen
        super().reopen()


def _at_a_commit(store: Taken) -> None:
    store.error = Deposed("another manager (epoch 2) has taken the store over")


def _at_reopening(store: Taken) -> None:
    store.error = StorageUnavailable("the connection was lost")
    store.at_reopen = Deposed("another manager (epoch 2) has taken the store over")


def _told(store: Taken) -> None:
    assert store.told is not None
    store.told(Deposed("another manager (epoch 2) has taken the store over"))


def _told_in_an_outage(store: Taken) -> None:
    store.error = store.at_reopen = StorageUnavailable("the connection was lost")
    store.at_reopened.wait(20)
    _told(store)


def _replaced(store: Taken) -> None:
    store.error = StorageUnavailable("an input/output error")
    store.at_reopen = StoreFormat("another manager (epoch 2) has taken the store over")


def _damaged(store: Taken) -> None:
    store.error = StorageUnavailable("an input/output error")
    store.at_reopen = StoreDamaged("another manager (epoch 2) has taken the store over")


WAYS = [_at_a_commit, _at_reopening, _told, _told_in_an_outage, _replaced, _damaged]


@pytest.fixture
def stopped_threads():
    """Names of the engine's threads, of which none is to be left."""
    return lambda: [
        thread.name for thread in threading.enumerate() if thread.name.startswith(("actorproc-", "ManagerActor"))
    ]


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__.strip("_"))
def test_a_manager_that_lost_its_store_ends_in_order_and_tells_all_that_wait(
    open_manager, until, tmp_path, caplog, stopped_threads, way
):
    store, fatal = Taken(), []
    manager = open_manager(store=store, config=FAST, procedures=[Patient, Quick], on_fatal=fatal.append)
    file = str(tmp_path / "running")
    running = manager.submit(Patient(file), "running")
    until(Path(file + ".begun").exists)
    pid = int(Path(file + ".begun").read_text())
    rows = len(store.ids(""))

    if way is _told_in_an_outage:
        Path(file).touch()  # whose answer is the commit that fails
    way(store)
    with pytest.raises(ManagerStopped, match=r"lost its store and ended: another manager .epoch 2. has taken"):
        manager.run(Quick(1), id="later")

    with pytest.raises(ManagerStopped, match="another manager"):
        running.result(60)
    with pytest.raises(ManagerStopped):
        manager.submit(Quick(2))
    until(lambda: fatal)
    assert not isinstance(fatal[0], InternalError)
    until(lambda: not Path(f"/proc/{pid}").exists())  # its step would go on beside that of the new owner
    until(lambda: stopped_threads() == [])
    health = manager.health()
    assert (health.status, len(health.problems), "another manager" in health.problems[0]) == ("stopped", 1, True)
    assert len(store.ids("")) == rows
    assert [record for record in caplog.records if record.levelname == "CRITICAL"] == []
    manager.stop()  # which is no error


def test_the_next_engine_is_handed_the_waits_for_ends(open_manager, until, tmp_path):
    store, told = Taken(), []
    manager = open_manager(store=store, config=FAST, procedures=[Patient, Quick])
    manager.submit(Patient(str(tmp_path / "running")), "running")
    tree = manager._tree
    end = tree.watch("running")
    until(lambda: "running" in tree._replies.ends.names())

    tree.on_deposed = told.append
    _told(store)

    until(lambda: told)
    assert [(id, waiter) for id, _, waiter in tree.left_waiting()] == [("running", end)]
    assert not end.done()


def test_a_stop_in_the_middle_of_that_is_bounded(open_manager, until):
    store = Taken()
    manager = open_manager(store=store, config=FAST, procedures=[Quick])
    stopping = threading.Thread(target=manager.stop)

    _told(store)
    stopping.start()
    stopping.join(20)

    assert not stopping.is_alive()


def test_a_manager_on_lmdb_whose_epoch_is_gone_ends_in_order_too(open_manager, until, tmp_path):
    fatal = []
    manager = open_manager(config=FAST, procedures=[Quick], on_fatal=fatal.append)
    assert manager.run(Quick(1)) == 1
    store = manager._tree.store
    log = store._log._opened()
    # As a newer owner does, before it reads the log to its end.
    manager._tree._store_port._committer.run(lambda: [segment.forbid() for segment in log.opened()]).result(20)

    with pytest.raises(ManagerStopped, match="a newer owner has taken the store"):
        manager.run(Quick(2), id="never")
    until(lambda: [type(error) for error in fatal] == [Deposed])
    manager.stop()

    again = open_manager(procedures=[Quick])
    assert again.run(Quick(3)) == 3
    with pytest.raises(UnknownProcedure):
        again.get("never").result(20)
