"""Worker slots: which deaths park one, and how it comes back."""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import Future
from dataclasses import dataclass
from unittest.mock import Mock

import pytest

from actorproc import Config, Procedure, Status
from actorproc.engine.messages import Booted, Gone, LaunchAll
from actorproc.engine.supervisor_actor import SupervisorActor, SupervisorParts
from actorproc.engine.workers.restart_policy import SlotRestarts, is_killed_from_outside
from actorproc.errors import InternalError, WorkerBootFailed
from actorproc.model.crash_report import CrashReport
from actorproc.model.ids import WorkerId
from actorproc.testing import VirtualClock
from actorproc.workers.pool import pool_thread
from tests.kit.clocks import HandClock


@dataclass
class Job(Procedure):
    def execute(self, ctx):
        return Status.done("done")


def idle_worker(manager, slot=0):
    return next((each for each in manager.workers() if each.slot == slot and each.state == "idle"), None)


def end_idle_worker(manager, until, number, slot=0):
    """Send a signal to the idle worker of a slot; returns once it is gone."""
    worker = until(lambda: idle_worker(manager, slot))
    os.kill(worker.pid, number)
    until(lambda: worker.pid not in [each.pid for each in manager.workers()])


@pytest.mark.processes
@pytest.mark.parametrize(
    ("number", "spares"), [(signal.SIGKILL, 0), (signal.SIGKILL, 1), (signal.SIGTERM, 0)],
    ids=["SIGKILL", "SIGKILL with a spare", "SIGTERM"],
)  # fmt: skip
def test_a_storm_of_kills_of_idle_workers_parks_no_slot(open_manager, until, number, spares):
    fatal = []
    config = Config(restart_limit=2, spares=spares)
    manager = open_manager(workers=2, config=config, on_fatal=fatal.append)

    for _ in range(3):
        end_idle_worker(manager, until, number, slot=0)
        end_idle_worker(manager, until, number, slot=1)

    assert manager.submit(Job()).result(30) == "done"
    assert [slot.state for slot in manager.health().slots if slot.state == "parked"] == []
    assert all(slot.restarts >= 3 for slot in manager.health().slots)
    assert until(lambda: manager.health().ok)
    assert fatal == []


@pytest.mark.processes
def test_an_engine_whose_slots_are_all_parked_comes_back_by_itself(open_manager, until):
    fatal = []
    config = Config(restart_limit=1, spares=0, parked_for=1.0)
    manager = open_manager(workers=1, config=config, on_fatal=fatal.append)

    end_idle_worker(manager, until, signal.SIGABRT)
    until(lambda: fatal)
    health = manager.health()
    waiting = manager.submit(Job())

    assert (health.status, health.slots[0].state) == ("failed", "parked")
    assert waiting.result(30) == "done"
    until(lambda: manager.health().ok)
    assert manager.health().slots[0].reason is None
    # The next failure within the period is judged by the one trial it had, and told again.
    end_idle_worker(manager, until, signal.SIGABRT)
    until(lambda: len(fatal) == 2)


