"""Steps that start too many processes: seen by the host, and stopped by the kernel before that where it can."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from actorproc import Limits, Procedure, RetryPolicy, Status, WorkerCrashed
from actorproc.errors import ProcedureFailed, UsageError

pytestmark = [pytest.mark.processes, pytest.mark.skipif(sys.platform != "linux", reason="counts in /proc")]

ROOT = Path(__file__).parents[2]
ONCE = RetryPolicy(max_attempts=1)
NAP = "import time; time.sleep(300)"


@dataclass
class Starts(Procedure):
    """Starts so many processes, which tell that they live, and waits."""

    count: int
    folder: str
    wait: float = 300.0
    limits = Limits(processes=4, crashes=1)
    retry = ONCE

    def execute(self, ctx):
        brood = [subprocess.Popen([sys.executable, "-c", NAP]) for _ in range(self.count)]
        Path(self.folder, "brood").write_text(" ".join(str(child.pid) for child in brood))
        time.sleep(self.wait)
        for child in brood:
            child.kill()
            child.wait()
        return Status.done(self.count)


@dataclass
class Bomb(Procedure):
    """Every process it starts starts others, as fast as it can, in the worker's session or out of it."""

    flees: bool = False
    limits = Limits(processes=4, crashes=1)
    retry = ONCE

    def execute(self, ctx):
        while True:
            try:
                if os.fork() == 0 and self.flees:
                    os.setsid()
            except OSError:
                time.sleep(0.2)  # hundreds that try on and on would hold up the machine the tests are on


@dataclass
class Flees(Procedure):
    """What it starts leaves its session, and has no parent any more when the worker dies."""

    folder: str
    limits = Limits(processes=4, crashes=1)

    def execute(self, ctx):
        code = f"""
import os, sys, time
os.setsid()
if os.fork():
    os._exit(0)
open({self.folder + "/fled"!r}, "w").write(str(os.getpid()))
time.sleep(300)
"""
        subprocess.run([sys.executable, "-c", code], check=True)
        until_written = Path(self.folder, "fled")
        while not until_written.exists() or not until_written.read_text():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)


@dataclass
class Sees(Procedure):
    """How many processes this user may have, as the next step of the same worker finds it."""

    def execute(self, ctx):
        import resource

        return Status.done((os.getpid(), resource.getrlimit(resource.RLIMIT_NPROC)))


