"""Enqueued procedures in simulated histories: deaths, failed commits and late transactions, and each is created once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from actorproc.core.lifecycle import enqueued
from actorproc.core.state.parts.decision import PendingDecision
from actorproc.engine.housekeeping.enqueued_taker import _PAGE as PAGE, EnqueuedTaker
from actorproc.model.rows.writes import DeleteEnqueued
from actorproc.store.memory import MemoryStore
from actorproc.store.rows.enqueued import EnqueuedReader
from actorproc.store.rows.tables import Table
from tests.simulator.actor_sim.history import ENQUEUED_FROM, ActorSimulation

HISTORIES = range(ENQUEUED_FROM, ENQUEUED_FROM + 40)
BUDGET = range(ENQUEUED_FROM, ENQUEUED_FROM + 60)
TURNS = 1500
"""Greatest number of turns of a history with a bug, which may go on for ever."""


def played(seed: int, turns: int = ActorSimulation.MAX_TURNS) -> tuple[ActorSimulation, list[str]]:
    """A history, and which promises it broke; what waits at its end was overlooked."""
    simulation = ActorSimulation(seed)
    simulation.MAX_TURNS = turns
    broken = [str(found) for found in simulation.run().violations]
    store = simulation.world.store
    left = [row.new.id for row in store.enqueued() if row.new is not None]
    known = {head.id for head in store.scan()}
    refused = {row.new.id for row in store.enqueued(refused=True) if row.new is not None}
    written = {entry[1].new.id for entry in simulation.world.journal if entry[0] == "enqueued"}
    if simulation.host.broken is None and (left or written - known - refused - created(simulation)):
        broken.append(f"34: {left or written} were enqueued, and are neither procedures nor refused")
    return simulation, broken


def created(simulation: ActorSimulation) -> set[str]:
    """Ids of all heads that were ever stored: what has ended may be removed."""
    commits = (entry[2] for entry in simulation.world.journal if entry[0] == "commit")
    return {write.record.id for writes in commits for write in writes if type(write).__name__ == "PutProcedure"}


def test_each_enqueued_procedure_is_created_once_or_refused_whatever_dies():
    taken = 0
    for seed in HISTORIES:
        simulation, broken = played(seed)
        assert broken == [], seed
        commits = (entry[2] for entry in simulation.world.journal if entry[0] == "commit")
        taken += sum(type(write) is DeleteEnqueued for writes in commits for write in writes)
    assert taken > 3 * len(HISTORIES)


def _goes_by_the_last_key(patch: pytest.MonkeyPatch) -> None:
    honest = EnqueuedReader.enqueued

    def enqueued(self: Any, *, refused: bool = False, after: bytes | None = None, limit: int | None = None) -> list:
        if limit != PAGE or refused:  # not the leader's read
            return honest(self, refused=refused, after=after, limit=limit)
        last = max(filter(None, (after, getattr(self, "highest", None))), default=None)
        page = honest(self, after=last, limit=limit)
        if page:
            self.highest = page[-1].key
        return page

    patch.setattr(EnqueuedReader, "enqueued", enqueued)


def _row_goes_in_a_commit_before(patch: pytest.MonkeyPatch) -> None:
    honest = EnqueuedTaker._bring

    def bring(self: EnqueuedTaker, page: list) -> None:
        store: Any = self._store
        while not isinstance(store, MemoryStore):  # behind the reads that may fail
            store = store._store
        store._apply([(Table.ENQUEUED, record.key, None) for record in page])
        honest(self, page)

    patch.setattr(EnqueuedTaker, "_bring", bring)


def _row_stays(patch: pytest.MonkeyPatch) -> None:
    honest = PendingDecision.write
    patch.setattr(
        PendingDecision,
        "write",
        lambda self, write: None if type(write) is DeleteEnqueued else honest(self, write),
    )


def _refusal_is_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(enqueued, "_refuse", lambda state, record, *_: state.decision.write(DeleteEnqueued(record.key)))


BUGS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the leader goes by the last key that it saw": _goes_by_the_last_key,
    "the row goes in a transaction before that of its procedure": _row_goes_in_a_commit_before,
    "the row stays when its procedure is created": _row_stays,
    "what is refused is thrown away": _refusal_is_dropped,
}


@pytest.mark.parametrize("bug", BUGS)
def test_a_bug_seeded_in_the_take_is_found(bug, monkeypatch):
    BUGS[bug](monkeypatch)
    assert any(any("34" in said for said in played(seed, TURNS)[1]) for seed in BUDGET)
