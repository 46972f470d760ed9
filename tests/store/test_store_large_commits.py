"""A commit of very many writes stores what many small ones store."""

from __future__ import annotations

from actorproc.model.states import ProcedureState
from actorproc.store.lmdb import transaction
from actorproc.store.lmdb.log import owned_log
from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.rows.layout import rows_of


def of_new(make, count):
    """New procedures with their first records, and a lock each."""
    return [
        write
        for seq in range(1, count + 1)
        for write in (
            make.step(f"p{seq}", 1),
            make.new(f"p{seq}", seq, tags=("a", "b"), due_at=float(seq)),
            make.lock(f"key/{seq}", f"p{seq}"),
        )
    ]


def all_rows(path):
    """What stands in every database of a store that is closed."""
    reader = LmdbStore.reader(path)
    with reader._env.begin() as txn:
        found = {table: list(txn.cursor(db)) for table, db in reader._databases.items() if table.label != "meta"}
    reader.close()
    return found


def stored(path, parts):
    store = LmdbStore(path, map_size=1 << 24)
    epoch = store.own()
    for part in parts:
        store.commit(part, epoch)
    store.close()
    return all_rows(path)


def test_many_new_rows_at_once_are_the_same_rows_as_one_by_one(make, tmp_path, monkeypatch):
    monkeypatch.setattr(owned_log, "_AT_ONCE", 500)
    writes = of_new(make, 500)
    calls = []
    find = transaction._only_put
    monkeypatch.setattr(transaction, "_only_put", lambda rows: calls.append(find(rows)) or calls[-1])

    at_once = stored(tmp_path / "at_once", [writes])

    assert calls
    assert all(calls)
    assert at_once == stored(tmp_path / "one_by_one", [[write] for write in writes])
    assert len(calls) == len(range(0, len(writes), 256))


def test_a_large_commit_that_also_deletes_keeps_the_order_of_its_rows(make, tmp_path):
    new = of_new(make, 300)
    heads = [write.record for write in new if hasattr(write.record, "seq")]
    ends = [make.change(head, state=ProcedureState.SUCCESS, due_at=None, finished_at=9.0)[0] for head in heads]
    mixed = [write for pair in zip(ends, reversed(ends), strict=True) for write in pair]
    assert len(rows_of(mixed[:256])) >= transaction._MANY
    assert transaction._only_put(rows_of(mixed[:256])) is None

    at_once = stored(tmp_path / "at_once", [new, mixed])

    assert at_once == stored(tmp_path / "one_by_one", [new, *([write] for write in mixed)])


def test_the_last_of_two_rows_under_one_key_wins_in_a_large_commit(make, tmp_path):
    first = [make.new(f"p{seq}", seq, owner="old") for seq in range(1, 601)]
    second = [make.new(f"p{seq}", seq, owner="new") for seq in range(1, 601)]
    both = [write for pair in zip(first, second, strict=True) for write in pair]
    assert len(rows_of(both[:256])) >= transaction._MANY

    at_once = stored(tmp_path / "at_once", [both])

    assert at_once == stored(tmp_path / "one_by_one", [second])


def test_a_large_commit_that_outgrows_the_map_is_made_whole_in_a_larger_one(make, tmp_path):
    writes = of_new(make, 3000)
    store = LmdbStore(tmp_path / "store", map_size=1 << 20)
    store.commit(writes, store.own())

    assert store._map_size > 1 << 20
    assert sum(1 for _ in store.scan()) == 3000
    store.close()
