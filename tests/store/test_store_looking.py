"""What lists, readers and metrics ask of a store beside its records."""

from __future__ import annotations

from actorproc.model.states import ProcedureState
from actorproc.store.lmdb import LmdbStore
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

    assert store.size().used > before
    store.close()


def test_the_epoch_counts_the_owners(store):
    assert store.epoch == 1
    store.close()
    assert store.own() == 2
    assert store.epoch == 2
