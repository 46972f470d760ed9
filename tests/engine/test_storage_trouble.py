"""A disk that refuses commits for a while: nothing acknowledged is lost, and the engine goes on by itself."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import shutil
import signal
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest

import actorproc
from actorproc import Limits, Procedure, Status
from actorproc.config import Config
from actorproc.engine.messages import StorageTrouble
from actorproc.engine.pipeline.store_outage import StoreOutage
from actorproc.errors import InternalError, OutcomeUnknown, ProcedureFailed, StorageUnavailable
from actorproc.model.states import TERMINAL
from actorproc.store.memory import MemoryStore
from actorproc.testing.inline import VirtualClock
from tests.kit.stores import FullDisk
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes

FAST = Config(commit_backoff=0.01, commit_backoff_cap=0.05)


class CrowdedStore(FullDisk):
    """A full disk that lets the small commit of a reopening pass, and no other."""

    def reopen(self):
        self.reopened += 1


class BrokenStore(MemoryStore):
    def procedure(self, id, **options):
        raise ZeroDivisionError("a bug of ours")


@dataclass
class Count(Procedure):
    upto: int
    seen: list = field(default_factory=list)

    def execute(self, ctx):
        self.seen.append(ctx.step)
        return Status.done(self.seen) if len(self.seen) >= self.upto else Status.executing()


@dataclass
class Threaded(Procedure):
    """Runs beside others until its file is there; then it ends, or its thread crashes."""

    file: str
    crashes: bool = False
    limits = Limits(threads=2, crashes=1)

    def execute(self, ctx):
        Path(self.file + ".begun").touch()
        wait_until(Path(self.file).exists)
        if self.crashes:
            ctypes.string_at(0)
        return Status.done()


@dataclass
class Waits(Procedure):
    """Says in which process it is, and ends when it may."""

    file: str

    def execute(self, ctx):
        note = Path(self.file + ".tmp")
        note.write_text(str(os.getpid()))
        note.replace(f"{self.file}.{ctx.attempt}")
        wait_until(Path(self.file).exists)
        return Status.done(ctx.attempt)


@pytest.fixture
def store():
    return FullDisk()


@pytest.mark.parametrize("late", [False, True], ids=["not-written", "written-but-reported-failed"])
def test_running_procedures_go_on_after_the_trouble_with_nothing_lost(open_manager, store, until, late):
    manager = open_manager(store=store, config=FAST)
    store.late, store.room = late, 3
    handles = manager.submit_many(Count(upto=200) for _ in range(8))

    until(lambda: store.refused)
    until(lambda: manager.health().status == "storage-trouble")
    assert not any(handle.done() for handle in handles)
    store.full = False

    assert [handle.result(60) for handle in handles] == [list(range(1, 201))] * 8
    until(lambda: manager.health().ok)
    assert store.reopened >= 1


def test_submits_are_refused_while_the_store_is_in_trouble(open_manager, store, until):
    manager = open_manager(store=store, config=FAST)
    store.full = True
    answers = []

    def submit():
        try:
            answers.append(manager.submit(Count(upto=1), "first"))
        except StorageUnavailable as error:
            answers.append(error)

    first = threading.Thread(target=submit)
    first.start()
    until(lambda: store.refused)
    until(lambda: manager.health().status == "storage-trouble")

    with pytest.raises(StorageUnavailable, match="no space"):
        manager.submit(Count(upto=1))
    assert answers == []  # it was in the batch that failed, so it waits
    store.full = False
    first.join(30)
    assert answers[0].result(30) == [1]


def test_a_run_with_a_time_limit_ends_in_the_trouble_too_and_its_procedure_may_come_later(open_manager, store, until):
    manager = open_manager(store=store, config=FAST)
    store.full = True
    ended = []

    def run():
        with pytest.raises(TimeoutError, match="was not stored within"):
            manager.run(Count(upto=1), "late", timeout=0.2)
        ended.append(True)

    running = threading.Thread(target=run, daemon=True)
    running.start()
    running.join(60)
    store.full = False

    assert ended == [True]
    until(lambda: manager.health().ok)
    assert manager.get("late").result(30) == [1]


def test_a_submit_in_a_failed_commit_ends_as_unknown_when_the_manager_stops(open_manager, store, until):
    manager = open_manager(store=store, config=FAST)
    store.full = True
    errors = []

    def submit():
        try:
            manager.submit(Count(upto=1), "first")
        except OutcomeUnknown as error:
            errors.append(error)

    waiting = threading.Thread(target=submit)
    waiting.start()
    until(lambda: store.refused)
    until(lambda: manager.health().status == "storage-trouble")
    manager.stop(timeout=1)
    waiting.join(30)

    assert len(errors) == 1


def test_a_stop_without_a_time_limit_does_not_wait_for_a_store_that_stays_in_trouble(open_manager, store, until):
    config = dataclasses.replace(FAST, stop_timeout=0.2)
    manager = open_manager(store=store, config=config)
    store.full = True
    errors = []

    def submit():
        try:
            manager.submit(Count(upto=1))
        except OutcomeUnknown as error:
            errors.append(error)

    waiting = threading.Thread(target=submit)
    waiting.start()
    until(lambda: manager.health().status == "storage-trouble")
    stopping = threading.Thread(target=manager.stop, daemon=True)
    stopping.start()
    stopping.join(60)
    waiting.join(60)

    assert not stopping.is_alive()
    assert len(errors) == 1


def test_a_bug_breaks_the_engine_loudly_and_nobody_waits_for_ever(until):
    fatal = []
    manager = actorproc.ProcedureManager("unused", workers=1, store=BrokenStore(), on_fatal=fatal.append).start()
    try:
        with pytest.raises(InternalError, match="a bug of ours"):
            manager.submit(Count(upto=1), "named")

        until(lambda: fatal)
        assert manager.health().status == "broken"
        with pytest.raises(InternalError):
            manager.submit(Count(upto=1))
    finally:
        manager.stop()


def test_a_crash_after_a_step_that_began_and_ended_in_the_trouble_is_charged_to_the_right_one(
    open_manager, store, until, tmp_path
):
    manager = open_manager(store=store, config=FAST, workers=1)
    pid = manager.workers()[0].pid
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    os.kill(pid, signal.SIGSTOP)
    try:
        handle = manager.submit(Threaded(first))
        until(lambda: manager.health().busy == 1)
        store.full = True
        submitted = []
        submit = threading.Thread(target=lambda: submitted.append(manager.submit(Threaded(second, crashes=True))))
        submit.start()
        until(lambda: manager.health().status == "storage-trouble")
    finally:
        os.kill(pid, signal.SIGCONT)
    until(Path(first + ".begun").exists)
    Path(first).touch()
    until(lambda: manager.health().busy == 0)  # its answer was heard, and waits for the store

    store.full = False
    handle.result(30)
    submit.join(30)
    until(Path(second + ".begun").exists)
    Path(second).touch()
    with pytest.raises(ProcedureFailed, match="SIGSEGV"):
        submitted[0].result(30)
    assert manager.health().status != "broken"


def test_a_resize_in_the_trouble_takes_place_when_it_is_over(open_manager, store, until):
    manager = open_manager(store=store, config=FAST, workers=1)
    store.full = True
    submit = threading.Thread(target=lambda: manager.submit(Count(upto=1)))
    submit.start()
    until(lambda: manager.health().status == "storage-trouble")

    resize = threading.Thread(target=lambda: manager.resize(3))
    resize.start()
    store.full = False

    submit.join(30)
    resize.join(30)
    until(lambda: len(manager.workers()) == 3)


@pytest.mark.parametrize("spares", [0, 1], ids=["started-anew", "a-spare-goes-on"])
def test_a_step_whose_worker_dies_and_is_replaced_in_the_trouble_runs_again_after_it(
    open_manager, store, until, tmp_path, spares
):
    manager = open_manager(store=store, config=dataclasses.replace(FAST, spares=spares), workers=1)
    file = str(tmp_path / "may-end")
    handle = manager.submit(Waits(file))
    first = Path(file + ".1")
    until(first.exists)
    store.full = True
    submit = threading.Thread(target=lambda: manager.submit(Count(upto=1)))
    submit.start()
    until(lambda: manager.health().status == "storage-trouble")

    pid = int(first.read_text())
    os.kill(pid, signal.SIGKILL)
    until(lambda: any(worker.pid != pid and worker.state == "idle" for worker in manager.workers()))
    store.full = False
    Path(file).touch()

    assert handle.result(30) == 2
    submit.join(30)


def told(caplog, words):
    return sum(words in record.getMessage() for record in caplog.records)


def test_an_outage_that_goes_on_is_logged_once_in_ten_seconds_and_when_its_reason_changes(caplog):
    clock = VirtualClock()
    outage = StoreOutage(clock)
    outage.begin(StorageUnavailable("refused"))

    for _ in range(50):  # 25 s
        outage.go_on(StorageTrouble(StorageUnavailable("refused")))
        clock.advance(0.5)
    assert told(caplog, "still not available: refused") == 3
    outage.go_on(StorageTrouble(StorageUnavailable("starting up")))
    outage.go_on(StorageTrouble(StorageUnavailable("starting up")))
    assert told(caplog, "still not available: starting up") == 1

    outage.doubt()
    outage.end()
    outage.begin(StorageUnavailable("refused"))
    outage.go_on(StorageTrouble(StorageUnavailable("starting up")))  # of the next outage
    assert told(caplog, "still not available: starting up") == 2


def test_a_store_that_opens_and_takes_no_commit_works_again_for_nobody(open_manager, until, caplog):
    store = CrowdedStore()
    manager = open_manager(store=store, config=FAST)
    store.room = 3
    handles = manager.submit_many(Count(upto=20) for _ in range(4))
    until(lambda: store.refused and manager.health().status == "storage-trouble")
    since = store.refused

    said = set()
    until(lambda: said.add(manager.health().status) or store.refused >= since + 5)
    with pytest.raises(StorageUnavailable, match="no space"):
        manager.submit(Count(upto=1))

    assert said == {"storage-trouble"}
    assert told(caplog, "works again") == 0
    store.full = False
    assert [handle.result(60) for handle in handles] == [list(range(1, 21))] * 4
    until(lambda: manager.health().ok)
    assert (told(caplog, "works again"), told(caplog, "a commit failed")) == (1, 1)
    assert manager.run(Count(upto=1)) == [1]


def test_a_stop_without_a_time_limit_ends_although_the_store_opens_again_and_again(open_manager, until):
    store = CrowdedStore()
    manager = open_manager(store=store, config=dataclasses.replace(FAST, stop_timeout=0.2))
    manager.submit(Count(upto=100_000), "kept")
    store.full = True
    until(lambda: store.refused > 2)

    stopping = threading.Thread(target=manager.stop, daemon=True)
    stopping.start()
    stopping.join(60)

    assert not stopping.is_alive()
    assert store.procedure("kept").state not in TERMINAL


def test_a_removed_directory_is_trouble_that_is_told_and_what_was_in_it_can_be_saved(open_manager, tmp_path, until):
    manager = open_manager(config=dataclasses.replace(FAST, stop_timeout=0.2))
    assert manager.run(Count(upto=1), id="before") == [1]
    shutil.rmtree(tmp_path / "state")
    answers = []

    def submit():
        try:
            answers.append(manager.submit(Count(upto=1), "after"))
        except OutcomeUnknown as error:
            answers.append(error)

    waiting = threading.Thread(target=submit, daemon=True)
    waiting.start()
    until(lambda: manager.health().status == "storage-trouble")
    assert "removed while it was open" in str(manager.health().problems)
    manager.backup(tmp_path / "saved")
    manager.stop()
    waiting.join(30)

    assert [type(answer) for answer in answers] == [OutcomeUnknown]
    saved = open_manager(tmp_path / "saved", procedures=[Count])
    assert saved.get("before").result(30) == [1]
