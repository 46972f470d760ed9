"""The log on a full disk: what is acknowledged has room in the data file, and gets there in parts."""

from __future__ import annotations

import errno
import shutil
import subprocess

import pytest

from actorproc.errors import StorageUnavailable
from actorproc.store.directory import OWNER_FILE
from actorproc.store.lmdb.log import checkpointer, segment
from actorproc.store.lmdb.log.owned_log import OwnedLog
from actorproc.store.lmdb.log.parts import in_parts, is_full
from actorproc.store.lmdb.store import LmdbStore
from tests.store.test_log import commit, ids
from tests.store.test_store_lmdb import start


def full(number=errno.ENOSPC):
    error = StorageUnavailable("full")
    error.__cause__ = OSError(number, "")
    return error


@pytest.fixture
def store(lmdb_path, monkeypatch):
    monkeypatch.setattr(checkpointer, "_EVERY", 3600.0)  # checkpoints come when they are asked for
    monkeypatch.setattr(segment, "_FIRST", 4096)  # bytes by which the files grow
    store = LmdbStore(lmdb_path, map_size=1 << 24)
    store.own()
    yield store
    store.close()


@pytest.mark.parametrize("room", [1, 5, 64, 1000])
def test_rows_go_in_as_many_parts_as_there_is_room_for(room):
    rows, done = list(range(500)), []

    def put(some):
        if len(some) > room:
            raise full()
        done.extend(some)

    in_parts(rows, put)

    assert done == rows


@pytest.mark.parametrize("error", [full(), full(errno.EDQUOT), full(errno.EFBIG), full(errno.EIO)])
def test_a_row_for_which_there_is_no_room_is_an_error(error):
    def put(some):
        raise error

    assert is_full(error)
    with pytest.raises(StorageUnavailable):
        in_parts([1, 2, 3], put)
    assert not is_full(full(errno.ENOMEM))


def no_room(patch, times=1):
    """The next first transactions of an owner find no room."""
    really, left = OwnedLog.make_again, [times]

    def refuse(*arguments, **options):
        if left[0]:
            left[0] -= 1
            raise OSError(errno.ENOSPC, "No space left on device")
        return really(*arguments, **options)

    patch.setattr(OwnedLog, "make_again", refuse)


@pytest.mark.parametrize("how", ["opened again", "owned anew"])
def test_a_log_that_has_no_room_in_one_transaction_is_written_out_in_small_ones(store, monkeypatch, how):
    for number in range(1, 200):
        commit(store, number)
    before = store._log._log.place
    transactions = []
    really = OwnedLog.put_some
    monkeypatch.setattr(
        OwnedLog,
        "put_some",
        lambda log, txn, rows, place: transactions.append(len(rows)) or really(log, txn, rows, place),
    )
    if how == "owned anew":
        store._log._failed = full()
        store._sound = False
        store.close()
    with monkeypatch.context() as patch:
        no_room(patch)
        store.reopen() if how == "opened again" else store.own()

    assert len(transactions) > 5
    assert max(transactions) <= 64
    assert sorted(ids(store)) == sorted(f"p{number}" for number in range(1, 200))
    assert store._log._log.place.number > before.number
    assert store._log._log.place.place == before.place
    commit(store, 200)
    assert len(ids(store)) == 200


def test_a_store_that_finds_no_room_at_first_is_made_all_the_same(lmdb_path, monkeypatch):
    no_room(monkeypatch)
    store = LmdbStore(lmdb_path, map_size=1 << 24)
    store.own()
    commit(store, 1)
    assert ids(store) == ["p1"]
    store.close()


@pytest.mark.parametrize("after", [0, 1, 3])
def test_a_kill_while_the_log_is_written_out_in_parts_loses_nothing(store, monkeypatch, tmp_path, after):
    for number in range(1, 100):
        commit(store, number)
    really, left = OwnedLog.put_some, [after]

    def interrupt(*arguments):
        if not left[0]:
            raise KeyboardInterrupt
        left[0] -= 1
        really(*arguments)

    with monkeypatch.context() as patch:
        no_room(patch)
        patch.setattr(OwnedLog, "put_some", interrupt)
        with pytest.raises(KeyboardInterrupt):
            store.reopen()

    shutil.copytree(store.path, tmp_path / "copy", ignore=shutil.ignore_patterns(OWNER_FILE, "lock.mdb"))
    (tmp_path / "copy").chmod(0o700)
    left_over = LmdbStore(tmp_path / "copy", map_size=1 << 24)
    left_over.own()
    assert len(ids(left_over)) == 99
    left_over.close()
    store.reopen()
    assert len(ids(store)) == 99


def test_where_the_data_file_has_no_room_for_the_log_commits_go_into_it_themselves(store, monkeypatch):
    commit(store, 1)
    with monkeypatch.context() as patch:
        patch.setattr(store._file, "keep_room", lambda *_: False)
        store._log.checkpoint()
        commit(store, 2)
        commit(store, 3)
        assert len(store._log._overlay) == 0
        assert store._log._log.size == 512
    assert ids(store) == ["p1", "p2", "p3"]

    commit(store, 4)  # the one that finds that there is room again
    commit(store, 5)
    assert len(store._log._overlay) > 0
    assert ids(store) == ["p1", "p2", "p3", "p4", "p5"]


def test_the_data_file_has_room_for_the_files_of_the_log(store):
    for number in range(1, 300):
        commit(store, number, steps=number)
    room = store._log.room
    used = (store._env.info()["last_pgno"]) * store._env.stat()["psize"]

    assert room > 64 << 10
    assert (store.path / "data.mdb").stat().st_size - used >= room


REMOVE = """
store = LmdbStore(path, map_size=1 << 30)
store.own()
n = 0
while True:
    n += 1
    try: store.commit(pair(n, 3000), 1)
    except StorageUnavailable: break
store.reopen()
from actorproc.model.rows.writes import DeleteProcedure
heads = {head.id: head for head in store.load().procedures}
assert len(heads) == n - 1
gone = 0
for head in list(heads.values())[: n // 2]:
    store.commit([DeleteProcedure(head)], 1)
    gone += 1
store.commit(pair(n, 3000), 1)
print(len(store.load().procedures) == n - gone, store.load().damage)
store.close()
again = LmdbStore(path)
again.own()
print(len(again.load().procedures) == n - gone)
again.close()
"""


def test_removals_make_room_on_a_full_disk(tmp_path):
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=5m", "none", disk]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("cannot mount a tmpfs here (needs CAP_SYS_ADMIN)")
    try:
        with start(REMOVE, disk / "store") as process:
            out, err = process.communicate(timeout=120)
        assert process.returncode == 0, err
        assert out.split() == ["True", "[]", "True"]
    finally:
        subprocess.run(["umount", disk], check=True)
