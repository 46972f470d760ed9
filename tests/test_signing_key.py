"""The key of a store is made once, however many come for it at the same time."""

from __future__ import annotations

import os
import resource
from concurrent.futures import ThreadPoolExecutor

import pytest

from actorproc.errors import EngineError, StorageUnavailable
from actorproc.store.signing_key import FILE_NAME, keep_keys, read_keys, rotate


def test_of_many_who_bring_a_key_at_once_all_get_the_same(tmp_path):
    for round_ in range(30):
        place = tmp_path / str(round_)
        place.mkdir()
        with ThreadPoolExecutor(8) as pool:
            keys = set(pool.map(lambda _, place=place: keep_keys(place, os.urandom(32)), range(8)))
        assert keys == {read_keys(place)}
        assert [path.name for path in place.iterdir()] == [FILE_NAME]
        assert (place / FILE_NAME).stat().st_mode & 0o777 == 0o600


def test_what_is_no_key_gives_way(tmp_path):
    (tmp_path / FILE_NAME).write_bytes(b"half")

    assert keep_keys(tmp_path, b"k" * 32) == (b"k" * 32,) == read_keys(tmp_path)


def test_a_key_that_cannot_be_read_now_is_not_replaced(tmp_path):
    (tmp_path / FILE_NAME).mkdir()  # reading it is an error, for root too

    for write in (lambda: keep_keys(tmp_path, b"k" * 32), lambda: rotate(tmp_path)):
        with pytest.raises(EngineError, match="cannot be read"):
            write()

    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]


def test_a_key_that_cannot_be_written_leaves_what_was_there(tmp_path):
    keys = keep_keys(tmp_path, b"k" * 32)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (10, before[1]))
    try:
        with pytest.raises(StorageUnavailable, match="cannot be written"):
            rotate(tmp_path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)

    assert [path.name for path in tmp_path.iterdir()] == [FILE_NAME]
    assert read_keys(tmp_path) == keys


def test_a_key_is_its_owners_alone_under_every_umask(tmp_path):
    before = os.umask(0o777)
    try:
        keep_keys(tmp_path, b"k" * 32)
    finally:
        os.umask(before)

    assert (tmp_path / FILE_NAME).stat().st_mode & 0o777 == 0o600
