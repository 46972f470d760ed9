"""The key of a store is made once, however many come for it at the same time."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

from actorproc.signing_key import FILE_NAME, keep_keys, read_keys


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
