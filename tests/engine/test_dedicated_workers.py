"""Workers that belong to one procedure each and cannot boot."""

from __future__ import annotations

import sys
from dataclasses import dataclass

import pytest

from actorproc import Limits, Procedure, ProcedureFailed, Status
from actorproc.engine.workers.dedicated_workers import DedicatedWorkers
from actorproc.model.crash_report import CrashReport
from actorproc.model.ids import WorkerId
from actorproc.model.slots import dedicated_slot, host_of
from actorproc.support.clock import SystemClock
from actorproc.testing import VirtualClock
from tests.kit.waiting import BOUND

LATER = 1e9


@dataclass
class Alone(Procedure):
    limits = Limits(dedicated=True)

    def execute(self, ctx):
        return Status.done("done")


@dataclass
class Parent(Procedure):
    def execute(self, ctx):
        if not ctx.children:
            return Status.suspended([Alone()])
        return Status.done([child.output for child in ctx.children.values()])


class Launches:
    """A pool that only remembers which workers it was to launch, and to stop."""

    def __init__(self) -> None:
        self.workers: list[WorkerId] = []
        self.stopped: list[WorkerId] = []

    def forget_spares(self) -> None:
        """There are none."""

    def stop(self, worker: WorkerId) -> None:
        self.stopped.append(worker)

    def launch(self, worker: WorkerId, *, replace: bool = False) -> None:
        self.workers.append(worker)


def cannot_boot(dedicated: DedicatedWorkers, pool: Launches) -> None:
    dedicated.died(pool.workers[-1], CrashReport(kind="boot", message="as planned"), booted=False)


def test_a_worker_that_never_boots_is_ended_and_tried_again():
    pool, clock = Launches(), VirtualClock()
    dedicated = DedicatedWorkers(pool, clock, boot_limit=60.0)
    dedicated.want("p")
    clock.advance(1000.0)  # that the clock is moved is not held against it
    dedicated.retry(clock.monotonic(), lambda _: True)
    assert pool.stopped == []

    at = dedicated.next_retry()
    assert at is not None
    dedicated.retry(at, lambda _: True)
    assert pool.stopped == pool.workers
    dedicated.died(pool.workers[0], CrashReport(kind="stopped", message="as asked"), booted=False)
    clock.advance(1000.0)
    dedicated.retry(clock.monotonic(), lambda _: True)

    assert len(pool.workers) == 2
    dedicated.booted(pool.workers[1])
    assert dedicated.next_retry() is None


def test_a_worker_that_cannot_boot_is_tried_again_while_its_procedure_wants_it():
    pool = Launches()
    dedicated = DedicatedWorkers(pool, SystemClock())
    dedicated.want("p")
    cannot_boot(dedicated, pool)

    dedicated.retry(LATER, lambda name: name == "p")

    assert len(pool.workers) == 2
    assert dedicated.next_retry() is None


def test_a_worker_that_cannot_boot_is_forgotten_when_its_procedure_wants_it_no_more():
    pool = Launches()
    dedicated = DedicatedWorkers(pool, SystemClock())
    dedicated.want("p")
    cannot_boot(dedicated, pool)

    dedicated.retry(LATER, lambda _: False)
    assert len(pool.workers) == 1
    assert dedicated.next_retry() is None

    dedicated.want("p")  # asked for anew
    assert len(pool.workers) == 2


@pytest.mark.processes
def test_after_an_abort_no_worker_is_tried_any_more_and_after_a_retry_there_is_one(
    open_manager, until, tmp_path, monkeypatch
):
    (tmp_path / "moody.py").write_text(
        "from pathlib import Path\n"
        f"if Path({str(tmp_path / 'mood')!r}).exists(): raise RuntimeError('not in the mood')\n"
    )
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    tried = []
    monkeypatch.setattr(
        DedicatedWorkers, "retry", lambda self, *rest, do=DedicatedWorkers.retry: (do(self, *rest), tried.append(self))
    )
    manager = open_manager(workers=1, preload=["moody"])
    (tmp_path / "mood").touch()
    handle = manager.submit(Parent())
    until(lambda: any(each.next_retry() is not None for each in tried))

    manager.abort(handle.id)
    with pytest.raises(ProcedureFailed):
        handle.result(BOUND)
    until(lambda: tried[-1].next_retry() is None and not tried[-1]._workers)

    (tmp_path / "mood").unlink()
    manager.retry(handle.id)
    assert manager.get(handle.id).result(BOUND) == ["done"]


def test_a_host_that_leaves_takes_its_unbooted_workers_along_and_starts_none():
    pool = Launches()
    dedicated = DedicatedWorkers(pool, SystemClock())
    dedicated.hosts["h3"] = 3
    dedicated.want("early", "h3")
    dedicated.want("booted", "h3")
    early, booted = pool.workers
    assert [host_of(worker.slot) for worker in pool.workers] == [3, 3]
    dedicated.booted(booted)

    dedicated.left("h3", 3)
    dedicated.died(early, CrashReport(kind="host-lost", message="gone"), booted=False)
    dedicated.want("late", "h3")

    assert len(pool.workers) == 2, "the core asks for others when it hears that the host has left"
    assert (dedicated.procedure_of(early), dedicated.procedure_of(booted)) == (None, "booted")
    assert dedicated.next_retry() is None
    dedicated.hosts["h4"] = 4
    dedicated.want("early", "h4")
    assert host_of(pool.workers[-1].slot) == 4


def test_an_adopted_worker_takes_no_number_twice():
    pool = Launches()
    dedicated = DedicatedWorkers(pool, SystemClock())
    dedicated.hosts["h1"] = 1
    dedicated.adopt(WorkerId(*dedicated_slot(1, 4)), "old")

    dedicated.want("old", "h1")
    dedicated.want("new", "h1")

    assert pool.workers == [WorkerId(*dedicated_slot(1, 5))]
