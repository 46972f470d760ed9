"""What a worker says while the store refuses commits: what needs no store counts at once, the rest in its order."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from actorproc.engine.pipeline.in_flight import InFlightTable
from actorproc.engine.pipeline.step_reports import StepReports
from actorproc.engine.pipeline.store_outage import StoreOutage
from actorproc.engine.runtime.type_table import TypeTable
from actorproc.engine.workers.host_code import HostCode
from actorproc.engine.workers.worker_messages import WorkerMessageHandler
from actorproc.model.crash_report import CrashReport
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.commands import RunStep
from actorproc.model.messages.definitions import Definition
from actorproc.model.messages.events import Resized, StepDelayed, TypeRegistered, WorkerLost, WorkerReady
from actorproc.model.messages.outcomes import Finished
from actorproc.model.policies import TypeMeta
from actorproc.model.slots import first_slot
from actorproc.workers.base import HostJoined, HostLeft, WorkerBooted, WorkerDied, WorkerMessages
from actorproc.workers.protocol.frames import Ended, NeedState

WORKER = WorkerId(0, 1)


class Site:
    """A worker message handler and its intake with a real in-flight table; the pipeline only notes what it is told."""

    def __init__(self) -> None:
        self.now = 0.0
        self.told: list[Any] = []
        self.hosts: list[tuple[Any, ...]] = []
        self.in_flight, self.types = InFlightTable(), TypeTable()
        clock: Any = SimpleNamespace(monotonic=lambda: self.now, wall=lambda: self.now)
        pipeline: Any = SimpleNamespace(handle=self.told.append, take=self.told.append, decide=lambda: None)
        nothing: Any = SimpleNamespace(
            booted=lambda _: None,
            procedure_of=lambda _: None,
            step_ended=lambda *_: None,
            step_lost=lambda _, by_operator: None,
            died=lambda *_: None,
            worker_died=lambda _: None,
            host=lambda *news: self.hosts.append(news),
            host_losses=0,
            hosts={},
            left=lambda *_: None,
        )
        self.outage = StoreOutage(clock)
        self.worker_messages = WorkerMessageHandler(
            pipeline=pipeline,
            in_flight=self.in_flight,
            types=self.types,
            host_code=HostCode(self.types, ""),
            recorder=None,
            counters=nothing,
            change_feed=nothing,
            news=nothing,
            dispatcher=nothing,
            dedicated=nothing,
            step_queries=nothing,
            reports=StepReports(pipeline, clock),
            outage=self.outage,
            clock=clock,
            patience=10.0,
            post=lambda _: None,
            on_gone=lambda _: None,
        )
        self.in_flight.join(WorkerReady(WORKER))

    def hand_out(self, name: str, wall_time: float | None = None, worker: WorkerId = WORKER) -> StepToken:
        token = StepToken(1, worker, name, 1, 1)
        run = RunStep(token, "Parent", False, name, None, False, False, None, 0, wall_time=wall_time)
        self.in_flight.hand_out(run, self.now)
        return token

    def says(self, *messages: Any) -> None:
        self.worker_messages.messages(WorkerMessages(WORKER, list(messages)))

    def is_over(self) -> None:
        self.outage.doubt()
        for late in self.outage.take_deferred():
            if isinstance(late, WorkerMessages):
                self.worker_messages.messages(late)
            else:
                self.worker_messages.changed(late)  # type: ignore[arg-type]


@pytest.fixture
def site() -> Site:
    return Site()


def test_a_step_that_waits_for_its_state_is_not_the_one_that_runs(site: Site):
    first, second = site.hand_out("first", wall_time=1.0), site.hand_out("second")
    site.outage.lasts = True

    site.says(NeedState(first))
    site.now = 100.0

    assert site.in_flight.overdue(site.now) == []
    assert site.in_flight.running() == (second,)
    assert site.told == []
    site.is_over()
    assert site.told == [StepDelayed(first)]
    assert site.in_flight.running() == (second,)


def test_the_death_of_a_worker_is_told_with_the_step_that_ran(site: Site):
    first, second = site.hand_out("first"), site.hand_out("second")
    site.outage.lasts = True
    site.says(NeedState(first))

    site.worker_messages.died(WorkerDied(WORKER, CrashReport(kind="signal", message="SIGSEGV"), booted=True))
    site.is_over()

    [lost] = [event for event in site.told if isinstance(event, WorkerLost)]
    assert (lost.first, lost.crashed) == (second, True)


@pytest.mark.parametrize("dies", [False, True])
def test_a_host_takes_no_step_along_whose_worker_died_before(site: Site, dies: bool):
    worker = WorkerId(first_slot(1), 1)
    site.worker_messages.host_joined(HostJoined(1, name="h1", machine="vm", slots=1))
    site.in_flight.join(WorkerReady(worker))
    site.hand_out("first", worker=worker)
    site.outage.lasts = True  # the death is not stored before the host leaves

    if dies:
        site.worker_messages.died(WorkerDied(worker, CrashReport(kind="signal", message="SIGKILL"), booted=True))
    site.worker_messages.host_left(HostLeft(1, "has left", is_lost=False))

    left = 0 if dies else 1
    assert site.hosts == [("host-joined", "h1", "vm", 1, 0, None), ("host-left", "h1", "vm", left, left, "has left")]


def test_a_worker_is_told_of_after_the_death_of_the_one_before_it(site: Site):
    site.hand_out("first")
    site.outage.lasts = True

    site.worker_messages.died(WorkerDied(WORKER, CrashReport(kind="signal", message="SIGKILL"), booted=True))
    site.worker_messages.booted(WorkerBooted(WorkerId(0, 2), 4711))

    assert site.told == []
    site.is_over()
    assert [type(event) for event in site.told] == [WorkerLost, WorkerReady]


def test_a_resize_is_told_of_after_the_deaths_before_it(site: Site):
    site.outage.lasts = True

    site.worker_messages.died(WorkerDied(WORKER, CrashReport(kind="signal", message="SIGKILL"), booted=True))
    site.worker_messages.changed(Resized(1, None, reply=1))

    assert site.told == []
    site.is_over()
    assert [type(event) for event in site.told] == [WorkerLost, Resized]


@pytest.mark.parametrize("lasts", [False, True], ids=["at-once", "in-trouble"])
def test_a_later_edition_of_a_class_is_learned_with_the_answer_that_brings_it(site: Site, lasts):
    def edition(name: str, code: bytes, revision: int = 1) -> Definition:
        return Definition(meta=TypeMeta(type_name=name), pickled=code, revision=revision)

    site.types.put(edition("Parent", b"first"))
    site.types.learn(edition("Child", b"first"), "Parent")
    site.types.put(edition("Parent", b"second"))
    token = site.hand_out("p")
    site.outage.lasts = lasts

    site.says(Ended(token, Finished(state=b""), (edition("Child", b"second", revision=2),)))
    site.is_over()

    learned = site.types.get("Child")
    assert learned is not None
    assert learned.pickled == b"second"
    assert [event.meta.type_name for event in site.told if isinstance(event, TypeRegistered)] == ["Child"]
