"""What retention asks of a store: finish times, trees that leave in parts, compaction and backup. For every store."""

from __future__ import annotations

import pytest

from actorproc.errors import NotAllowed
from actorproc.model.states import ProcedureState
from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.memory import MemoryStore

SUCCESS = ProcedureState.SUCCESS
FAILED = ProcedureState.FAILED


@pytest.fixture
def tree(store, make):
    """A finished root "r" with three children, and a finished root "s"."""
    heads = [make.head("r", 1, state=SUCCESS, finished_at=20.0)]
    heads += [make.head(f"c{n}", 1 + n, root="r", parent="r", state=SUCCESS, finished_at=10.0 + n) for n in (1, 2, 3)]
    heads.append(make.head("s", 9, state=SUCCESS, finished_at=30.0))
    store.commit([make.put(head) for head in heads] + [make.step(head.id, 1) for head in heads], 1)
    return heads


def test_a_backup_is_a_store_of_its_own_or_refused_where_there_are_no_files(store, tree, tmp_path):
    if isinstance(store, MemoryStore):
        with pytest.raises(NotAllowed, match="no files"):
            store.backup(tmp_path / "copy")
        return

    report = store.backup(tmp_path / "copy")

    copy = LmdbStore(tmp_path / "copy")
    try:
        assert copy.own() == 2
        assert list(copy.scan()) == list(store.scan())
        assert copy.store_id == report.store_id != store.store_id
        assert copy.copied_from == report.copied_from == store.store_id
    finally:
        copy.close()
