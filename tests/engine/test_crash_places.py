"""Kinds of death times places of user code: each costs that place one attempt, in words, and is recorded once."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

import actorproc
from actorproc import Config, Limits, LockKey, Procedure, RetryPolicy, Status, StepTimeout
from actorproc.model.states import Phase

pytestmark = pytest.mark.processes

LAST_WORDS = "these are the last words"


def die(how: str) -> None:
    """Once per folder: the marker is there before the end comes."""
    way, _, folder = how.partition("@")
    marker = Path(folder, "died")
    if marker.exists():
        return
    marker.write_text(str(os.getpid()))
    print(LAST_WORDS, file=sys.stderr, flush=True)  # noqa: T201
    WAYS[way]()


def raise_an_error() -> None:
    raise RuntimeError("it went wrong")


WAYS = {
    "segfault": lambda: ctypes.string_at(0),
    "abort": os.abort,
    "leave": lambda: os._exit(0),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "sys.exit": lambda: sys.exit(3),
    "error": raise_an_error,
}
WORDS = {
    "segfault": ("signal", "SIGSEGV", "killed by signal 11 (SIGSEGV)"),
    "abort": ("signal", "SIGABRT", "killed by signal 6 (SIGABRT)"),
    "leave": ("exit", None, "exited with code 0, and it had not been told to"),
    "kill": ("signal", "SIGKILL", "killed by signal 9 (SIGKILL)"),
}
"""Kind, signal and words of the reports of those ways that end the process."""


@dataclass
class InExecute(Procedure):
    how: str

    def execute(self, ctx):
        die(self.how)
        return Status.done("well")


@dataclass
class InLoad(Procedure):
    how: str

    @classmethod
    def load(cls, data):
        die(data)
        return cls(data)

    def dump(self):
        return self.how

    def execute(self, ctx):
        return Status.done("well")


@dataclass
class InDump(Procedure):
    how: str
    step: int = 0

    def dump(self):
        if self.step == 1:
            die(self.how)
        return f"{self.step} {self.how}"

    @classmethod
    def load(cls, data):
        step, _, how = data.partition(" ")
        return cls(how, int(step))

    def execute(self, ctx):
        self.step += 1
        return Status.executing() if self.step == 1 else Status.done("well")


@dataclass
class InAnotherThread(Procedure):
    """The step itself does nothing wrong."""

    how: str

    def execute(self, ctx):
        thread = threading.Thread(target=die, args=(self.how,))
        thread.start()
        thread.join()
        return Status.done("well")


@dataclass
class Part(Procedure):
    how: str

    def lock_keys(self):
        if self.how:
            die(self.how)
        return [LockKey.write("shelf")]

    def execute(self, ctx):
        return Status.done("part")


@dataclass
class InLockKeysOfAChild(Procedure):
    how: str

    def execute(self, ctx):
        return Status.done("well") if ctx.children else Status.suspended([Part(self.how)])


@dataclass
class InRollback(Procedure):
    how: str
    rollback_supported = True
    rollback_retry = RetryPolicy(max_attempts=3, base=0.01, retry_on=(Exception,))

    def execute(self, ctx):
        raise ValueError("to be undone")

    def rollback(self, ctx):
        die(self.how)


class Bomb:
    def __init__(self, how):
        self.how = how

    def __del__(self):
        die(self.how)


@dataclass
class InGarbage(Procedure):
    """The second step's first act is to drop what the first one left in the live object."""

    how: str
    step: int = 0

    def execute(self, ctx):
        self.step += 1
        if self.step == 1:
            self._bomb = Bomb(self.how)
            return Status.executing()
        self._bomb = None
        return Status.done("well")


@dataclass
class Bystander(Procedure):
    done: int = 0

    def execute(self, ctx):
        self.done += 1
        return Status.executing() if self.done < 5 else Status.done(self.done)


IN_A_STEP = [InExecute, InLoad, InDump, InLockKeysOfAChild, InGarbage, InAnotherThread]


