"""Limits of steps, enforced on real workers; workers of one's own; workers that are replaced in time."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from actorproc import Limits, Procedure, RetryPolicy, Status
from actorproc.config import Config
from actorproc.errors import ProcedureFailed, StepTimeout, UsageError, WorkerCrashed

pytestmark = pytest.mark.processes

MIB = 1024 * 1024
ONCE = RetryPolicy(max_attempts=1)


@dataclass
class Burn(Procedure):
    """Uses the processor, itself or through a child process."""

    how: str = "python"
    limits = Limits(cpu_time=0.4, grace=0.2)
    retry = ONCE

    def execute(self, ctx):
        if self.how == "child":
            subprocess.run([sys.executable, "-c", "while True: pass"], check=False)
        elif self.how == "c":
            sum(range(10**13))
        while True:
            pass


@dataclass
class Sleepy(Procedure):
    seconds: float
    limits = Limits(cpu_time=0.2, memory_hard=4000 * MIB)

    def execute(self, ctx):
        time.sleep(self.seconds)
        return Status.done("rested")


@dataclass
class Grow(Procedure):
    how: str = "self"
    limits = Limits(memory_hard=250 * MIB, crashes=1)

    def execute(self, ctx):
        if self.how == "child":
            code = "import time; kept = b'x' * (400 * 1024 * 1024); time.sleep(60)"
            subprocess.run([sys.executable, "-c", code], check=False)
        kept = []
        while True:
            kept.append(b"x" * (4 * MIB))
            time.sleep(0.002)


@dataclass
class Greedy(Procedure):
    limits = Limits(memory=100 * MIB)

    def execute(self, ctx):
        return Status.done(len(bytearray(400 * MIB)))


@dataclass
class Here(Procedure):
    """Says which process it runs in, step by step."""

    steps: int = 1
    pause: float = 0.0
    seen: tuple[int, ...] = ()

    def execute(self, ctx):
        self.seen += (os.getpid(),)
        if len(self.seen) < self.steps:
            return Status.executing(after=self.pause)
        return Status.done(list(self.seen))


@dataclass
class HereAlone(Here):
    limits = Limits(dedicated=True)


@dataclass
class DieAlone(Procedure):
    folder: str
    limits = Limits(dedicated=True)

    def execute(self, ctx):
        if not ctx.replayed:
            os.abort()
        return Status.done(os.getpid())


@dataclass
class Meet(Procedure):
    """Waits until so many are here at once."""

    folder: str
    count: int
    limits = Limits(threads=4, wall_time=60.0)

    def execute(self, ctx):
        Path(self.folder, ctx.id).touch()
        print(f"{ctx.id} is in")  # noqa: T201
        while len(list(Path(self.folder).iterdir())) < self.count:
            time.sleep(0.005)
        return Status.done(os.getpid())


@dataclass
class LateInCompany(Procedure):
    """One of several at once; this one takes too long."""

    folder: str
    limits = Limits(threads=4, wall_time=0.3, grace=0.1)
    retry = ONCE

    def execute(self, ctx):
        Path(self.folder, ctx.id).touch()
        time.sleep(60)


@pytest.mark.parametrize("how", ["python", "c", "child"])
def test_a_step_past_its_cpu_time_is_killed_also_inside_c_code_and_child_processes(open_manager, how):
    manager = open_manager(workers=1)

    handle = manager.submit(Burn(how))
    with pytest.raises(ProcedureFailed) as failure:
        handle.result(30)

    cause = failure.value.cause
    assert isinstance(cause, StepTimeout)
    assert cause.kind == "cpu-limit"
    assert "of CPU time, more than its cpu_time of 0.4 s" in str(cause)
    assert "execute" in cause.stack
    assert cause.cpu_time is not None
    assert manager.run(Here()) != []


def test_waiting_costs_no_cpu_time(open_manager):
    manager = open_manager(workers=1)

    assert manager.submit(Sleepy(1.0)).result(30) == "rested"


@pytest.mark.parametrize("how", ["self", "child"])
def test_a_step_beyond_its_hard_memory_is_killed_with_what_it_started(open_manager, how):
    manager = open_manager(workers=2)

    with pytest.raises(ProcedureFailed) as failure:
        manager.submit(Grow(how)).result(30)

    cause = failure.value.cause
    assert isinstance(cause, WorkerCrashed)
    assert cause.kind == "memory-limit"
    assert "more than its memory_hard of 262 MB" in str(cause)
    assert cause.peak_rss is not None
    assert cause.peak_rss > 250 * MIB
    assert cause.duration is not None
    assert len(manager.run(Here(steps=3))) == 3


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_DATA counts allocation on Linux only")
def test_a_step_beyond_its_memory_fails_as_any_step_that_raises(open_manager):
    manager = open_manager(workers=1)

    with pytest.raises(ProcedureFailed) as failure:
        manager.submit(Greedy()).result(30)

    assert "MemoryError" in str(failure.value)
    assert manager.workers()[0].restarts == 0


def test_limits_given_with_a_submit_hold_instead_of_those_of_the_class(open_manager):
    manager = open_manager(workers=1)

    patient = manager.submit(Sleepy(0.5), limits=Limits(wall_time=30.0))
    hasty = manager.submit(Burn(), limits=Limits(wall_time=0.2, grace=0.1))

    assert patient.result(30) == "rested"
    with pytest.raises(ProcedureFailed, match=r"ran longer than its wall time of 0\.2 s"):
        hasty.result(30)
    with pytest.raises(TypeError, match="limits is a Limits"):
        manager.submit(Here(), limits={"wall_time": 3})


def test_given_limits_outlive_a_restart(open_manager):
    first = open_manager(workers=1)
    first.pause()
    first.submit(Burn(), id="job", limits=Limits(wall_time=0.2, grace=0.1))
    first.stop()

    second = open_manager(workers=1, procedures=[Burn])
    second.resume()

    with pytest.raises(ProcedureFailed, match=r"wall time of 0\.2 s"):
        second.get("job").result(30)


def test_limits_that_cannot_go_together_are_refused():
    with pytest.raises(UsageError, match=r"threads=2.*memory"):
        Limits(threads=2, memory=MIB)


# ---------------------------------------------------------------------- dedicated
def test_a_dedicated_procedure_has_one_process_for_its_life_and_nobody_else_has_it(open_manager, until):
    manager = open_manager(workers=1)

    handle = manager.submit(HereAlone(steps=4, pause=0.05))
    others = {pid for _ in range(5) for pid in manager.run(Here())}
    seen = handle.result(30)

    assert len(set(seen)) == 1
    assert not others & set(seen)
    until(lambda: [worker.slot for worker in manager.workers()] == [0])


def test_more_dedicated_procedures_than_allowed_wait_their_turn(open_manager, until):
    manager = open_manager(workers=1, config=Config(max_dedicated=2))

    handles = manager.submit_many(HereAlone(steps=3, pause=0.02) for _ in range(6))
    seen = [handle.result(60) for handle in handles]

    assert all(len(set(pids)) == 1 for pids in seen)
    until(lambda: len(manager.workers()) == 1)


def test_a_dedicated_worker_that_dies_is_replaced_by_another_of_its_own(open_manager, tmp_path):
    manager = open_manager(workers=1)

    handle = manager.submit(DieAlone(str(tmp_path)))

    assert handle.result(30) not in {worker.pid for worker in manager.workers() if worker.slot == 0}
    crash = manager.steps(handle.id)[-1].crash
    assert crash is not None
    assert crash.crash.signal == "SIGABRT"


def test_dedicated_workers_end_with_their_manager(open_manager, until):
    manager = open_manager(workers=1)
    manager.submit(HereAlone(steps=2, pause=60.0), id="sleeper")
    until(lambda: manager.info("sleeper").phase == "sleeping")
    pids = [worker.pid for worker in manager.workers()]
    assert len(pids) == 2

    manager.stop()

    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


# ---------------------------------------------------------------------- threads
def test_steps_that_wait_run_at_once_in_one_worker(open_manager, tmp_path, until):
    manager = open_manager(workers=2)
    names = [f"guest-{number}" for number in range(4)]

    handles = manager.submit_many((name, Meet(str(tmp_path), 4)) for name in names)
    pids = {handle.result(30) for handle in handles}

    assert len(pids) == 1
    for name in names:  # what is printed has a pipe of its own, and may come after the answer
        until(lambda name=name: [entry.text for entry in manager.logs(name)] == [f"{name} is in"])


def test_a_late_step_among_others_is_killed_and_the_others_run_again(open_manager, tmp_path, until):
    manager = open_manager(workers=1)
    late = manager.submit(LateInCompany(str(tmp_path)), id="late")
    other = manager.submit(Meet(str(tmp_path), 3), id="other")

    with pytest.raises(ProcedureFailed, match=r"wall time of 0\.3 s"):
        late.result(30)
    (tmp_path / "third").touch()

    assert isinstance(other.result(30), int)
    assert manager.info("other").crashes == 0


# ---------------------------------------------------------------------- recycling
@pytest.mark.parametrize(
    "config",
    [Config(recycle_steps=5), Config(recycle_age=0.05), Config(recycle_steps=3, spares=0)],
    ids=["steps", "age", "without a spare"],
)
def test_workers_are_replaced_between_steps_and_no_step_notices(open_manager, until, config):
    manager = open_manager(workers=1, config=config)

    handle = manager.submit(Here(steps=20, pause=0.005))
    seen = handle.result(60)

    assert len(seen) == 20
    assert len(set(seen)) > 1
    assert manager.info(handle.id).crashes == 0
    assert all(step.attempts <= 1 for step in manager.steps(handle.id))
    assert manager.health().status == "running"
