"""What is looked for in a damaged store is in none that the engine wrote, whatever failed meanwhile."""

from __future__ import annotations

from actorproc.store.memory import MemoryStore
from actorproc.store.verify.cross_check import cross_check
from tests.simulator.core_sim.simulation import simulate

HISTORIES = 40


def test_a_store_fits_together_after_every_commit(monkeypatch):
    looked = []
    apply = MemoryStore._apply

    def look(store, rows):
        apply(store, rows)
        found = cross_check(store._rows)
        looked.append([*found.damage.values(), *found.lost, *found.unseen, *found.halted, *found.gaps])

    monkeypatch.setattr(MemoryStore, "_apply", look)

    for seed in range(9000, 9000 + HISTORIES):
        simulate(seed)

    assert len(looked) > 10 * HISTORIES
    assert [found for found in looked if found] == []