def run_beside_others(manager, procedure):
    before = manager.submit_many(Bystander() for _ in range(2))
    handle = manager.submit(procedure)
    handle.wait(30)
    for bystander in (*before, manager.submit(Bystander())):
        # One may have been next in the worker that died: handed out again, and charged with nothing.
        assert bystander.result(30) == 5
        assert manager.info(bystander.id).crashes == 0
        assert manager.info(bystander.id).errors == 0
    assert manager.health().status == "running"
    return handle


def reports_of(manager, id):
    return [row.crash.crash for row in manager.steps(id) if row.crash is not None and row.crash.crash is not None]


@pytest.mark.skipif(sys.platform != "linux", reason="the numbers of signals are Linux's")
@pytest.mark.parametrize("place", IN_A_STEP, ids=lambda place: place.__name__)
def test_a_death_in_any_place_of_a_step_costs_it_one_attempt(open_manager, tmp_path, place):
    manager = open_manager(workers=2)
    for way, (kind, signal_name, words) in WORDS.items():
        for attempt in range(10):
            folder = tmp_path / f"{way} {attempt}"
            folder.mkdir()

            handle = run_beside_others(manager, place(f"{way}@{folder}"))

            assert handle.result(30) == "well", way
            if place is not InGarbage or reports_of(manager, handle.id):
                break  # else a worker that was given no processor for a while lost the second step to another one
        (report,) = reports_of(manager, handle.id)
        assert (report.kind, report.signal) == (kind, signal_name)
        assert words in report.message
        assert LAST_WORDS in report.stderr
        assert [row.path for row in manager.steps(handle.id)][-1].endswith(".commit")
        dead = int((folder / "died").read_text())
        assert dead not in [worker.pid for worker in manager.workers()]


@pytest.mark.skipif(sys.platform != "linux", reason="the numbers of signals are Linux's")
def test_a_death_in_a_rollback_costs_it_one_attempt(open_manager, tmp_path):
    events = []
    manager = open_manager(workers=2, on_event=events.append)
    for way, (kind, signal_name, words) in WORDS.items():
        folder = tmp_path / way
        folder.mkdir()

        handle = run_beside_others(manager, InRollback(f"{way}@{folder}"))

        assert manager.info(handle.id).state == "ROLLEDBACK", way
        (died,) = (event for event in events if event.kind == "worker-died" and event.id == handle.id)
        assert (died.cause, died.signal, died.step, died.attempt) == (kind, signal_name, 2, 1)
        assert words in died.reason
        (undone,) = (row for row in manager.steps(handle.id) if row.outcome == "undone")
        assert undone.attempts == 2
        assert undone.crash is not None
        assert words in undone.crash.message
        assert undone.crash.crash.signal == signal_name
        assert LAST_WORDS in undone.crash.crash.stderr
        assert "to be undone" in str(handle.exception(0))


OUTCOMES = {
    InExecute: "FAILED",
    InDump: "FAILED",
    InLockKeysOfAChild: "FAILED",
    InRollback: "ROLLEDBACK",  # retried
    InGarbage: "SUCCESS",  # what is raised there is not heard
}
"""What an exception and a sys.exit() there lead to."""


@pytest.mark.parametrize(("way", "words"), [("error", "it went wrong"), ("sys.exit", "SystemExit")])
def test_an_exception_in_any_place_costs_no_worker(open_manager, tmp_path, until, way, words):
    manager = open_manager(workers=2)
    for place, state in OUTCOMES.items():
        folder = tmp_path / place.__name__
        folder.mkdir()

        handle = run_beside_others(manager, place(f"{way}@{folder}"))

        assert manager.info(handle.id).state == state, place
        if state == "FAILED":
            assert words in str(handle.exception(0))
        elif state == "ROLLEDBACK":
            assert "to be undone" in str(handle.exception(0))
    (tmp_path / "load").mkdir()
    refused = manager.submit(InLoad(f"{way}@{tmp_path / 'load'}"))
    until(lambda: refused.info().phase is Phase.PARKED)
    assert words in refused.info().reason
    assert [slot.restarts for slot in manager.health().slots] == [0, 0]


