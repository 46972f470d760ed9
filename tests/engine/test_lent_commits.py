"""Small commits that the thread makes which reads the workers, while no worker has anything to say."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from actorproc import Procedure, Status, StorageUnavailable
from actorproc.store.lmdb import LmdbStore
from tests.kit.procedures import Part
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes

POOL, STORE = "actorproc-pool", "actorproc-store"
STEPS = 50


@dataclass
class Counts(Procedure):
    steps: int = STEPS
    done: int = 0

    def execute(self, ctx):
        self.done += 1
        return Status.done(self.done) if self.done == self.steps else Status.executing()


@dataclass
class Gated(Procedure):
    """One step, which stays at the gate."""

    folder: str

    def execute(self, ctx):
        with Path(self.folder, "gate").open("a") as file:
            file.write(f"{os.getpid()}\n")
        while not Path(self.folder, "gate.open").exists():
            time.sleep(0.005)
        return Status.done()


@dataclass
class Brings(Procedure):
    """As many children, and nothing else."""

    children: int

    def execute(self, ctx):
        return (
            Status.done(len(ctx.children)) if ctx.children else Status.suspended([Part() for _ in range(self.children)])
        )


class NotingStore(LmdbStore):
    """Notes which threads commit. Commits of the pool's thread wait while `held`, and the next one fails if `full`."""

    def __init__(self, path):
        super().__init__(path)
        self.threads = []
        self.sizes = {POOL: [], STORE: []}
        self.held = self.full = False
        self.waiting, self.free = threading.Event(), threading.Event()

    def commit(self, writes, epoch, batch=0):
        thread = threading.current_thread().name
        self.threads.append(thread)
        self.sizes.setdefault(thread, []).append(len(writes))
        if thread == POOL:
            if self.held:
                self.waiting.set()
                assert self.free.wait(60)
            if self.full:
                self.full = False
                raise StorageUnavailable("full")
        super().commit(writes, epoch, batch)


@pytest.fixture
def store(tmp_path):
    found = NotingStore(tmp_path / "state")
    yield found
    found.free.set()


def test_the_commits_of_a_lone_procedure_wake_no_thread(open_manager, store):
    manager = open_manager(workers=1, store=store)

    assert manager.run(Counts()) == STEPS

    assert POOL in store.threads
    assert set(store.threads) == {POOL, STORE}  # its submit came from a thread that lends nothing


def test_while_a_step_runs_the_thread_that_reads_its_worker_waits_for_no_disk(open_manager, store, gate):
    manager = open_manager(workers=2, store=store)
    inside = manager.submit(Gated(gate.folder))
    gate.reached("gate")
    store.threads.clear()

    assert manager.run(Counts()) == STEPS

    assert set(store.threads) == {STORE}
    gate.open("gate")
    inside.result(60)


def test_many_writes_are_left_to_the_thread_of_the_store(open_manager, store):
    manager = open_manager(workers=1, store=store)

    assert manager.run(Brings(20)) == 20

    assert max(store.sizes[POOL], default=0) < 20 < max(store.sizes[STORE])


def test_the_manager_hears_others_while_that_thread_waits_for_the_disk(open_manager, store):
    manager = open_manager(workers=1, store=store)
    store.held = True
    handle = manager.submit(Counts())
    assert store.waiting.wait(60)

    assert manager.metrics().workers_busy == 0
    later = []
    submits = threading.Thread(target=lambda: later.append(manager.submit(Part(7))))
    submits.start()
    assert manager.info(handle.id).step < STEPS
    assert not later
    store.free.set()

    submits.join(60)
    assert handle.result(60) == STEPS
    assert later[0].result(60) == 7


def test_one_that_fails_is_made_again_when_the_store_works(open_manager, store):
    manager = open_manager(workers=1, store=store)
    store.full = True

    assert manager.run(Counts()) == STEPS

    assert not store.full
    assert [step.number for step in manager.steps(next(iter(manager.list())).id)] == list(range(1, STEPS + 2))


def test_a_stop_waits_for_one(open_manager, store):
    manager = open_manager(workers=1, store=store)
    store.held = True
    handle = manager.submit(Counts())
    assert store.waiting.wait(60)
    stops = threading.Thread(target=manager.stop, kwargs={"drain": False, "timeout": 60})
    stops.start()
    wait_until(lambda: manager.health().status != "running")
    store.free.set()
    stops.join(60)
    assert not stops.is_alive()

    again = open_manager(workers=1, procedures=[Counts])
    assert again.get(handle.id).result(60) == STEPS
