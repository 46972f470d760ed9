"""A program that may start no more threads and processes: what needs one is refused in words, what runs goes on."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.processes, pytest.mark.skipif(sys.platform != "linux", reason="control groups")]

ROOT = Path(__file__).parents[2]
HOST = """
import os, sys, threading, time
from actorproc import EngineError, Procedure, ProcedureExecutor, ProcedureManager, Status

class Slow(Procedure):
    steps: int = 20
    def execute(self, ctx):
        time.sleep(0.02)
        self.steps -= 1
        return Status.executing() if self.steps else Status.done("well")

GROUP = sys.argv[2]

def running():
    with open(GROUP + "/pids.current") as now:
        return int(now.read())

def allow(most):
    with open(GROUP + "/pids.max", "w") as limit:
        limit.write(str(most))

def wait_for(number):
    # A thread that was joined is counted until the kernel has taken it away.
    until = time.monotonic() + 60
    while running() != number:
        assert time.monotonic() < until, (running(), number)
        time.sleep(0.001)

def main():
    with open(GROUP + "/cgroup.procs", "w") as members:
        members.write(str(os.getpid()))
    alone = len(os.listdir("/proc/self/task"))
    manager = ProcedureManager(sys.argv[1] + "/state", procedures=[Slow], workers=1)
    refused = []
    for room in range(12):
        wait_for(alone)
        allow(alone + room)
        try:
            manager.start()
        except EngineError as error:
            refused.append(type(error).__name__ + ": " + str(error))
            left = [thread.name for thread in threading.enumerate() if thread is not threading.main_thread()]
            assert not left, (room, left)
        else:
            break
        finally:
            allow(5000)
    else:
        manager.start()
    assert refused and any("start 3 threads more" in words for words in refused), refused
    handle = manager.submit(Slow())
    allow(1)  # fewer than there are: nobody who ends makes room
    manager.submit(Slow(), id="no-room")
    try:
        executor = ProcedureExecutor(manager)
        executor.submit(abs, -1)
    except RuntimeError as error:
        print("refused:", error)
    assert handle.result(60) == "well"
    assert manager.get("no-room").result(60) == "well"
    allow(5000)
    assert executor.submit(abs, -1).result(60) == 1
    executor.shutdown()
    print(manager.health().status)
    manager.stop()

if __name__ == "__main__":
    main()
"""


@pytest.fixture
def group(until):
    """A control group of its own, in which the number of processes and threads can be limited."""
    place = Path(f"/sys/fs/cgroup/pids/actorproc-test-{os.getpid()}")
    try:
        place.mkdir()
    except OSError:
        pytest.skip("no control group for numbers of processes to write to")
    yield place
    until(lambda: removed(place))


def removed(place: Path) -> bool:
    """Remove a group and those that a host left in it; each is busy for a moment after its last process has gone."""
    try:
        for inner in sorted((path for path in place.rglob("*") if path.is_dir()), reverse=True):
            inner.rmdir()
        place.rmdir()
    except OSError as error:
        if error.errno != errno.EBUSY:
            raise
        return False
    return True


def test_without_more_threads_a_start_is_refused_in_words_and_what_runs_goes_on(group, tmp_path):
    (tmp_path / "host.py").write_text(HOST)

    done = subprocess.run(
        [sys.executable, str(tmp_path / "host.py"), str(tmp_path), str(group)],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
        timeout=150,
    )

    assert done.stdout.splitlines() == ["refused: can't start new thread", "running"], done.stderr
