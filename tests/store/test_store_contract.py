"""The conformance suite on our stores, and the rows that a batch becomes."""

from __future__ import annotations

import subprocess
import sys

import msgspec
import pytest

from actorproc.model.rows.writes import DeleteProcedure, PutProcedure
from actorproc.model.states import ProcedureState
from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.memory import MemoryStore
from actorproc.store.postgres.connecting import connect
from actorproc.store.postgres.sessions import Statement
from actorproc.store.postgres.store import DatabaseStore
from actorproc.store.rows import codec
from actorproc.store.rows.layout import EPOCH
from actorproc.store.rows.tables import Table
from actorproc.testing.store_suite import StoreSuite

SUCCESS, WAITING, RUNNABLE = ProcedureState.SUCCESS, ProcedureState.WAITING, ProcedureState.RUNNABLE


TAKE_OVER = "import sys; from actorproc.store.lmdb.store import LmdbStore; LmdbStore(sys.argv[1]).own()"


class TestLmdbStore(StoreSuite):
    @pytest.fixture
    def make_store(self, lmdb_path):
        return lambda: LmdbStore(lmdb_path, map_size=1 << 24)

    @pytest.fixture
    def depose(self):
        """A second owner is refused while the lock is there: another process takes the store without it."""

        def take_over(store):
            (store.path / "owner.lock").unlink()
            subprocess.run([sys.executable, "-c", TAKE_OVER, store.path], check=True, timeout=60)

        return take_over


class TestDatabaseStore(StoreSuite):
    @pytest.fixture
    def make_store(self, database_url):
        return lambda: DatabaseStore(database_url)

    @pytest.fixture
    def depose(self):
        """As a takeover does it, without the wait for the lease."""

        def take_over(store):
            session = connect(store.place, "look", store._title)
            try:
                session.ask(
                    [(Statement(f"UPDATE {store.place.schema}.leader SET epoch = epoch + 1".encode(), ()), ())], 10
                )
            finally:
                session.close()

        return take_over


class TestMemoryStore(StoreSuite):
    @pytest.fixture
    def make_store(self):
        """A store in memory is its own rows: further objects are copies of it, as after a crash."""
        made = []

        def make():
            made.append(made[-1].clone() if made else MemoryStore())
            return made[-1]

        return make

    @pytest.fixture
    def depose(self):
        return lambda store: store._rows.apply([_next_epoch(store)])


def _next_epoch(store):
    return Table.META, EPOCH, codec.encode(Table.META, EPOCH, store.load().epoch + 1)


def ids(heads):
    return [head.id for head in heads]


def test_a_head_without_change_of_state_moves_no_index_row(make):
    from actorproc.store.rows.layout import rows_of

    record = make.head("a", 1, due_at=3.0)
    write, _ = make.change(record, attempt=2)

    assert [table.label for table, _, _ in rows_of([write, make.step("a", 2)])] == ["procedures", "steps"]


def test_coalescing_keeps_the_first_was_and_the_last_record(make):
    from actorproc.store.committer import coalesce

    first = make.head("a", 1)
    to_waiting, waiting = make.change(first, state=WAITING)
    to_done, done = make.change(waiting, state=SUCCESS, finished_at=2.0)
    other = make.new("b", 2)

    merged = coalesce([to_waiting, make.step("a", 2), other, to_done])

    assert merged == [PutProcedure(done, to_waiting.was), make.step("a", 2), other]
    assert coalesce([make.put(first), to_waiting]) == [PutProcedure(waiting, None)]


def test_coalescing_never_crosses_a_removal(store, make):
    from actorproc.store.committer import coalesce

    record = make.head("a", 1, state=RUNNABLE)
    to_done, done = make.change(record, state=SUCCESS)
    again = msgspec.structs.replace(record, seq=2)
    store.commit([make.put(record)], 1)

    store.commit(coalesce([to_done, DeleteProcedure(done), make.put(again)]), 1)

    assert [head.seq for head in store.scan()] == [2]
    assert ids(store.scan(state=SUCCESS)) == []
    assert store.load().damage == []


def test_a_memory_store_is_copied_by_clone(make):
    from actorproc.store.memory import MemoryStore

    store = MemoryStore()
    store.own()
    store.commit([make.new("a", 1)], 1)

    twin = store.clone()
    store.commit([make.new("b", 2)], 1)

    assert twin.own() == 2
    assert ids(twin.load().procedures) == ["a"]
    assert ids(store.load().procedures) == ["a", "b"]
