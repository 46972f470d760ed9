"""What a running step asks its manager, and what its manager asks of it."""

from __future__ import annotations

import os
import signal
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from actorproc import Procedure, Status
from actorproc.errors import ProcedureAborted
from actorproc.model.states import Phase

pytestmark = pytest.mark.processes


@dataclass
class Remembers(Procedure):
    folder: str

    def execute(self, ctx):
        value = ctx.remember("old", os.getpid)
        place = Path(self.folder, "died")
        if not place.exists():
            place.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return Status.done((value, os.getpid()))


@dataclass
class Asks(Procedure):
    about: str

    def execute(self, ctx):
        told = ctx.query(self.about)
        return Status.done((told["id"], told["state"], told["phase"]))


@dataclass
class Long(Procedure):
    def execute(self, ctx):
        for number in range(60_000):
            ctx.heartbeat(0.25, f"at {number}")
            if ctx.aborting:
                return Status.done("stopped early")
            time.sleep(0.001)
        return Status.done("to the end")


@dataclass
class Deaf(Procedure):
    def execute(self, ctx):
        while True:
            time.sleep(1)


def test_a_remembered_value_is_the_same_after_the_worker_died(open_manager, tmp_path):
    remembered, pid = open_manager().run(Remembers(str(tmp_path)))

    assert remembered != pid


def test_a_step_can_ask_about_another_procedure(open_manager):
    manager = open_manager()
    handle = manager.submit(Remembers("/nowhere"), delay=3600)

    assert manager.run(Asks(handle.id)) == (handle.id, "RUNNABLE", "queued")


def test_progress_is_shown_and_an_abort_reaches_the_running_step(open_manager, until):
    manager = open_manager()
    handle = manager.submit(Long())
    until(lambda: handle.info().progress == 0.25)
    assert [worker.message for worker in manager.workers() if worker.procedure == handle.id] != [None]

    assert manager.abort(handle.id) is True

    assert handle.wait(30)


def test_a_forced_abort_kills_a_step_that_does_not_listen(open_manager, until):
    manager = open_manager()
    handle = manager.submit(Deaf())
    until(lambda: handle.info().phase is Phase.RUNNING)

    assert manager.abort(handle.id, force=True) is True

    with pytest.raises(ProcedureAborted):
        handle.result(30)
    assert manager.run(Asks(handle.id))[0] == handle.id


@dataclass
class Stubborn(Procedure):
    """Refuses to be aborted; tells whether the step, or the attempt, after that one still knows."""

    dies: bool

    def execute(self, ctx):
        if ctx.step > 1 or ctx.attempt > 1:
            return Status.done(ctx.aborting)
        ctx.heartbeat(0.5)
        while not ctx.aborting:
            time.sleep(0.001)
        if self.dies:
            os.kill(os.getpid(), signal.SIGKILL)
        return Status.executing()

    def abort(self, ctx):
        return False


@pytest.mark.parametrize("dies", [False, True])
def test_an_abort_that_was_refused_is_seen_by_the_steps_after_it(open_manager, until, dies):
    manager = open_manager()
    handle = manager.submit(Stubborn(dies))
    until(lambda: handle.info().progress == 0.5)

    assert manager.abort(handle.id) is True

    assert handle.result(30) is True