def lives(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_step_that_starts_too_many_processes_is_killed_with_them(open_manager, tmp_path, until):
    manager = open_manager(workers=2)

    with pytest.raises(ProcedureFailed) as failure:
        manager.submit(Starts(6, str(tmp_path))).result(30)

    cause = failure.value.cause
    assert isinstance(cause, WorkerCrashed)
    assert cause.kind == "process-limit"
    assert "it had started " in str(cause)
    assert "processes that lived, more than its limit of 4" in str(cause)
    assert cause.signal == "SIGKILL"
    until(lambda: not [pid for pid in _brood(tmp_path) if lives(pid)])
    assert manager.submit(Starts(0, str(tmp_path), wait=0.0)).result(30) == 0


def _brood(folder: Path) -> list[int]:
    file = folder / "brood"
    return [int(pid) for pid in file.read_text().split()] if file.exists() else []


def test_a_step_within_its_limit_is_let_alone_and_the_next_one_has_none(open_manager, tmp_path):
    manager = open_manager(workers=1)
    before = manager.submit(Sees()).result(30)

    assert manager.submit(Starts(4, str(tmp_path), wait=0.5)).result(30) == 4

    assert manager.submit(Sees()).result(30) == before


@pytest.mark.parametrize("flees", [False, True], ids=["in its session", "out of its session"])
def test_a_fork_bomb_is_contained_and_fails_its_step_alone(open_manager, until, flees):
    manager = open_manager(workers=2)
    limited_by = manager.health().process_limits
    if limited_by == "sampling" or (flees and limited_by != "cgroup"):
        pytest.skip("nothing here would stop it before it is seen")
    worker = {each.pid for each in manager.workers()}

    with pytest.raises(ProcedureFailed) as failure:
        manager.submit(Bomb(flees)).result(60)

    cause = failure.value.cause
    assert isinstance(cause, WorkerCrashed)
    assert cause.kind == "process-limit"
    assert len(worker & {each.pid for each in manager.workers()}) == 1
    until(lambda: _children_of_nobody(manager) == [])
    assert manager.submit(Sees()).result(30)


def _children_of_nobody(manager) -> list[int]:
    """Copies of workers that live: a forked copy has the environment of its worker."""
    mine = {os.getpid(), *(child.pid for child in psutil.Process().children())}
    found = []
    for process in psutil.process_iter(["environ", "status"]):
        marked = (process.info["environ"] or {}).get("PYTEST_CURRENT_TEST") == os.environ["PYTEST_CURRENT_TEST"]
        if marked and process.pid not in mine and process.info["status"] != psutil.STATUS_ZOMBIE:
            found.append(process.pid)
    return found


def test_who_fled_from_a_limited_step_ends_with_its_worker(open_manager, tmp_path, until):
    manager = open_manager(workers=1)
    if manager.health().process_limits != "cgroup":
        pytest.skip("who has left the session and has no parent is found in a control group only")

    with pytest.raises(ProcedureFailed):
        manager.submit(Flees(str(tmp_path))).result(30)

    until(lambda: not lives(int((tmp_path / "fled").read_text())))


AS_ANOTHER_USER = """
import os, resource, sys, time
from actorproc.workers.child.process_state.process_limit import ProcessLimit
from actorproc.workers.os.usage import is_above_rlimits

if os.geteuid() == 0:
    os.setgid(54321)
    os.setuid(54321)  # a user with nothing else running
assert not is_above_rlimits()
before = resource.getrlimit(resource.RLIMIT_NPROC)
children = []
with ProcessLimit().put(3):
    while True:
        try:
            pid = os.fork()
        except BlockingIOError:
            break
        if pid == 0:
            time.sleep(300)
            os._exit(0)
        children.append(pid)
for pid in children:
    os.kill(pid, 9)
for pid in children:
    os.waitpid(pid, 0)
print(len(children), resource.getrlimit(resource.RLIMIT_NPROC) == before)
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs a user with nothing else running")
def test_without_control_groups_the_kernel_refuses_a_users_processes_some_way_above_the_limit():
    done = subprocess.run(
        [sys.executable, "-c", AS_ANOTHER_USER],
        env=os.environ | {"PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )

    if "Permission" in done.stderr or "ModuleNotFound" in done.stderr:
        pytest.skip("another user cannot read this package")
    count, is_as_before = done.stdout.split()
    # The threads that were used to ask the kernel for the number count until they have ended.
    assert 200 <= int(count) <= 3 + 256 + 40
    assert is_as_before == "True"


def test_a_privileged_program_has_no_such_limit_of_its_user():
    if os.geteuid() != 0:
        pytest.skip("not root")
    from actorproc.workers.child.process_state.process_limit import ProcessLimit
    from actorproc.workers.os.usage import is_above_rlimits

    assert is_above_rlimits()
    import resource

    before = resource.getrlimit(resource.RLIMIT_NPROC)
    with ProcessLimit().put(1):
        assert resource.getrlimit(resource.RLIMIT_NPROC) == before


@pytest.mark.parametrize("value", [0, -1, 1.5, "many", True])
def test_a_number_of_processes_is_a_whole_number(value):
    with pytest.raises(UsageError, match="processes"):
        Limits(processes=value)


def test_processes_are_counted_for_a_whole_worker_and_not_for_threads():
    with pytest.raises(UsageError, match=r"threads=2.*processes"):
        Limits(threads=2, processes=3)
