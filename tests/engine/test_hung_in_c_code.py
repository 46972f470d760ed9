"""Steps that hang in calls of C code which end early when a signal comes: no end of theirs may count as their own."""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from dataclasses import dataclass

import pytest

from actorproc import Limits, Procedure, ProcedureFailed, Status, StepTimeout
from actorproc.workers.os.thread_signal import signal_thread
from tests.kit.waiting import wait_until

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="a signal to one thread of a process is of Linux"),
]

SLEEPS = ("sleep", "sleep with the GIL", "usleep", "poll", "select")


def hang(how: str) -> int:
    """Sleep in a C function; its result, once a signal has interrupted it."""
    libc = ctypes.CDLL(None, use_errno=True)
    if how == "sleep with the GIL":
        return int(ctypes.PyDLL(None).sleep(3600))
    if how == "sleep":
        return int(libc.sleep(3600))
    if how == "usleep":
        return int(libc.usleep(2_000_000_000))
    if how == "poll":
        return int(libc.poll(None, 0, 3_600_000))
    return int(libc.select(0, None, None, None, None))


@dataclass
class Hangs(Procedure):
    how: str

    def execute(self, ctx):
        if ctx.attempt > 1:
            return Status.done("ran again")
        return Status.done(f"interrupted: {hang(self.how)}")


def is_hanging(manager):
    return manager.info("hangs").phase == "running" and " in hang" in manager.stack("hangs")


@pytest.mark.parametrize("how", SLEEPS)
def test_an_attempt_that_an_operator_kills_gives_no_answer(how, open_manager):
    manager = open_manager(workers=1)
    handle = manager.submit(Hangs(how), id="hangs", limits=Limits(grace=30))
    wait_until(lambda: is_hanging(manager))

    assert manager.kill("hangs") is True

    assert handle.result(timeout=60) == "ran again"
    (attempt,) = manager.attempts("hangs")
    assert attempt.error.kind == "killed"
    assert " in hang" in attempt.error.crash.stack


@pytest.mark.parametrize("limits", [Limits(wall_time=0.5), Limits(heartbeat=0.5)], ids=["wall_time", "heartbeat"])
@pytest.mark.parametrize("how", SLEEPS)
def test_one_past_a_limit_has_failed_by_it(how, limits, open_manager):
    manager = open_manager(workers=1)

    with pytest.raises(ProcedureFailed) as failed:
        manager.run(Hangs(how), timeout=60, limits=limits)

    assert isinstance(failed.value.cause, StepTimeout)


@pytest.mark.parametrize("how", SLEEPS)
def test_a_look_at_its_stack_does_not_end_the_call(how, open_manager):
    manager = open_manager(workers=1)
    handle = manager.submit(Hangs(how), id="hangs")
    wait_until(lambda: is_hanging(manager))

    assert " in hang" in manager.stack("hangs")  # again: the call goes on after a look

    assert not handle.done()
    manager.kill("hangs")
    assert handle.result(timeout=60) == "ran again"


def test_a_thread_that_is_not_there_is_told_of():
    assert signal_thread(os.getpid(), 2**30, 0) is False
    assert signal_thread(os.getpid(), threading.get_native_id(), 0) is True
