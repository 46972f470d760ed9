"""A process that is gone leaves its number to a stranger, whom nobody may hit who means the one before."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from actorproc.workers.os.process import WorkerProcess
from actorproc.workers.os.usage import kill_all
from actorproc.workers.protocol.host_program import StartPlace
from tests.kit.waiting import wait_until

ROOT = Path(__file__).parents[2]

REUSED = """
import os, signal, subprocess, sys, time
import psutil
from actorproc.workers.protocol.host_program import StartPlace
from actorproc.workers.os.process import WorkerProcess
from actorproc.workers.os.usage import kill_all

signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel collects our children, and their numbers are free at once
process = WorkerProcess(executable=sys.executable, place=StartPlace(), label="worker", use_pidfd=sys.argv[1] == "pidfd")
number = process.pid
seen = psutil.Process(number)
time.sleep(0.05)  # processes that start in the same hundredth of a second have the same start time
os.kill(number, signal.SIGKILL)
while os.path.exists(f"/proc/{number}"):
    time.sleep(0.001)
for _ in range(1000):
    with open("/proc/sys/kernel/ns_last_pid", "w") as file:
        file.write(str(number - 1))
    # setsid makes the stranger the leader of a group of that number, as a worker is
    stranger = subprocess.Popen(["sleep", "300"], start_new_session=True)
    if stranger.pid == number:
        break
    os.kill(stranger.pid, signal.SIGKILL)
assert stranger.pid == number, (stranger.pid, number)

process.signal(signal.SIGTERM)
process.kill_group()
kill_all([seen])
assert process.reap() is not None
process.signal(signal.SIGKILL)
process.kill_group()
time.sleep(0.2)
lives = os.path.exists(f"/proc/{number}") and psutil.Process(number).name() == "sleep"
os.killpg(number, signal.SIGKILL)  # who does not look first hits it
while os.path.exists(f"/proc/{number}"):
    time.sleep(0.001)
print("the stranger lived" if lives else "the stranger was killed")
"""


@pytest.mark.parametrize("how", ["pidfd", "number"])
def test_who_gets_the_number_of_a_dead_worker_is_not_signalled(how: str) -> None:
    command = ["unshare", "--pid", "--fork", "--mount-proc", sys.executable, "-c", REUSED, how]
    try:
        done = subprocess.run(
            command, env=os.environ | {"PYTHONPATH": str(ROOT)}, capture_output=True, text=True, timeout=60, check=False
        )
    except FileNotFoundError:
        pytest.skip("no unshare")
    if "unshare" in done.stderr or "ns_last_pid" in done.stderr:
        pytest.skip(f"no process numbers of one's own here: {done.stderr.strip()[-200:]}")

    assert done.stdout == "the stranger lived\n", done.stderr


def test_a_number_that_is_a_strangers_by_now_is_left_alone_without_namespaces_too() -> None:
    """The same decision where the number is another process's: one that is no child of ours and leads a group."""
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import subprocess; print(subprocess.Popen(['sleep', '300'], stdout=-3, start_new_session=True).pid)",
        ],
        stdout=subprocess.PIPE,
        text=True,
    )
    stranger = psutil.Process(int(parent.communicate()[0]))
    process = WorkerProcess(executable=sys.executable, place=StartPlace(), label="worker", use_pidfd=False)
    ours = process.pid
    try:
        process.pid = stranger.pid

        process.signal(signal.SIGKILL)
        process.kill_group()

        with pytest.raises(psutil.TimeoutExpired):
            stranger.wait(0.3)
    finally:
        process.pid = ours
        process.kill_group()
        wait_until(lambda: process.reap() is not None)
        process.close()
        stranger.kill()


def test_a_worker_that_is_dead_and_not_collected_still_owns_its_number_and_its_group_is_killed() -> None:
    process = WorkerProcess(executable=sys.executable, place=StartPlace(), label="worker")
    os.kill(process.pid, signal.SIGKILL)
    wait_until(process.is_over)

    process.kill_group()
    process.signal(signal.SIGTERM)

    status = process.reap()
    assert status is not None
    assert status[0] is not None
    assert os.WTERMSIG(status[0]) == signal.SIGKILL
    process.signal(signal.SIGTERM)
    process.kill_group()
    process.close()


def test_descendants_are_known_by_number_and_start_time() -> None:
    child = subprocess.Popen(["sleep", "300"])
    known = psutil.Process(child.pid)
    known._create_time = known.create_time() - 100.0  # as if the number had been another's when it was seen
    known._ident = (known.pid, known._create_time)
    try:
        kill_all([known])

        with pytest.raises(subprocess.TimeoutExpired):
            child.wait(0.2)
    finally:
        child.kill()
        child.wait()
