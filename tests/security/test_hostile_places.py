"""Places in which other users may write, too."""

from __future__ import annotations

import os

import pytest

from actorproc.model.ids import new_id
from actorproc.store.lmdb.upkeep import staging_dir
from tests.kit.stores import opened


@pytest.fixture
def precious(tmp_path):
    """A backup from before."""
    with_store = opened(tmp_path / "store")
    with_store.backup(tmp_path / "precious")
    with_store.close()
    return tmp_path / "precious"


def back_up_beside(left):
    store = opened(left.parent / "another")
    store.backup(left.parent / "copy")
    store.close()


def test_s18_a_link_put_in_the_place_of_what_a_backup_left_removes_nothing_behind_it(precious, monkeypatch):
    left = precious.parent / f".copy.{new_id()}"
    left.mkdir()
    before = sorted(precious.iterdir())
    lock = staging_dir.fcntl.flock

    def swap_and_lock(fd, how):
        if os.path.samestat(os.fstat(fd), left.lstat()):
            left.rmdir()
            left.symlink_to(precious)
        lock(fd, how)

    monkeypatch.setattr(staging_dir.fcntl, "flock", swap_and_lock)
    back_up_beside(left)

    assert left.is_symlink()
    assert sorted(precious.iterdir()) == before


@pytest.mark.skipif(os.geteuid() != 0, reason="becoming another user takes root")
def test_s18_what_another_user_left_is_not_removed(precious):
    left = precious.parent / f".copy.{new_id()}"
    left.mkdir()
    (left / "data.mdb").write_text("mine")
    os.chown(left, 65534, 65534)

    back_up_beside(left)

    assert (left / "data.mdb").read_text() == "mine"