@pytest.mark.processes
def test_one_parked_slot_is_degraded_until_its_trial_boots(open_manager, until, tmp_path, monkeypatch):
    (tmp_path / "moody.py").write_text(
        "from pathlib import Path\n"
        f"if Path({str(tmp_path / 'mood')!r}).exists(): raise RuntimeError('not in the mood')\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    config = Config(restart_limit=2, spares=0, parked_for=0.2)
    manager = open_manager(workers=2, config=config, preload=["moody"])

    (tmp_path / "mood").touch()
    end_idle_worker(manager, until, signal.SIGKILL)
    degraded = until(lambda: (health := manager.health()).status == "degraded" and health)

    assert "worker slot 0 is parked: the import of 'moody' (preload) failed" in degraded.problems[0]
    assert manager.submit(Job()).result(30) == "done"  # the other slot works
    restarts = manager.health().slots[0].restarts
    until(lambda: manager.health().slots[0].restarts > restarts)  # a trial that fails
    assert manager.health().status == "degraded"
    (tmp_path / "mood").unlink()
    until(lambda: manager.health().ok)


@pytest.mark.processes
def test_a_worker_that_never_boots_is_ended_and_told_of(open_manager, until, tmp_path, monkeypatch):
    (tmp_path / "hangs.py").write_text(
        "import threading\n"
        "from pathlib import Path\n"
        f"while Path({str(tmp_path / 'hanging')!r}).exists(): threading.Event().wait(0.01)\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    fatal, clock = [], VirtualClock()
    config = Config(spares=0, parked_for=30.0)
    manager = open_manager(workers=1, config=config, clock=clock, preload=["hangs"], on_fatal=fatal.append)

    def next_look():
        """Seconds until the supervisor looks again, once it has looked at all that is due."""
        return until(lambda: max(0.0, (manager._tree._alarm.next_at("supervisor") or 0.0) - clock.monotonic()))

    (tmp_path / "hanging").touch()
    end_idle_worker(manager, until, signal.SIGKILL)
    until(lambda: any(each.state == "booting" for each in manager.workers()))
    clock.advance(1000.0)  # that the clock is moved is not held against it
    seconds = next_look()
    assert manager.health().slots[0].state == "booting"
    clock.advance(seconds)
    until(lambda: fatal)
    health = manager.health()
    assert (health.status, health.slots[0].state) == ("failed", "parked")
    assert "not ready within 60 s" in health.problems[0]

    (tmp_path / "hanging").unlink()
    clock.advance(next_look())
    assert manager.submit(Job()).result(30) == "done"
    until(lambda: manager.health().ok)


def test_a_trial_that_fails_parks_the_slot_for_twice_as_long_and_one_that_lives_forgets():
    past = SlotRestarts(limit=3, period=30.0, parked_for=10.0)
    assert [past.failed(0.0), past.failed(1.0)] == pytest.approx([0.1, 0.2], rel=0.25)
    assert past.failed(2.0) is None
    assert past.parked() == pytest.approx(10.0, rel=0.25)

    assert past.failed(12.0) is None  # could not boot
    assert past.parked() == pytest.approx(20.0, rel=0.25)
    past.booted(40.0)
    assert past.failed(50.0) is None  # died soon
    assert past.parked() == pytest.approx(40.0, rel=0.25)
    for _ in range(10):
        last = past.parked()
    assert last == pytest.approx(320.0, rel=0.25)

    past.booted(1000.0)
    assert past.failed(1031.0) == pytest.approx(0.1, rel=0.25)
    assert past.failed(1032.0) is not None
    assert past.failed(1033.0) is None
    assert past.parked() == pytest.approx(10.0, rel=0.25)


def test_kills_from_outside_cost_short_pauses_and_never_the_slot():
    past = SlotRestarts(limit=1, period=30.0, parked_for=10.0)

    pauses = [past.killed(second / 10) for second in range(200)]

    assert pauses[0] == 0.0
    assert all(0.0 < pause <= 1.25 for pause in pauses[1:])
    assert past.killed(1000.0) == 0.0


@pytest.mark.parametrize(
    ("report", "outside"),
    [
        (CrashReport(kind="signal", message="", signal="SIGKILL"), True),
        (CrashReport(kind="signal", message="", signal="SIGTERM"), True),
        (CrashReport(kind="out-of-memory", message="", signal="SIGKILL"), True),
        (CrashReport(kind="exit", message="", code=0), True),  # SIGTERM, answered in order
        (CrashReport(kind="exit", message="", code=1), False),
        (CrashReport(kind="signal", message="", signal="SIGSEGV"), False),
        (CrashReport(kind="protocol", message="", code=96), False),
        (CrashReport(kind="memory-limit", message="", signal="SIGKILL"), False),
    ],
)
def test_who_ended_an_idle_worker_is_told_by_its_report(report, outside):
    assert is_killed_from_outside(report) is outside


@pytest.mark.processes
def test_a_bug_in_the_pool_of_workers_breaks_the_engine_loudly(open_manager, until, monkeypatch):
    fatal = []
    manager = open_manager(workers=1, on_fatal=fatal.append)

    def fail(**_):
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(pool_thread, "WorkerProcess", fail)
    worker = until(lambda: idle_worker(manager))
    os.kill(worker.pid, signal.SIGKILL)
    until(lambda: fatal)

    assert "a bug of ours" in str(fatal[0])
    assert manager.health().status == "broken"
    with pytest.raises(InternalError):
        manager.submit(Job())


@pytest.mark.processes
def test_a_bug_is_told_also_when_all_slots_were_parked_before(open_manager, until, monkeypatch):
    fatal = []
    config = Config(restart_limit=1, spares=0, parked_for=600.0)
    manager = open_manager(workers=1, config=config, on_fatal=fatal.append)
    end_idle_worker(manager, until, signal.SIGABRT)
    until(lambda: fatal)

    def fail(**_):
        raise ZeroDivisionError("a bug of ours")

    monkeypatch.setattr(pool_thread, "WorkerProcess", fail)
    manager.resize(2)
    until(lambda: len(fatal) == 2)

    assert [type(error) for error in fatal] == [WorkerBootFailed, InternalError]
    assert manager.health().status == "broken"
    until(lambda: manager._tree.pool._thread.thread.is_alive() is False)


@pytest.mark.processes
def test_who_asks_a_broken_engine_again_and_again_does_not_gather_what_the_others_held(
    open_manager, until, monkeypatch
):
    fatal = []
    manager = open_manager(workers=1, on_fatal=fatal.append)
    monkeypatch.setattr(pool_thread, "WorkerProcess", None)
    os.kill(until(lambda: idle_worker(manager)).pid, signal.SIGKILL)
    until(lambda: fatal)

    depths = []
    for _ in range(3):
        with pytest.raises(InternalError) as refused:
            manager.submit(Job())
        depths.append(len(refused.traceback))

    assert depths == [depths[0]] * 3


@pytest.mark.processes
def test_a_variable_that_another_thread_removes_keeps_no_worker_from_starting(open_manager, until, monkeypatch):
    class Changing(dict):
        is_changed = False

        def items(self):
            if not Changing.is_changed:
                Changing.is_changed = True
                raise KeyError("a variable that is gone")
            return super().items()

    monkeypatch.setattr(os, "environ", Changing(os.environ))
    manager = open_manager(workers=1)  # workers begin with the environment that a start found
    os.kill(until(lambda: idle_worker(manager)).pid, signal.SIGKILL)

    assert manager.submit(Job()).result(30) == "done"
    assert Changing.is_changed


@pytest.mark.parametrize("one_boots", [True, False])
def test_a_start_counts_a_worker_that_booted_also_when_it_has_died_again(one_boots):
    """The other one cannot start, and says so later."""
    parts = SupervisorParts(
        config=Config(), clock=HandClock(), alarm=Mock(), pool=Mock(), slots=2, replies=Mock(),
        on_failed=Mock(), on_slot=Mock(), on_recovered=Mock(), on_broken=Mock(),
    )  # fmt: skip
    supervisor, started = SupervisorActor(parts), Future()
    first, second = WorkerId(0, 1), WorkerId(1, 1)
    report = CrashReport(kind="exit", message="exited with code 1", code=1)

    supervisor.on_receive(LaunchAll(started))
    if one_boots:
        supervisor.on_receive(Booted(first))
    supervisor.on_receive(Gone(first, report, booted=one_boots, idle=True))
    assert not started.done()
    supervisor.on_receive(Gone(second, report, booted=False, idle=True))

    assert isinstance(started.exception(0), WorkerBootFailed) is not one_boots
    parts.on_broken.assert_not_called()
