"""While the manager's own thread waits for a disk, the pool's thread hears, decides and answers in its place."""

from __future__ import annotations

import os
import signal
import threading
import time

import psutil
import pykka
import pytest

from actorproc import Config, Limits, ProcedureManager
from actorproc.errors import ManagerStopped
from actorproc.store.memory import MemoryStore
from actorproc.support import attendance as attendance_module
from actorproc.support.attendance import Attendance
from actorproc.testing.fake_pool import FakePool
from actorproc.workers.pool.worker_ear import WorkerEar
from tests.kit.procedures import Nap
from tests.kit.stores import HeldCommits


class OnThreads(ProcedureManager):
    """A manager whose pool has no ear: it brings what is said on threads of its own."""

    def _make_pool(self, epoch):
        return FakePool()


@pytest.fixture
def store():
    return MemoryStore()


@pytest.fixture
def disk(store):
    found = HeldCommits(store)
    yield found
    found.free.set()


@pytest.fixture(params=["of-processes", "of-threads"])
def manager(request, disk, store, open_manager, tmp_path):
    """A manager over a slow disk, with a pool that has an ear, or with one that has none."""
    if request.param == "of-processes":
        yield open_manager(workers=2, store=store, procedures=[Nap])
    else:
        with OnThreads(tmp_path / "fake", workers=2, store=store, procedures=[Nap], config=Config(spares=0)) as found:
            yield found
            disk.free.set()


@pytest.mark.processes
class TestWhileACommitLasts:
    """The disk does not answer, and everything else goes on."""

    def test_what_needs_no_commit_is_answered(self, manager, disk):
        disk.free.clear()
        waiting = threading.Thread(target=manager.submit, args=[Nap(), "slow"])
        waiting.start()
        assert disk.waiting.wait(30)

        assert manager._tree.manager_status() is not None
        assert waiting.is_alive()

        disk.free.set()
        waiting.join(30)
        assert manager.get("slow").result(30) == "rested"

    def test_the_next_batch_is_decided_and_nothing_is_acknowledged(self, manager, disk, store, until):
        disk.free.clear()
        threads = [threading.Thread(target=manager.submit, args=[Nap(), name]) for name in ("one", "two", "three")]
        threads[0].start()
        assert disk.waiting.wait(30)
        for thread in threads[1:]:
            thread.start()
        tree = manager._tree
        until(lambda: len(tree._replies._waiting) >= 3 and tree._manager.actor_inbox.empty())
        assert all(thread.is_alive() for thread in threads)
        assert store.procedure("one") is None

        disk.free.set()
        for thread in threads:
            thread.join(30)
        assert [manager.get(name).result(30) for name in ("one", "two", "three")] == ["rested"] * 3

    @pytest.mark.parametrize(
        "stop",
        [
            lambda manager: manager.stop(drain=False, timeout=1),
            lambda _: pykka.ActorRegistry.stop_all(timeout=60),
            lambda manager: [manager._tree._manager.stop(timeout=60), pykka.ActorRegistry.stop_all(timeout=60)],
        ],
        ids=["stop", "all-actors", "manager-first"],
    )
    def test_a_stop_comes_to_its_end(self, manager, disk, stop, until):
        thread = manager._tree._manager.actor_inbox.own_thread
        pids = {worker.pid for worker in manager.workers()} - {0, None}
        disk.free.clear()
        failed = []

        def submit():
            try:
                manager.submit(Nap(), "never")
            except ManagerStopped as error:
                failed.append(error)

        waiting = threading.Thread(target=submit)
        waiting.start()
        assert disk.waiting.wait(30)
        began = time.monotonic()

        stop(manager)

        assert time.monotonic() - began < 30
        waiting.join(30)
        assert len(failed) == 1
        until(lambda: not any(psutil.pid_exists(pid) for pid in pids))
        disk.free.set()
        until(lambda: thread not in {one.ident for one in threading.enumerate()})


@pytest.mark.processes
def test_a_death_is_heard_while_a_commit_lasts(open_manager, disk, store, until):
    manager = open_manager(workers=2, store=store, procedures=[Nap])
    pids = {worker.pid for worker in manager.workers()}
    disk.free.clear()
    waiting = threading.Thread(target=manager.submit, args=[Nap(), "slow"])
    waiting.start()
    assert disk.waiting.wait(30)

    os.kill(min(pids), signal.SIGKILL)

    until(lambda: len(left := {worker.pid for worker in manager.workers()} - pids) == 1 and left)
    assert waiting.is_alive()
    disk.free.set()
    waiting.join(30)
    assert manager.get("slow").result(30) == "rested"