# ---------------------------------------------------------------------- what the machine does to the host
@dataclass
class Forks(Procedure):
    """Has many children, and then uses the processor: what ends it does not hang on how fast the machine is."""

    limits = Limits(cpu_time=2.0, grace=0.1)
    retry = RetryPolicy(max_attempts=1)

    def execute(self, ctx):
        for _ in range(60):
            if os.fork() == 0:
                time.sleep(600)
                os._exit(0)
        while True:
            pass


def test_a_step_that_forks_on_and_on_is_ended_with_all_that_it_started(open_manager, until):
    manager = open_manager(workers=1)
    worker = manager.workers()[0].pid
    handle = manager.submit(Forks())
    until(lambda: len(psutil.Process(worker).children(recursive=True)) >= 60)
    brood = psutil.Process(worker).children(recursive=True)

    assert isinstance(handle.exception(60).cause, StepTimeout)

    until(lambda: not [child for child in brood if child.is_running() and child.status() != psutil.STATUS_ZOMBIE])
    assert manager.run(Bystander()) == 5


@pytest.mark.skipif(sys.platform != "linux", reason="counts descriptors in /proc")
def test_without_a_free_descriptor_no_worker_starts_and_running_work_goes_on(open_manager, until):
    manager = open_manager(workers=2, config=Config(spares=0, restart_limit=100))
    assert manager.run(Bystander()) == 5
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    worker = until(lambda: next((each for each in manager.workers() if each.slot == 0), None))
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(int(fd.name) for fd in Path("/proc/self/fd").iterdir()) + 1, hard))
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open(os.devnull, os.O_RDONLY))
        os.kill(worker.pid, signal.SIGKILL)
        reason = until(lambda: (slot := manager.health().slots[0]).state == "backing-off" and slot.reason)
        until(lambda: "Too many open files" in (manager.health().slots[0].reason or ""))

        assert manager.submit(Bystander()).result(30) == 5
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)
    assert reason
    until(lambda: len([each for each in manager.workers() if each.state == "idle"]) == 2)
    assert manager.health().ok


HOST = """
import sys, time
from actorproc import Limits, Procedure, ProcedureManager, RetryPolicy, Status

class Short(Procedure):
    limits = Limits(wall_time=3.0)
    retry = RetryPolicy(max_attempts=1)
    def execute(self, ctx):
        time.sleep(0.3)
        return Status.done("in time")

with ProcedureManager(sys.argv[1], workers=1) as manager:
    print(manager.workers()[0].pid, flush=True)
    handle = manager.submit(Short())
    sys.stdin.readline()
    print(handle.result(30), [slot.restarts for slot in manager.health().slots], flush=True)
"""


def test_a_host_that_was_stopped_for_a_while_blames_no_step_for_it(tmp_path, until):
    """The whole program stands still, workers too, as a virtual machine does; limits do not count that time."""
    environment = os.environ | {"PYTHONPATH": str(Path(actorproc.__file__).parents[1])}
    command = [sys.executable, "-c", HOST, str(tmp_path / "state")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as host:
        try:
            worker = int(host.stdout.readline())
            with actorproc.StoreReader(tmp_path / "state") as reader:
                until(lambda: any(info.attempt for info in reader.list()))
            for pid in (host.pid, worker):
                os.kill(pid, signal.SIGSTOP)
            stopped = time.monotonic()
            until(lambda: time.monotonic() - stopped > 4.0)
            for pid in (worker, host.pid):
                os.kill(pid, signal.SIGCONT)
            host.stdin.write("\n")
            host.stdin.flush()
            assert host.stdout.readline() == "in time [0]\n"
        finally:
            host.kill()
