"""Pages of a commit stand beside each other: what that does to the file, and what it never does."""

from __future__ import annotations

import resource

import lmdb
import pytest
from lmdb import verify

from actorproc.errors import StoreInUse
from actorproc.model.rows.records import StepKind, StepRecord
from actorproc.model.rows.writes import PutProcedure, PutStep, Was
from actorproc.store.lmdb.commit.meta_pages import read_meta_pages
from actorproc.store.lmdb.commit.page_clustering import PageClustering
from actorproc.store.lmdb.environment import open_databases
from actorproc.store.lmdb.store import LmdbReader
from actorproc.store.rows.layout import STORE_ID
from actorproc.store.rows.tables import Table
from actorproc.testing.store_suite import Writes
from tests.kit.stores import opened

PAGE = 4096


def one_step(number):
    """The commit of a lone procedure's next step, in a store with others beside it."""
    record = Writes.head("p-000007", 7)
    was = Was.of(record)
    step = StepRecord(procedure=record.id, number=number, kind=StepKind.STEP, at=1.0, state=b"s" * 60)
    return [PutStep(step), PutProcedure(record, was)]


def made(path, **options):
    store = opened(path, **options)
    store.commit([PutProcedure(Writes.head(f"p-{seq:06}", seq), None) for seq in range(1, 65)], 1, 1)
    return store


def changed_pages(before, after):
    starts = range(2 * PAGE, max(len(before), len(after)), PAGE)
    return {start // PAGE for start in starts if before[start : start + PAGE] != after[start : start + PAGE]}


def runs(pages):
    return sum(page - 1 not in pages for page in pages)


def writes_of_a_commit(path, *, commits=600, looked_at=60):
    """Runs of neighbouring pages that the last commits of a lone procedure change, on the average."""
    store = made(path)
    found = []
    for number in range(1, commits + 1):
        before = (path / "data.mdb").read_bytes() if number > commits - looked_at else b""
        store.commit(one_step(number), 1, number + 1)
        if before:
            found.append(runs(changed_pages(before, (path / "data.mdb").read_bytes())))
    store.close()
    return sum(found) / len(found)


def contents(path):
    with LmdbReader(path)._view() as rows:
        return {(table, key): value for table in Table for key, value in rows.scan(table) if key != STORE_ID}


def test_a_small_commit_is_written_to_few_places(tmp_path, monkeypatch):
    gathered = writes_of_a_commit(tmp_path / "gathered")
    monkeypatch.setattr(PageClustering, "before", lambda *_: False)
    scattered = writes_of_a_commit(tmp_path / "scattered")
    assert gathered < 0.7 * scattered, (gathered, scattered)
    assert contents(tmp_path / "gathered") == contents(tmp_path / "scattered")


def test_the_file_is_sound_and_does_not_look_cut_short(tmp_path):
    store = made(tmp_path)
    for number in range(1, 400):
        store.commit(one_step(number), 1, number + 1)
        metas = read_meta_pages(tmp_path)
        assert metas.size >= (max(metas.last_pages) + 1) * PAGE
    assert not verify.verify(str(tmp_path), subdir=True)
    store.close()


def test_free_pages_do_not_pile_up(tmp_path):
    store = made(tmp_path)
    sizes = []
    for number in range(1, 3001):
        store.commit(one_step(number), 1, number + 1)
        if number % 1000 == 0:
            size = store.size()
            sizes.append(size.file - size.used)
    store.close()
    assert sizes[-1] <= 320 * PAGE
    assert sizes[-1] <= sizes[0] + 64 * PAGE


def test_without_a_wait_for_the_disk_nothing_is_gathered(tmp_path, monkeypatch):
    monkeypatch.setattr(PageClustering, "before", lambda *_: pytest.fail("there is no write to save"))
    store = made(tmp_path, durability="process")
    store.commit(one_step(1), 1, 2)
    store.close()


@pytest.fixture
def environment(tmp_path):
    with lmdb.open(str(tmp_path / "bare"), map_size=1 << 28, max_dbs=32, sync=False) as env:
        with env.begin(write=True) as txn:
            databases = open_databases(env, txn, create=True)
        yield env, databases


def gatherings(environment, writes, commits, has_room=lambda pages: True):
    """How often so many commits of so many writes gather."""
    env, databases = environment
    gathering, times = PageClustering(has_room), 0
    for _ in range(commits):
        with env.begin(write=True) as txn:
            times += gathering.before(writes, env, txn, databases)
            assert txn.stat(databases[Table.META])["entries"] == 0
    return times


def test_it_is_done_once_for_some_commits(environment):
    assert gatherings(environment, writes=2, commits=70) == 10
    assert gatherings(environment, writes=64, commits=70) == 23


def test_a_large_commit_needs_none(environment):
    assert gatherings(environment, writes=1000, commits=70) == 0


def test_among_very_many_free_pages_nobody_searches(environment):
    env, databases = environment
    with env.begin(write=True) as txn:
        txn.put(b"long", bytes(5000 * PAGE), db=databases[Table.STEPS])
    with env.begin(write=True) as txn:
        txn.delete(b"long", db=databases[Table.STEPS])
    assert gatherings(environment, writes=2, commits=70) == 0


def test_where_the_file_cannot_grow_nothing_is_gathered(environment):
    asked = []
    assert gatherings(environment, writes=2, commits=1600, has_room=asked.append) == 0
    assert len(asked) == 2  # it is tried again after some time
    assert asked[0] >= environment[0].info()["last_pgno"] + 1 + 16


def test_a_file_has_room_where_it_can_grow(tmp_path):
    store = opened(tmp_path)
    pages = (tmp_path / "data.mdb").stat().st_size // PAGE
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, ((pages + 7) * PAGE, before[1]))
    try:
        assert store._file.has_room(pages)
        assert store._file.has_room(pages + 7)
        assert not store._file.has_room(pages + 8)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (tmp_path / "data.mdb").stat().st_size == (pages + 7) * PAGE
    store.commit(one_step(1), 1, 1)
    store.close()


def test_a_map_does_not_grow_by_it(tmp_path, monkeypatch):
    store = made(tmp_path)
    monkeypatch.setattr(store, "_grow", lambda env: pytest.fail("there is room for what is committed"))
    filling = (1 << 24) - (tmp_path / "data.mdb").stat().st_size - 60 * PAGE
    step = StepRecord(procedure="p-000001", number=1, kind=StepKind.STEP, at=1.0, state=b"s" * filling)
    store.commit([PutStep(step)], 1, 2)
    for number in range(1, 100):
        store.commit(one_step(number), 1, number + 2)
    assert store.size().steps == 100
    store.close()


def test_who_has_lost_the_store_leaves_the_file_as_it_is(tmp_path):
    store = made(tmp_path)
    content = (tmp_path / "data.mdb").read_bytes()
    for number in range(1, 100):
        with pytest.raises(StoreInUse):
            store.commit(one_step(number), 0, number + 1)
    assert (tmp_path / "data.mdb").read_bytes() == content
    store.close()
