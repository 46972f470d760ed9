"""A data file that is removed or moved while a store is open, or gone before the next start."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from actorproc.errors import StorageUnavailable, StoreDamaged
from tests.kit.stores import opened


@pytest.fixture
def owned(lmdb_path, make):
    """An owned store with one procedure."""
    store = opened(lmdb_path)
    store.commit([make.new("a", 1), make.step("a", 1)], 1)
    yield store
    store.close()


def test_nothing_is_acknowledged_that_goes_into_a_removed_file(owned, make, tmp_path):
    shutil.rmtree(owned.path)

    with pytest.raises(StorageUnavailable, match="removed while it was open"):
        owned.commit([make.new("b", 2), make.step("b", 1)], 1)
    with pytest.raises(StorageUnavailable, match="removed while it was open"):
        owned.reopen()

    # As nobody else has it, it stays open: it can be read and saved.
    assert [head.id for head in owned.scan()] == ["a"]
    owned.backup(tmp_path / "saved")
    saved = opened(tmp_path / "saved")
    assert [head.id for head in saved.scan()] == ["a"]
    saved.close()


def test_a_removed_file_that_is_put_back_goes_on(owned, make):
    file = owned.path / "data.mdb"
    content = file.read_bytes()
    file.unlink()
    with pytest.raises(StorageUnavailable):
        owned.commit([make.new("b", 2), make.step("b", 1)], 1)

    file.write_bytes(content)
    file.chmod(0o600)
    owned.reopen()
    owned.commit([make.new("c", 2), make.step("c", 1)], 1)

    assert [head.id for head in owned.scan()] == ["a", "c"]


def test_a_store_that_was_moved_goes_on_and_compacts_nothing_in_its_old_place(owned, make):
    owned.path.rename(owned.path.with_name("moved"))
    owned.commit([make.new("b", 2), make.step("b", 1)], 1)
    with pytest.raises(StorageUnavailable, match="moved or removed"):
        owned.compact()

    other = opened(owned.path)
    with pytest.raises(StorageUnavailable, match="moved or removed"):
        owned.compact()
    assert {file.name for file in other.path.iterdir()} - {"log-1-0", "log-1-1"} == {
        "data.mdb",
        "lock.mdb",
        "owner.lock",
    }
    assert list(other.scan()) == []
    other.close()
    owned.close()

    moved = opened(owned.path.with_name("moved"))
    assert [head.id for head in moved.scan()] == ["a", "b"]
    moved.close()


@pytest.mark.parametrize("left", ["sealed", "in trouble", "killed"])
def test_a_start_without_the_data_file_is_refused_as_often_as_it_is_tried(owned, left):
    file = owned.path / "data.mdb"
    if left == "sealed":
        owned.close()
    elif left == "killed":
        owned.close()
        script = f"import os; from actorproc.store.lmdb.store import LmdbStore; LmdbStore({str(owned.path)!r}).own(); os._exit(9)"
        subprocess.run([sys.executable, "-c", script], check=False)
    file.unlink()
    if left == "in trouble":
        with pytest.raises(StorageUnavailable):
            owned.reopen()
        owned.close()

    for _ in range(3):
        with pytest.raises(StoreDamaged, match="empty or gone"):
            opened(owned.path)
        assert not file.exists()

    (owned.path / "owner.lock").unlink()  # as the error says
    opened(owned.path).close()
