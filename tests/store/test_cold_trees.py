"""A start leaves cold trees in the store, and knows of them what it takes to wake them."""

from __future__ import annotations

import pytest

from actorproc.core.coordinator import Coordinator
from actorproc.model.messages.events import Tick, TypeRegistered
from actorproc.model.policies import Scheduling, TypeMeta
from actorproc.model.rows.cold_trees import due_key, named_by, time_of
from actorproc.model.rows.records import Admitted
from actorproc.model.states import ProcedureState
from actorproc.store.memory import MemoryStore
from tests.simulator.core_sim.restored import compare_loads

ASLEEP = ProcedureState.WAITING_TIMEOUT
WAITING = ProcedureState.WAITING


def kept(store):
    """What is loaded, and what is left in the store."""
    snapshot = store.load(whole=False)
    assert compare_loads(store, 0.0, Scheduling()) is None
    return [head.id for head in snapshot.procedures], snapshot.cold


def test_a_sleeper_is_left_in_the_store_with_its_timers_known(store, make):
    store.commit([make.new("a", 1, state=ASLEEP, due_at=5.0, deadline=9.0), make.new("b", 2)], 1)

    loaded, cold = kept(store)

    assert loaded == ["b"]
    assert [(time_of(key), named_by(key)) for key in cold.due] == [(5.0, "a"), (9.0, "a")]
    assert (cold.procedures, cold.roots) == (1, 1)


def test_who_waits_for_an_event_is_left_with_the_event_known(store, make):
    store.commit([make.new("a", 1, state=WAITING, event="paid"), make.new("b", 2, state=WAITING, event="paid")], 1)

    loaded, cold = kept(store)

    assert loaded == []
    assert cold.listeners == [(1, "paid", "a"), (2, "paid", "b")]


def test_a_family_is_left_only_when_all_of_it_waits(store, make):
    parent = {"state": WAITING, "children": 1, "pending": 1, "width": 1, "started": 1}
    child = {"state": ASLEEP, "due_at": 1.0}
    store.commit([make.new("p", 1, **parent), make.new("p1", 2, root="p", parent="p", **child)], 1)
    store.commit([make.new("q", 3, **parent), make.new("q1", 4, root="q", parent="q")], 1)

    loaded, cold = kept(store)

    assert loaded == ["q", "q1"]
    assert (cold.procedures, cold.roots, len(cold.due)) == (2, 1, 1)


@pytest.mark.parametrize(
    "oddity",
    [
        {"aborting": True},
        {"failing": True},
        {"rolling": True},
        {"bypassing": True},
        {"parked": "no class"},
        {"undoing": 1},
    ],
    ids=str,
)
def test_a_waiting_tree_that_has_something_to_do_is_loaded(store, make, oddity):
    store.commit([make.new("a", 1, state=WAITING, event="e", **oddity)], 1)

    assert [head.id for head in store.load(whole=False).procedures] == ["a"]


def test_places_of_limits_and_tickets_of_sleepers_count(store, make):
    store.commit([make.new("a", 1, state=ASLEEP, due_at=1.0, ticket=7, admitted=int(Admitted.RUNNING))], 1)

    _, cold = kept(store)

    assert [head.id for head in cold.admitted] == ["a"]
    assert store.load(whole=False).next_ticket == 8


def test_nothing_is_left_in_the_store_when_something_is_damaged(tmp_path, make):
    store = MemoryStore()
    store.own()
    store.commit([make.new("a", 1, state=ASLEEP, due_at=1.0), make.new("b", 2, state=ASLEEP, due_at=1.0)], 1)
    rows = store._rows._tables[1]
    rows[b"b"] = rows[b"b"][:-1] + b"?"

    snapshot = store.load(whole=False)

    assert [head.id for head in snapshot.procedures] == ["a"]
    assert [found.key for found in snapshot.damage] == ["b"]
    assert snapshot.cold.procedures == 0


def test_sleepers_left_in_the_store_are_woken_in_slices_and_each_once(make):
    store = MemoryStore()
    epoch = store.own()
    store.commit([make.new(f"p{n}", n, type_name="T", state=ASLEEP, due_at=float(n)) for n in range(1, 3001)], epoch)
    core, _ = Coordinator.restore(store.load(whole=False), 0.0)
    core.handle(TypeRegistered(TypeMeta(type_name="T")), 0.0)
    woken, slices = [], 0

    while (due := core.next_deadline()) is not None and due <= 2500.0:
        names = core.missing(Tick(), 2500.0)
        for name in names:
            core.load(*store.tree(name))
        core.handle(Tick(), 2500.0)
        woken += names
        slices += 1

    assert woken == [f"p{n}" for n in range(1, 2501)]
    assert slices == 3
    assert core.queued == 2500


def test_timers_as_bytes_are_in_the_order_of_time():
    times = [-5.0, 0.0, 1e-9, 0.5, 1.0, 1763749800.25, 1763749800.5, 1e12, float("inf")]

    assert sorted(due_key(at, "p") for at in reversed(times)) == [due_key(at, "p") for at in times]
    assert [time_of(due_key(at, "p")) for at in times] == [0.0, *times[1:]]
