"""Storms of signals: on a program with the engine in it, on ``actorproc run``, and on workers."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

import actorproc
from actorproc import Procedure, Status
from actorproc.errors import ActorprocError

pytestmark = [pytest.mark.processes, pytest.mark.skipif(sys.platform != "linux", reason="/proc")]

ROOT = Path(__file__).parents[2]
STORM = 1000
"""Signals in a storm."""
HARMLESS = ("SIGCHLD", "SIGWINCH", "SIGCONT", "SIGURG", "SIGPIPE")
SERVED = '''
from dataclasses import dataclass
from actorproc import Procedure, ProcedureManager, Status

@dataclass
class Three(Procedure):
    """Three short steps."""
    step: int = 0
    def execute(self, ctx):
        self.step += 1
        return Status.executing() if self.step < 3 else Status.done(self.step)

manager = ProcedureManager("state", procedures=[Three], workers=2)
'''
HOST = (
    SERVED
    + """
import signal, sys, threading

def main():
    heard = []
    for name in ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM"):
        signal.signal(getattr(signal, name), lambda number, frame: heard.append(number))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    over = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.readline(), over.set()), daemon=True).start()
    with manager:
        print("ready", flush=True)
        handles = []
        while not over.is_set():
            handles.append(manager.submit(Three()))
            print(handles[-1].id, flush=True)
        assert [handle.result(60) for handle in handles] == [3] * len(handles)
        restarts = sum(slot.restarts for slot in manager.health().slots)
    print(f"end restarts={restarts} heard={len(heard) > 0}", flush=True)

if __name__ == "__main__":
    main()
"""
)


@pytest.fixture(autouse=True)
def hangups():
    """Under nohup they are ignored, and whoever is started inherits that."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.fixture
def program(tmp_path):
    """Start a program in the test's directory; it is killed at the end."""
    (tmp_path / "served.py").write_text(SERVED)
    (tmp_path / "host.py").write_text(HOST)
    running = []

    def start(*arguments, **options):
        options = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | options
        environment = os.environ | {"PYTHONPATH": str(ROOT)}
        command = [sys.executable, *arguments]
        running.append(subprocess.Popen(command, cwd=tmp_path, text=True, env=environment, **options))
        return running[-1]

    yield start
    for process in running:
        process.kill()
        process.communicate()


def storm(process, names, seed, count=STORM):
    """So many signals, drawn by a seed, faster than most of them are handled."""
    chance = random.Random(seed)
    for _ in range(count):
        process.send_signal(getattr(signal, chance.choice(names)))
        time.sleep(chance.random() * 0.002)


def all_succeeded(path, ids):
    with actorproc.StoreReader(path) as reader:
        return [str(reader.info(each).state) for each in ids] == ["SUCCESS"] * len(ids)


