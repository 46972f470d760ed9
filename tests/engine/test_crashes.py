"""Workers and hosts that die, and what is left to do then."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

import actorproc
from actorproc import Config, Limits, Procedure, RetryPolicy, Status
from actorproc.errors import ManagerStopped, ProcedureFailed, StepTimeout, WorkerCrashed
from tests.kit.stores import HeldCommits
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes


@pytest.fixture
def config() -> Config:
    return Config(spares=1)


def pass_through(folder: str, name: str) -> int:
    """Say that this place was reached, then wait until the test opens the gate; how often it was reached."""
    place = Path(folder, name)
    with place.open("a") as file:
        file.write(f"{os.getpid()}\n")
    while not Path(folder, f"{name}.open").exists():
        time.sleep(0.005)
    return len(place.read_text().split())


@dataclass
class Gated(Procedure):
    folder: str
    done: int = 0

    def execute(self, ctx):
        if self.done < 3:
            self.done += 1
            return Status.executing()
        times = pass_through(self.folder, "gate")
        return Status.done({"step": ctx.step, "attempt": ctx.attempt, "replayed": ctx.replayed, "times": times})


@dataclass
class Dies(Procedure):
    limits = Limits(crashes=2)
    how: str

    def execute(self, ctx):
        if self.how == "exit":
            os._exit(7)
        os.kill(os.getpid(), signal.SIGSEGV)
        return Status.done()


@dataclass
class Heavy(Procedure):
    """Its state finds no memory in the first process that loads it."""

    folder: str
    retry = RetryPolicy(max_attempts=3, base=0.01)

    @classmethod
    def load(cls, data):
        made = super().load(data)
        place = Path(made.folder, "loads")
        with place.open("a") as file:
            file.write(f"{os.getpid()}\n")
        if len(place.read_text().split()) == 1:
            raise MemoryError
        return made

    def execute(self, ctx):
        return Status.done((ctx.attempt, os.getpid()))


@dataclass
class Hangs(Procedure):
    limits = Limits(wall_time=0.3, grace=0.1)
    retry = RetryPolicy(max_attempts=1)

    def execute(self, ctx):
        while True:
            time.sleep(1)


@dataclass
class Sleeper(Procedure):
    seconds: float

    def execute(self, ctx):
        time.sleep(self.seconds)
        return Status.done("slept")


def test_a_step_whose_worker_is_killed_runs_again_and_counts_a_crash(open_manager, gate):
    manager = open_manager()
    handle = manager.submit(Gated(gate.folder))
    pid = gate.reached("gate")

    os.kill(pid, signal.SIGKILL)
    other = gate.reached("gate", times=2)
    info = handle.info()
    gate.open("gate")

    assert handle.result(30) == {"step": 4, "attempt": 2, "replayed": True, "times": 2}
    assert other != pid
    assert (info.attempt, info.crashes, info.errors) == (2, 1, 0)
    assert handle.info().crashes == 0


@pytest.mark.parametrize(("how", "words"), [("exit", "code 7"), ("signal", "SIGSEGV")])
def test_a_step_that_crashes_too_often_fails_with_the_reason_in_words(open_manager, how, words):
    manager = open_manager()

    handle = manager.submit(Dies(how))

    with pytest.raises(ProcedureFailed) as caught:
        handle.result(60)
    assert isinstance(caught.value.cause, WorkerCrashed)
    assert words in str(caught.value)
    assert handle.info().crashes == 2


def test_a_state_that_finds_no_memory_is_loaded_again_by_a_fresh_worker(open_manager, tmp_path):
    attempt, pid = open_manager(workers=1).run(Heavy(str(tmp_path)), timeout=60)

    first, second = Path(tmp_path, "loads").read_text().split()
    assert attempt == 2
    assert first != second == str(pid)


def test_siblings_finish_while_a_worker_dies_beside_them(open_manager):
    manager = open_manager()

    handles = [manager.submit(Sleeper(0.01)) for _ in range(30)]
    bad = manager.submit(Dies("exit"))
    handles += [manager.submit(Sleeper(0.01)) for _ in range(30)]

    assert [handle.result(60) for handle in handles] == ["slept"] * 60
    assert isinstance(bad.exception(60).cause, WorkerCrashed)


def test_an_idle_worker_that_dies_is_replaced_and_nobody_is_blamed(open_manager, until):
    manager = open_manager(workers=1)
    pid = manager.workers()[0].pid

    os.kill(pid, signal.SIGKILL)

    until(lambda: [worker.pid for worker in manager.workers()] not in ([], [pid]))
    handle = manager.submit(Sleeper(0))
    assert handle.result(30) == "slept"
    assert manager.health().slots[0].restarts == 1


def test_a_step_past_its_wall_time_is_killed(open_manager):
    manager = open_manager()

    handle = manager.submit(Hangs())

    failure = handle.exception(30)
    assert isinstance(failure.cause, StepTimeout)
    assert "0.3 s" in str(failure)
    assert handle.info().crashes == 0


HOST = """
import sys
from dataclasses import dataclass
from actorproc import Procedure, Status
from actorproc.api.manager import ProcedureManager
sys.path.insert(0, {folder!r})
from gated import Gated