@pytest.mark.processes
def test_a_deadline_is_kept_while_a_commit_lasts(open_manager, disk, store, until, tmp_path):
    manager = open_manager(workers=2, store=store, procedures=[Nap])
    marker = tmp_path / "began"
    manager.submit(Nap(600, str(marker)), "long", limits=Limits(wall_time=3.0, grace=0.1))
    until(marker.exists)
    pid = int(until(marker.read_text).splitlines()[0])
    disk.free.clear()
    waiting = threading.Thread(target=manager.submit, args=[Nap(), "slow"])
    waiting.start()
    assert disk.waiting.wait(30)

    until(lambda: pid not in {worker.pid for worker in manager.workers()})

    disk.free.set()
    waiting.join(30)


# ------------------------------------------------------------ the parts
class Moments:
    """A clock for looks."""

    def __init__(self, monkeypatch):
        self.now = 100.0
        monkeypatch.setattr(attendance_module.time, "monotonic", lambda: self.now)

    def look(self, found):
        self.now += 1.0
        return found.look()


def test_an_attendant_that_comes_and_goes_is_not_missed(monkeypatch):
    called, moments = [], Moments(monkeypatch)
    found = Attendance(lambda: called.append(True))
    found.is_expected = True

    for _ in range(50):
        found.come()
        found.leave()
        moments.look(found)
        assert not found.stands_in

    assert called == []


def test_an_attendant_that_stays_away_is_missed_until_it_comes(monkeypatch):
    found, moments = Attendance(list), Moments(monkeypatch)
    found.is_expected = True
    found.come()
    found.leave()
    moments.look(found)

    moments.look(found)
    assert found.stands_in
    found.come()
    found.look()
    assert not found.stands_in


def test_the_stand_in_sleeps_while_the_attendant_stays_and_is_called_when_it_leaves(monkeypatch):
    called, moments = [], Moments(monkeypatch)
    found = Attendance(lambda: called.append(True))
    found.is_expected = True
    found.come()

    looks = 0
    while moments.look(found) is not None:
        looks += 1
        assert looks < 20

    found.leave()
    assert called == [True]
    assert moments.look(found) is not None
    assert moments.look(found) is not None
    assert found.stands_in


def test_where_no_attendant_is_expected_the_stand_in_has_the_place():
    found = Attendance(list)

    assert found.look() is None
    assert found.stands_in


@pytest.fixture
def ear():
    found = WorkerEar(list, lambda data, mask: None, lambda error: pytest.fail(str(error)))
    yield found
    found.close()


def _woken(ear, due):
    """A thread that listens until it is woken."""
    thread = threading.Thread(target=ear.listen, args=[[due]], daemon=True)
    thread.start()
    while not ear._waits:
        time.sleep(0.001)
    return thread


def test_a_late_thread_that_wakes_the_attendant_takes_the_next_waking_from_nobody(ear):
    for _ in range(3):
        thread = _woken(ear, [])
        ear.wake()
        thread.join(30)
        assert not thread.is_alive()


def test_a_stand_in_leaves_the_waking_to_an_attendant_that_is_there(ear):
    thread = _woken(ear, [])
    with ear.lock:
        ear.wake()
        for _ in range(100):
            ear.heard()
    thread.join(30)

    assert not thread.is_alive()


def test_a_waking_that_the_stand_in_took_away_as_the_attendant_came_is_given_again(ear, monkeypatch):
    """The attendant comes between the look of the stand-in and its reading of the channel."""
    ear._wake_in.send(b"\0")
    looks = iter([True, False])
    monkeypatch.setattr(Attendance, "is_away", lambda _: next(looks))

    ear.heard()

    assert [key.data for key, _ in ear.selector.select(0)] == [None]


def test_an_attendant_does_not_sleep_in_an_ear_that_is_closed(ear):
    thread = _woken(ear, [])

    ear.close()

    thread.join(30)
    assert not thread.is_alive()
    assert ear.listen([]) == []
