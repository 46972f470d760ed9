"""A coordinator that only writes down what operators want: no class and no worker comes before the next start."""

from __future__ import annotations

import pytest

from actorproc.core.coordinator import Coordinator
from actorproc.model.ids import Mode, WorkerId
from actorproc.model.messages.events import (
    AbortRequested,
    BypassRequested,
    Event,
    PauseRequested,
    Published,
    RollbackRequested,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Advanced, Finished, Waited
from actorproc.model.policies import LockKey
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.states import ProcedureState
from actorproc.testing.histories.image import Image
from tests.core.harness import CoreHarness
from tests.simulator.core_sim.restored import compare_with_restored

TRAITS = {"rollback_supported": True, "asks_abort": True}


class Store:
    """What three lives of a manager leave to each other."""

    def __init__(self) -> None:
        self.image = Image(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []))
        self.epoch = 1

    def keep(self, harness: CoreHarness) -> None:
        self.image.apply(harness.writes)
        harness.writes.clear()

    def open(self, *, unattended: bool = False) -> CoreHarness:
        self.epoch += 1
        snapshot = self.image.snapshot()
        snapshot.epoch = self.epoch
        harness = CoreHarness(workers=0)
        harness.writes.clear()
        harness.core, decision = Coordinator.restore(snapshot, 1.0, gated=unattended, unattended=unattended)
        harness.writes += decision.writes
        return harness


@pytest.fixture
def store() -> Store:
    """One waits after its first step, one holds a lock, one is in line and never began."""
    harness = CoreHarness(workers=1, **TRAITS)
    harness.submit(harness.new("waits", unit="a"))
    harness.answer("waits", Waited(state=b"1", event="go"))
    harness.submit(harness.new("holder", locks=(LockKey.write("k"),), unit=""))
    harness.answer("holder", Waited(state=b"1", event="later"))
    harness.submit(harness.new("in-line", locks=(LockKey.write("k"),), unit=""))
    store = Store()
    store.keep(harness)
    return store


def _said(store: Store, *events: Event) -> CoreHarness:
    harness = store.open(unattended=True)
    for event in events:
        harness.handle(event)
        image = store.image.copy()
        image.apply(harness.writes)
        assert compare_with_restored(harness.core, image) is None
    assert harness.inbox == {}
    store.keep(harness)
    return harness


def _next_life(store: Store) -> CoreHarness:
    harness = store.open()
    harness.register("T", **TRAITS)
    harness.handle(WorkerReady(WorkerId(0, 1)))
    return harness


def test_who_may_refuse_an_abort_is_asked_in_the_next_life(store: Store) -> None:
    harness = _said(store, AbortRequested("waits", 1, reason="why"))
    assert harness.state("waits") is ProcedureState.WAITING

    later = _next_life(store)

    assert later.inbox["waits"].token.mode is Mode.ASK_ABORT


def test_who_never_began_is_aborted_at_once_and_leaves_the_line(store: Store) -> None:
    harness = _said(store, AbortRequested("in-line", 1))

    assert harness.state("in-line") is ProcedureState.ROLLEDBACK
    assert harness.core.lock_waiters() == []


def test_by_force_nobody_is_asked_and_the_undo_waits_for_its_class(store: Store) -> None:
    _said(store, AbortRequested("waits", 1, force=True))

    later = _next_life(store)

    assert later.inbox["waits"].token.mode is Mode.ROLLBACK


def test_signals_and_rollbacks_go_on_in_the_next_life(store: Store) -> None:
    _said(store, Published("go", b"x", 1), RollbackRequested("holder", 2))

    later = _next_life(store)
    ran = []
    while later.inbox:
        name, command = next(iter(later.inbox.items()))
        ran.append((name, command.token.mode))
        later.answer(name, Finished(state=b"", output=b""))

    assert sorted(ran) == [
        ("holder", Mode.ROLLBACK),
        ("in-line", Mode.EXECUTE),
        ("waits", Mode.EXECUTE),
    ]


def test_what_is_bypassed_gives_its_locks_to_who_is_in_line(store: Store) -> None:
    harness = _said(store, BypassRequested("holder", 1), PauseRequested("in-line", 2, "look first"))

    assert harness.state("holder") is ProcedureState.SUCCESS
    assert "in-line" not in _next_life(store).inbox


def test_an_advanced_step_of_the_life_before_runs_again_there(store: Store) -> None:
    first = _next_life(store)
    first.submit(first.new("two", unit="a"))
    first.answer("two", Advanced(state=b"1", unit="b"))
    store.keep(first)
    _said(store, PauseRequested(None, 1, "all"))

    assert "two" not in _next_life(store).inbox