@pytest.mark.parametrize("seed", [1, 2])
def test_a_storm_on_a_program_is_its_own_affair_and_no_submit_is_lost(program, tmp_path, seed):
    host = program("host.py", stderr=None)
    assert host.stdout.readline() == "ready\n"
    acknowledged = []
    reader = threading.Thread(target=lambda: acknowledged.extend(line.strip() for line in host.stdout))
    reader.start()

    storm(host, ("SIGINT", "SIGTERM", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", *HARMLESS), seed)
    host.stdin.write("\n")
    host.stdin.flush()

    assert host.wait(90) == 0
    reader.join(30)
    assert acknowledged.pop() == "end restarts=0 heard=True"
    assert acknowledged
    assert all_succeeded(tmp_path / "state", acknowledged)


class Submitting(threading.Thread):
    """Submits to a service until it is not there any more; `acknowledged` is what it said yes to."""

    def __init__(self, path):
        super().__init__()
        self._path = path
        self.acknowledged = []
        self.over = threading.Event()

    def run(self):
        sys.path.insert(0, str(self._path))
        try:
            from served import Three

            with actorproc.ProcedureClient(self._path / "state", patience=3.0) as client:
                while not self.over.is_set():
                    self.acknowledged.append(client.submit(Three()).id)
        except (ActorprocError, TimeoutError):
            pass
        finally:
            sys.path.remove(str(self._path))
            sys.modules.pop("served", None)


@pytest.mark.parametrize("second", [False, True], ids=["the first drains", "the second ends it at once"])
def test_a_storm_on_a_service_and_then_its_end_lose_nothing(program, tmp_path, until, second):
    service = program("-m", "actorproc", "run", "served", "--stop-timeout", "20", stderr=subprocess.DEVNULL)
    until(lambda: (tmp_path / "state" / "control").exists() or list((tmp_path / "state").glob("*sock*")))
    submitting = Submitting(tmp_path)
    submitting.start()
    until(lambda: len(submitting.acknowledged) > 5)

    storm(service, HARMLESS, seed=3)
    service.send_signal(signal.SIGTERM)
    if second:
        service.send_signal(signal.SIGINT)
    else:
        storm(service, HARMLESS, seed=4, count=100)

    code = service.wait(60)
    submitting.over.set()
    submitting.join(60)
    # Both may be pending when Python looks: it then takes the lower number first.
    assert code in ((130, 143) if second else (0,))
    assert len(submitting.acknowledged) > 5
    with actorproc.StoreReader(tmp_path / "state") as reader:
        assert {info.id for info in reader.list(limit=None)} >= set(submitting.acknowledged)
    sys.path.insert(0, str(tmp_path))
    try:
        from served import Three

        with actorproc.ProcedureManager(tmp_path / "state", procedures=[Three], workers=2) as manager:
            assert [manager.get(each).result(60) for each in submitting.acknowledged] == [3] * len(
                submitting.acknowledged
            )
    finally:
        sys.path.remove(str(tmp_path))
        sys.modules.pop("served", None)


def test_a_closed_terminal_drains_a_service(program, tmp_path, until):
    service = program("-m", "actorproc", "run", "served")
    for line in service.stderr:
        if "serves" in line:
            break

    service.send_signal(signal.SIGHUP)

    said = service.communicate(timeout=60)[1]
    assert service.returncode == 0
    assert "stopping" in said


def test_a_service_that_ignores_hangups_goes_on_ignoring_them(program, tmp_path):
    ignoring = "import signal, sys, runpy; signal.signal(signal.SIGHUP, signal.SIG_IGN); runpy.run_module('actorproc')"
    service = program("-c", f"import sys; sys.argv[1:] = ['run', 'served']; {ignoring}")
    for line in service.stderr:
        if "serves" in line:
            break

    service.send_signal(signal.SIGHUP)
    time.sleep(0.2)
    assert service.poll() is None
    service.send_signal(signal.SIGTERM)

    service.communicate(timeout=60)
    assert service.returncode == 0


# ---------------------------------------------------------------------- workers
@dataclass
class Many(Procedure):
    steps: int
    done: int = 0

    def execute(self, ctx):
        self.done += 1
        time.sleep(0.002)
        return Status.executing() if self.done < self.steps else Status.done((self.done, ctx.attempt))


def test_a_storm_on_workers_costs_attempts_at_most(tmp_path, until):
    """SIGINT, SIGPIPE and the harmless ones cost nothing at all; SIGTERM and SIGHUP end a worker, between steps or in one."""
    chance = random.Random(7)
    with actorproc.ProcedureManager(tmp_path / "state", workers=2) as manager:
        handles = manager.submit_many(Many(60) for _ in range(4))
        for _ in range(300):
            for worker in manager.workers():
                if worker.state in ("idle", "busy"):
                    os.kill(worker.pid, getattr(signal, chance.choice(["SIGINT", "SIGUSR1", *HARMLESS])))
        assert [slot.restarts for slot in manager.health().slots] == [0, 0]

        for number in (signal.SIGTERM, signal.SIGHUP):
            worker = until(lambda: next((each for each in manager.workers() if each.state in ("idle", "busy")), None))
            os.kill(worker.pid, number)
            until(lambda pid=worker.pid: pid not in [each.pid for each in manager.workers()])

        assert [handle.result(60)[0] for handle in handles] == [60] * 4
        assert manager.health().status == "running"


@dataclass
class Asks(Procedure):
    """What a child process of a step said with its exit code."""

    def execute(self, ctx):
        return Status.done(subprocess.run([sys.executable, "-c", "raise SystemExit(3)"], check=False).returncode)


@dataclass
class DiesOnce(Procedure):
    def execute(self, ctx):
        if not ctx.replayed:
            os.abort()
        return Status.done("well")


def test_a_host_that_ignores_the_deaths_of_its_children_still_has_its_workers_replaced(tmp_path):
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with actorproc.ProcedureManager(tmp_path / "state", workers=1) as manager:
            dies = manager.submit(DiesOnce())

            assert dies.result(60) == "well"
            assert manager.submit(Asks()).result(60) == 3
            report = manager.steps(dies.id)[-1].crash.crash
            assert "collected its exit status" in report.message
            assert "in execute" in report.stack
    finally:
        signal.signal(signal.SIGCHLD, before)
