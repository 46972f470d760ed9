"""Schedules in simulated histories: crashes, failed commits and clocks that jump, and each instant fires once."""

from __future__ import annotations

from collections import Counter

import pytest

from actorproc.model.rows.writes import PutSchedule
from tests.simulator.actor_sim.history import SCHEDULES_FROM, ActorSimulation
from tests.simulator.core_sim.simulation import Simulation
from tests.simulator.generators.schedules import FIRST_SEED


@pytest.mark.parametrize(
    ("player", "first", "histories"), [(Simulation, FIRST_SEED, 40), (ActorSimulation, SCHEDULES_FROM, 20)]
)
def test_histories_with_schedules_keep_their_promises_and_fire_under_each_policy(player, first, histories):
    fired: Counter[str] = Counter()
    for seed in range(first, first + histories):
        simulation = player(seed)
        assert simulation.run().violations == [], seed
        for kind, *fields in simulation.world.journal:
            if kind == "commit":
                fired.update(w.record.overlap for w in fields[1] if type(w) is PutSchedule and w.record.firings)
    assert set(fired) == {"skip", "queue", "cancel-running"}
