"""Schedules in simulated histories: crashes, failed commits and clocks that jump, and each instant fires once."""

from __future__ import annotations

from collections import Counter

from actorproc.model.rows.writes import PutSchedule
from tests.simulator.core_sim.simulation import Simulation
from tests.simulator.generators.schedules import FIRST_SEED

HISTORIES = 40


def test_histories_with_schedules_keep_their_promises_and_fire_under_each_policy():
    fired: Counter[str] = Counter()
    for seed in range(FIRST_SEED, FIRST_SEED + HISTORIES):
        simulation = Simulation(seed)
        assert simulation.run().violations == [], seed
        for kind, *fields in simulation.world.journal:
            if kind == "commit":
                fired.update(w.record.overlap for w in fields[1] if type(w) is PutSchedule and w.record.firings)
    assert set(fired) == {"skip", "queue", "cancel-running"}
