"""The rules of the actor simulation, one by one: what each of them calls wrong, and what not."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from actorproc.core.coordinator import Coordinator
from actorproc.model.ids import Mode, StepToken, WorkerId
from actorproc.model.messages.commands import RunStep
from actorproc.model.messages.outcomes import Slept
from actorproc.model.policies import StepLimits
from actorproc.workers.protocol.frames import Ended, Run
from tests.simulator.actor_sim import rules
from tests.simulator.actor_sim.hazards import Hazards
from tests.simulator.actor_sim.history import perform
from tests.simulator.actor_sim.pool import SimulatedPool
from tests.simulator.actor_sim.rules import GATED, kills_too_soon, misses, slots_differ, strikes_another
from tests.simulator.actor_sim.workers import SimulatedStep, SimulatedWorker
from tests.simulator.core_sim.world import World
from tests.simulator.generators.groups import FIRST_SEED

WORKER = WorkerId(0, 1)


def token(name: str) -> StepToken:
    return StepToken(1, WORKER, name, 1, 1, Mode.EXECUTE)


def run(name: str, threads: int = 1) -> Run:
    limits = StepLimits(threads=threads) if threads > 1 else None
    return Run(token(name), "T0", name, None, b"0:0:0", "", 0, limits=limits)


def worker(
    *, running: tuple[Run, ...] = (), queue: tuple[Run, ...] = (), wire: tuple[Run, ...] = ()
) -> SimulatedWorker:
    made = SimulatedWorker(SimulatedPool(World(FIRST_SEED), Hazards(1), None), WORKER, replace=False)
    made.running = {one.token: SimulatedStep(one, b"0:0:0") for one in running}
    made.queue.extend(queue)
    made.wire.extend(wire)
    for one in (*running, *queue, *wire):
        command = RunStep(one.token, "T0", False, one.root, None, False, False, None, 0, limits=one.limits)
        made.given[one.token] = command
    return made


def test_a_kill_for_the_step_that_runs_is_right():
    busy = worker(running=(run("A"),), queue=(run("B"),))

    assert strikes_another(busy, token("A"), ()) is None
    assert misses(busy, token("A"), ()) is None


def test_a_kill_for_a_step_that_waits_behind_another_strikes_that_one():
    busy = worker(running=(run("A"),), queue=(run("B"),), wire=(run("C"),))

    assert "strikes" in strikes_another(busy, token("B"), ())
    assert "'B'" in strikes_another(busy, token("C"), ())
    assert misses(busy, token("C"), ()) is None


def test_a_kill_for_the_next_step_of_an_idle_worker_strikes_nobody():
    idle = worker(queue=(run("A"),), wire=(run("B"),))

    assert strikes_another(idle, token("A"), ()) is None


def test_a_kill_for_a_step_that_is_not_there_misses():
    busy = worker(running=(run("A"),))

    assert "not there" in misses(busy, token("B"), ())
    assert strikes_another(busy, token("B"), ()) is None


def test_a_kill_that_crosses_the_answer_of_its_step_is_right():
    busy = worker(running=(run("A"),))
    answer = Ended(token("B"), Slept(state=b"1:1:0", seconds=1.0))

    assert misses(busy, token("B"), (answer,)) is None


def test_a_kill_of_steps_that_run_beside_each_other_is_not_judged():
    busy = worker(running=(run("A", threads=2), run("B", threads=2)), queue=(run("C", threads=2),))

    assert strikes_another(busy, token("C"), ()) is None
    assert misses(busy, token("D"), ()) is None


@pytest.mark.parametrize(("wanted", "is_right"), [(1, False), (2, True), (3, False)])
def test_slots_that_retire_do_not_count(wanted, is_right):
    states = {0: "running", 1: "retiring", 2: "parked"}
    supervisor = SimpleNamespace(_slots={number: SimpleNamespace(state=state) for number, state in states.items()})

    assert (slots_differ(supervisor, wanted, ()) is None) is is_right


def test_a_core_that_hands_out_behind_its_gate_is_noticed(monkeypatch):
    honest = Coordinator.restore

    def restore(snapshot, now, **options):
        return honest(snapshot, now, **{**options, "gated": False})

    monkeypatch.setattr(Coordinator, "restore", restore)

    gated = next(seed for seed in range(1, 100) if World(FIRST_SEED + seed).scenario.is_gated)
    assert GATED in {violation.number for violation in perform(gated).violations}


def test_memory_that_is_not_what_the_store_holds_is_told(monkeypatch):
    monkeypatch.setattr(rules, "compare_with_restored", lambda *_: "memory is another one")

    assert {violation.text for violation in perform(1).violations} == {"memory is another one"}


# ---------------------------------------------------------------- async steps that are to end
@pytest.mark.parametrize(
    ("told_at", "now", "words"),
    [(None, 9.0, "was not told to end"), (8.5, 9.0, "was told to end 0.5 s ago"), (8.0, 9.0, None), (1.0, 9.0, None)],
)
def test_a_worker_is_killed_for_an_async_step_when_its_grace_is_over(told_at, now, words):
    command = RunStep(token("A"), "T0", False, "A", None, False, False, None, 0, limits=StepLimits(tasks=2), grace=1.0)

    found = kills_too_soon(command, told_at, now)

    assert found is None if words is None else words in found
