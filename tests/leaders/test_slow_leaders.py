"""Leaders that are slow and alive: a slow database, and a program that keeps the interpreter to itself."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import Self

import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc import Config, ProcedureClient, ProcedureManager
from tests.kit.mortal_manager import killed_at_the_end
from tests.kit.procedures import Add, Nap
from tests.kit.waiting import BOUND, wait_until
from tests.leaders.conftest import ask, through

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]
LEASE = 2.0

# A foreign function that keeps the interpreter lock while it sleeps, or threads that never wait.
HOG = """
import ctypes, sys, threading, time
from actorproc import Config, ProcedureManager
from tests.kit.procedures import Add, Nap

def spin():
    while True:
        pass

config = Config(lease=float(sys.argv[2]), spares=0, allow_any_filesystem=True)
with ProcedureManager(sys.argv[1], procedures=[Add, Nap], workers=1, config=config):
    print("up", flush=True)
    for line in sys.stdin:
        kind, value = line.split()
        if kind == "hold":
            ctypes.PyDLL(None).usleep(int(float(value) * 1e6))
        else:
            for _ in range(int(value)):
                threading.Thread(target=spin, daemon=True).start()
        print("done", flush=True)
"""


def config(lease: float = LEASE) -> Config:
    return Config(lease=lease, spares=0, allow_any_filesystem=True, commit_backoff=0.05, commit_backoff_cap=0.2)


def leads(manager: ProcedureManager) -> bool:
    return manager._tree.leads


@pytest.fixture
def open_manager():
    opened = []

    def make(url: str) -> ProcedureManager:
        opened.append(ProcedureManager(url, procedures=[Add, Nap], workers=2, config=config()))
        return opened[-1].start()

    yield make
    for manager in reversed(opened):
        manager.stop(drain=False, timeout=5.0)


def test_commits_of_a_slow_database_grow_and_nothing_else_happens(open_manager, url, proxy):
    slow = open_manager(through(url, proxy))
    other = open_manager(url)
    epoch = slow._tree._local.epoch
    proxy.delay = LEASE / 10  # a round trip takes less than half a lease
    before = slow.metrics().commits
    begun = time.monotonic()
    threads = [
        threading.Thread(target=lambda number=number: slow.run(Add(number, 1), timeout=BOUND)) for number in range(40)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(BOUND)
    commits = slow.metrics().commits - before
    assert commits <= 20, f"{commits} commits for 40 procedures of two events each"
    assert slow.health().status == "running"
    wait_until(lambda: time.monotonic() - begun > 2 * LEASE)
    assert leads(slow)
    assert not leads(other)
    assert slow._tree._local.epoch == epoch
    proxy.delay = 0.0


@pytest.fixture
def hog(request, url, tmp_path):
    lease = getattr(request, "param", LEASE)
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-c", HOG, url, str(lease)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    with killed_at_the_end(process):
        yield process


def tell(process, words: str) -> None:
    process.stdin.write(words + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"


def test_a_program_that_is_busy_in_the_interpreter_keeps_its_lead(hog, open_manager, url):
    follower = open_manager(url)
    epoch = follower._home.leader().epoch
    # The thread that renews may miss its turns between them, as other threads wait for theirs as well.
    for _ in range(3):
        tell(hog, f"hold {LEASE / 8}")
    tell(hog, "spin 2")  # with more, and others on this machine, no thread of it gets its turn in a lease
    begun = time.monotonic()
    with ProcedureClient(url, patience=BOUND, config=config()) as client:
        wait_until(lambda: client.run(Add(1, 2)) == 3 and time.monotonic() - begun > 2 * LEASE)
    assert not leads(follower)
    assert follower._home.leader().epoch == epoch


def test_a_program_that_holds_the_interpreter_for_longer_than_a_lease_is_followed_by_another(hog, open_manager, url):
    follower = open_manager(url)
    epoch = follower._home.leader().epoch
    handle = follower.submit(Nap(0.1), id="nap")
    tell(hog, f"hold {3 * LEASE}")
    assert leads(follower)
    assert follower._home.leader().epoch == epoch + 1
    assert handle.result(BOUND) == "rested"
    with ProcedureClient(url, patience=BOUND, config=config()) as client:
        assert client.run(Add(1, 2)) == 3
    assert follower._tree.deposed == 0


class Quota:
    """A part of a processor for a process, as the quota of a container has it: it uses so much in each tenth of a second.

    Args:
        pid: The process.
        part: The part.
    """

    PERIOD = 0.1
    LOOK = 0.002

    def __init__(self, pid: int, part: float) -> None:
        self._pid = pid
        self._clock = (~pid << 3) | 2  # of the processors' time that the process has had, as clock_getcpuclockid(3)
        self._part = part
        self.throttled = 0
        """Tenths of a second of which it had no more than its part."""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._throttle, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join(BOUND)
        os.kill(self._pid, signal.SIGCONT)

    def _throttle(self) -> None:
        while not self._over.is_set():
            ends, used = time.monotonic() + self.PERIOD, time.clock_gettime(self._clock) + self.PERIOD * self._part
            while time.clock_gettime(self._clock) < used and not self._over.wait(self.LOOK):
                if time.monotonic() >= ends:  # others had the processors, so it had no more than its part
                    break
            else:
                os.kill(self._pid, signal.SIGSTOP)
                self._over.wait(max(0.0, ends - time.monotonic()))
                os.kill(self._pid, signal.SIGCONT)
            self.throttled += 1


def test_a_leader_with_a_tenth_of_a_processor_keeps_its_lead(hog, open_manager, url):
    follower = open_manager(url)
    epoch = follower._home.leader().epoch
    begun = time.monotonic()
    with Quota(hog.pid, 0.1) as quota, ProcedureClient(url, patience=BOUND, config=config()) as client:
        wait_until(lambda: client.run(Add(1, 2)) == 3 and time.monotonic() - begun > 2 * LEASE and quota.throttled > 5)
    assert not leads(follower)
    assert follower._home.leader().epoch == epoch


@pytest.mark.parametrize("hog", [4.0], indirect=True)
def test_a_leader_that_stands_still_for_more_than_half_a_lease_is_warned_of_and_keeps_its_lead(
    hog, open_manager, url, tmp_path
):
    follower = open_manager(url)
    epoch = follower._home.leader().epoch
    hog.send_signal(signal.SIGSTOP)
    wait_until(lambda: follower._home.leader().lease < 0.45 * 4.0)  # wherever between two renewals it was stopped
    hog.send_signal(signal.SIGCONT)
    wait_until(lambda: "was not renewed for" in (tmp_path / "log").read_text())
    assert "it lasts 4 s" in (tmp_path / "log").read_text()
    assert not leads(follower)
    assert follower._home.leader().epoch == epoch


def test_late_renewals_and_locks_that_were_taken_again_are_counted(open_manager, url, server):
    leader = open_manager(url)
    store = leader._tree._local.store
    before = leader.metrics()
    assert before.regained_locks == 0

    def has_been_late() -> bool:
        if leader.metrics().late_renewals > before.late_renewals:  # on a busy machine some are late by themselves
            return True
        # As if the last one had come so long ago; a renewal that is under way overwrites it.
        store.leadership._renewed = time.monotonic() - 0.9 * LEASE
        return False

    wait_until(has_been_late)
    ask(server.url(), f"SELECT pg_terminate_backend({store.leadership.lock.session.pid})")
    wait_until(lambda: leader.metrics().regained_locks >= 1)
    metrics = leader.metrics()
    assert f"actorproc_late_renewals_total {metrics.late_renewals}" in metrics.prometheus()
    leader._tree.step_down()
    wait_until(lambda: leader._tree.deposed == 1)
    assert leader._tree.leader_counters().late_renewals >= metrics.late_renewals
    assert leader._tree.leader_counters().regained_locks >= metrics.regained_locks
