"""What lists, readers and metrics ask of a store beside its records."""

from __future__ import annotations

import pytest

from actorproc import StoreReader
from actorproc.model.rows.writes import DeleteProcedure
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.store.lmdb.environment import ReadSnapshot
from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.memory import MemoryStore


def test_ids_are_found_by_their_beginning(store, make):
    store.commit([make.new(name, seq) for seq, name in enumerate(["order-2", "order-10", "job-1", "orders"], 1)], 1)

    assert store.ids("order-") == ["order-10", "order-2"]
    assert store.ids("order") == ["order-10", "order-2", "orders"]
    assert store.ids("") == ["job-1", "order-10", "order-2", "orders"]
    assert store.ids("x") == []
    assert store.ids("\ud800") == []


def test_procedures_are_counted_by_state(store, make):
    assert store.count_states() == {}
    heads = [make.head(f"p-{number}", number) for number in range(1, 4)]
    store.commit([make.put(head) for head in heads], 1)
    store.commit([make.change(heads[0], state=ProcedureState.SUCCESS, finished_at=5.0)[0]], 1)

    assert store.count_states() == {ProcedureState.RUNNABLE: 2, ProcedureState.SUCCESS: 1}


@pytest.mark.parametrize("state", sorted(TERMINAL))
def test_each_end_moves_the_number_of_its_state_and_goes_with_its_procedure(store, make, state):
    write, ended = make.change(make.head("p", 1), state=state, finished_at=5.0)
    store.commit([make.new("p", 1), make.new("other", 2), write], 1)
    assert store.count_states() == {ProcedureState.RUNNABLE: 1, state: 1}
    assert [head.id for head in store.scan(state=state)] == ["p"]

    again, running = make.change(ended, state=ProcedureState.RUNNABLE, finished_at=None)
    store.commit([again], 1)
    assert store.count_states() == {ProcedureState.RUNNABLE: 2}
    assert not list(store.scan(state=state))

    write, ended = make.change(running, state=state, finished_at=6.0)
    store.commit([write], 1)
    store.commit([DeleteProcedure(ended)], 1)
    assert store.count_states() == {ProcedureState.RUNNABLE: 1}


def test_pages_of_each_ended_state_go_on_after_a_procedure(store, make):
    states = sorted(TERMINAL)
    heads = [make.head(f"p-{n}", n, state=states[n % 3], finished_at=1.0) for n in range(1, 13)]
    store.commit([make.put(head) for head in heads], 1)

    for state in states:
        ids = [head.id for head in heads if head.state is state]
        assert [head.id for head in store.scan(state=state, after=ids[1])] == ids[2:]
        assert [head.id for head in store.scan(state=state, after=ids[2], reverse=True)] == ids[1::-1]


def test_what_is_read_for_the_numbers_does_not_grow_with_what_has_ended(lmdb_path, make, monkeypatch):
    store = LmdbStore(lmdb_path, map_size=1 << 24)
    store.own()
    states = sorted(TERMINAL)
    read = []
    scan, get, get_many = ReadSnapshot.scan, ReadSnapshot.get, ReadSnapshot.get_many

    def scanned(self, *given, **more):
        for row in scan(self, *given, **more):
            read.append(row)
            yield row

    monkeypatch.setattr(ReadSnapshot, "scan", scanned)
    monkeypatch.setattr(ReadSnapshot, "get", lambda self, *given: read.append(given) or get(self, *given))
    monkeypatch.setattr(ReadSnapshot, "get_many", lambda self, *given: read.append(given) or get_many(self, *given))

    def stats():
        store._log.checkpoint()  # what is in the log alone is counted one by one
        read.clear()
        with StoreReader(lmdb_path) as reader:
            return reader.stats().states, len(read)

    store.commit([make.new(f"live-{n}", n) for n in range(1, 8)], 1)
    _, least = stats()
    store.commit([make.new(f"p-{n}", n, state=states[n % 3], finished_at=float(n)) for n in range(10, 3010)], 1)
    found, reads = stats()
    store.close()

    assert found == {"RUNNABLE": 7} | {str(state): 1000 for state in states}
    assert reads == least >= 7


def test_a_store_tells_its_size(store, make):
    store.commit([make.new("p", 1), make.step("p", 1), make.step("p", 2)], 1)

    size = store.size()

    assert (size.procedures, size.steps) == (1, 2)
    if isinstance(store, MemoryStore):
        assert (size.file, size.used) == (0, 0)
    else:
        assert size.file >= size.used > 0


def test_what_rows_take_grows_with_them(lmdb_path, make):
    store = LmdbStore(lmdb_path, map_size=1 << 24)
    store.own()
    before = store.size().used

    store.commit([make.new(f"p-{number}", number) for number in range(1, 2000)], 1)
    store._log.checkpoint()

    assert store.size().used > before
    store.close()


def test_the_epoch_counts_the_owners(store):
    assert store.epoch == 1
    store.close()
    assert store.own() == 2
    assert store.epoch == 2
