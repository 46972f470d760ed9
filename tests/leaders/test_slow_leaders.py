"""Leaders that are slow and alive: a slow database, and a program that keeps the interpreter to itself."""

from __future__ import annotations

import subprocess
import sys
import threading
import time

import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc import Config, ProcedureClient, ProcedureManager
from tests.kit.procedures import Add, Nap
from tests.kit.waiting import BOUND, wait_until
from tests.leaders.conftest import through

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
def hog(url):
    process = subprocess.Popen(
        [sys.executable, "-c", HOG, url, str(LEASE)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "up\n"
    yield process
    process.kill()
    process.wait(BOUND)
    process.stdin.close()
    process.stdout.close()


def tell(process, words: str) -> None:
    process.stdin.write(words + "\n")
    process.stdin.flush()
    assert process.stdout.readline() == "done\n"


def test_a_program_that_is_busy_in_the_interpreter_keeps_its_lead(hog, open_manager, url):
    follower = open_manager(url)
    epoch = follower._home.leader().epoch
    for _ in range(3):
        tell(hog, f"hold {LEASE / 3}")
    tell(hog, "spin 4")
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
