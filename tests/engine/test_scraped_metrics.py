"""Figures of a scrape: names, units and labels, and what they cost."""

from __future__ import annotations

import os
import re
import signal
import time
from dataclasses import dataclass

import pytest

from actorproc import Procedure, ProcedureClient, Saga, Status, step
from actorproc.engine.callers.counters import Counters
from actorproc.engine.pipeline.batch import CommitBatch
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.commands import RunStep
from actorproc.model.messages.outcomes import Finished
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.rows.writes import PutProcedure
from docs._extensions.tables import TABLES
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes

NAMES = {
    "build_info": "gauge",
    "procedures": "gauge",
    "procedures_by_phase": "gauge",
    "oldest_unfinished_seconds": "gauge",
    "queue_age_seconds": "gauge",
    "poisoned_keys": "gauge",
    "step_duration_seconds": "histogram",
    "step_queue_seconds": "histogram",
    "worker_deaths_total": "counter",
    "worker_cpu_seconds_total": "counter",
    "worker_resident_bytes": "gauge",
    "manager_up": "gauge",
    "health": "gauge",
    "commit_trouble_seconds": "gauge",
    "control_clients": "gauge",
    "steps_killed_total": "counter",
}
LABELS = {"version", "python", "state", "phase", "type", "step", "cause", "slot", "status", "event", "le", "host"}


class Lingers(Saga):
    """Stays until it is told to go."""

    @step
    def stay(self, ctx):
        return Status.wait("go") if ctx.event is None else None

    @step
    def fall(self, ctx):
        if ctx.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)


def test_a_scrape_has_states_phases_ages_workers_and_health_under_their_names(open_manager, tmp_path):
    manager = open_manager(workers=1, procedures=[Lingers])
    for name in ("order-77", "order-78"):
        manager.submit(Lingers(), name)
    wait_until(lambda: manager.info("order-78").phase == "waiting")
    with ProcedureClient(tmp_path / "state") as client:
        seen = client.metrics(whole=True)
    manager.signal("order-77")
    manager.get("order-77").result(60)
    text = manager.metrics(whole=True).prometheus()

    assert (seen.control_clients, seen.health, seen.commit_trouble) == (1, "running", 0.0)
    assert (seen.states, seen.phases) == ({"WAITING": 2}, {"waiting": 2})
    assert list(seen.oldest_unfinished) == [Lingers.type_name]
    assert seen.oldest_unfinished[Lingers.type_name] > 0
    kinds = dict(re.findall(r"^# TYPE actorproc_(\S+) (\S+)$", text, re.MULTILINE))
    assert {name: kinds.get(name) for name in NAMES} == NAMES
    assert set(re.findall(r'[{,]([a-z]+)="', text)) <= LABELS
    for line in (
        'health{status="running"} 1',
        'health{status="broken"} 0',
        'procedures{state="SUCCESS"} 1',
        'procedures_by_phase{phase="waiting"} 1',
        'worker_deaths_total{cause="signal"} 1',
        "manager_up 1",
        "poisoned_keys 0",
    ):
        assert f"actorproc_{line}\n" in text
    assert re.search(r'^actorproc_worker_cpu_seconds_total\{slot="0"\} [0-9.e-]+$', text, re.MULTILINE)
    assert re.search(r'^actorproc_worker_resident_bytes\{slot="0"\} [1-9]\d{6,}$', text, re.MULTILINE)
    assert "order-7" not in text  # an id would make a series of its own


def test_the_reference_lists_every_metric(open_manager):
    manager = open_manager(workers=1, procedures=[Naps])
    manager.run(Naps(0.0))

    told = dict(
        re.findall(
            r"^\| `actorproc_([a-z_]+)[`{].*? \| (counter|gauge|histogram) \|", TABLES["metrics"](), re.MULTILINE
        )
    )
    shown = re.findall(r"^# TYPE actorproc_(\S+) (\S+)$", manager.metrics(whole=True).prometheus(), re.MULTILINE)
    assert told == dict(shown)


def test_what_waits_for_a_worker_has_an_age_and_steps_have_the_time_they_waited(open_manager):
    manager = open_manager(workers=1, procedures=[Naps])
    for number in range(4):
        manager.submit(Naps(0.2), f"n-{number}")
    wait_until(lambda: manager.metrics().queue_age > 0.1)
    for number in range(4):
        manager.get(f"n-{number}").result(60)

    counts = manager.metrics().steps[Naps.type_name]
    assert counts.queue_seconds.count == counts.run == 4
    assert counts.queue_seconds.sum > 0.2
    assert manager.metrics().queue_age == 0.0
    assert (manager.metrics().states, manager.metrics().phases) == (None, None)
    with pytest.raises(TypeError, match="whole"):
        manager.metrics(whole=1)


@dataclass
class Naps(Procedure):
    seconds: float

    def execute(self, ctx):
        time.sleep(self.seconds)
        return Status.done()


def test_a_thousand_types_are_200_and_the_others():
    counters = Counters()
    token = StepToken(1, WorkerId(0, 1), "p", 1, 1)
    for number in range(1000):
        command = RunStep(token, f"Type{number}", False, "p", None, False, False, None, 0, step_name=f"step{number}")
        counters.step_ended(command, Finished(elapsed=0.1))
        counters.step_lost(command, by_operator=bool(number % 2))
        head = ProcedureRecord(id=f"p{number}", type_name=f"Type{number}", version=1, root="p", parent=None, seq=1)
        batch = CommitBatch()
        batch.writes = [PutProcedure(head, None)]
        counters.committed(batch, 0.1)

    assert len(counters.steps()) == len(counters.procedures()) == 201
    assert counters.steps()["other"].run == 800
    assert counters.procedures()["other"].submitted == 800
    assert sum(len(named) for named in counters.named_steps().values()) <= 200
    assert sum(steps.killed for steps in counters.steps().values()) == 500