manager = ProcedureManager({state!r}, workers=2, procedures=[Gated]).start()
manager.submit(Gated({gates!r}), "job")
print("submitted", flush=True)
sys.stdin.read()
"""


def test_a_killed_host_goes_on_where_it_was_when_started_again(open_manager, gate, tmp_path, until, monkeypatch):
    (tmp_path / "code").mkdir()
    source = Path(__file__).read_text()
    body = source[source.index("def pass_through") : source.index("@dataclass\nclass Dies")]
    imports = "import os, time\nfrom dataclasses import dataclass\nfrom pathlib import Path\nfrom actorproc import Procedure, Status\n"
    (tmp_path / "code" / "gated.py").write_text(imports + body)
    script = HOST.format(folder=str(tmp_path / "code"), state=str(tmp_path / "state"), gates=gate.folder)
    host = subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert host.stdout.readline() == "submitted\n"
        worker = gate.reached("gate")
    finally:
        host.kill()
        host.wait(30)
        host.stdin.close()
        host.stdout.close()
    until(lambda: not Path(f"/proc/{worker}").exists() or "Z" in Path(f"/proc/{worker}/stat").read_text().split()[2])

    monkeypatch.syspath_prepend(str(tmp_path / "code"))
    from gated import Gated as Again

    manager = open_manager(procedures=[Again])
    gate.reached("gate", times=2)
    gate.open("gate")

    assert manager.get("job").result(30) == {"step": 4, "attempt": 2, "replayed": True, "times": 2}


def test_outputs_and_failures_are_there_after_a_restart(open_manager, gate):
    gate.open("gate")
    first = open_manager()
    good = first.submit(Gated(gate.folder))
    bad = first.submit(Dies("exit"))
    output, failure = good.result(30), bad.exception(60)
    first.stop()

    second = open_manager()

    assert second.get(good.id).result(30) == output
    assert str(second.get(bad.id).exception(30)) == str(failure)
    assert second.get(good.id).done()


def test_a_procedure_of_an_unknown_type_is_parked_until_its_class_is_registered(open_manager, gate):
    first = open_manager()
    handle = first.submit(Gated(gate.folder), "job")
    gate.reached("gate")
    first.stop(drain=False, timeout=5)

    second = open_manager()
    info = second.info(handle.id)
    assert info.phase == "parked"
    assert "Gated" in info.reason

    gate.open("gate")
    second.register(Gated)
    assert second.get("job").result(30)["step"] == 4


def test_a_forked_child_is_told_to_make_its_own_manager(open_manager):
    manager = open_manager()
    read_end, write_end = os.pipe()

    pid = os.fork()
    if pid == 0:
        try:
            manager.submit(Sleeper(0))
        except ManagerStopped as error:
            os.write(write_end, f"{type(error).__name__}: {error}".encode())
        os._exit(0)
    os.close(write_end)
    os.waitpid(pid, 0)
    told = os.read(read_end, 4096).decode()
    os.close(read_end)

    assert told.startswith("ManagerStopped")
    assert "fork" in told
    assert isinstance(manager, actorproc.ProcedureManager)
    assert manager.submit(Sleeper(0)).result(30) == "slept"


@dataclass
class TwoSteps(Procedure):
    limits = Limits(crashes=1)
    folder: str
    done: int = 0

    def execute(self, ctx):
        if self.done:
            return Status.done("went on")
        self.done += 1
        pass_through(self.folder, "gate")
        return Status.executing()


def test_no_step_is_blamed_for_a_worker_that_died_while_the_answer_before_was_being_stored(open_manager, gate):
    manager = open_manager(workers=1)
    store = HeldCommits(manager._running().store)
    handle = manager.submit(TwoSteps(gate.folder))
    pid = gate.reached("gate")
    try:
        store.free.clear()
        gate.open("gate")
        assert store.waiting.wait(60)
        os.kill(pid, signal.SIGKILL)
        # There is another one: so the manager has heard of the death.
        wait_until(lambda: [worker.pid for worker in manager.workers() if worker.pid not in (None, pid)])
    finally:
        store.free.set()

    assert handle.result(60) == "went on"
    assert handle.info().crashes == 0
