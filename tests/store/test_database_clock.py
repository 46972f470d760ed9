"""The clock of a store in a database is the database's."""

from __future__ import annotations

import time

import pytest

from actorproc.store.home import home_of
from actorproc.store.postgres.store import DatabaseStore


def test_the_clock_of_a_store_in_a_database_is_that_of_the_database(database_url, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: 0.0)  # the clock of this machine was never set
        store = DatabaseStore(database_url)
        assert store.clock.wall() < 60.0
        epoch = store.own()
    try:
        assert store.clock.wall() == pytest.approx(time.time(), abs=5.0)
        store.clock.begin(time.time() - 100.0, time.monotonic(), time.monotonic())
        store.commit([], epoch, 1)
        assert store.clock.wall() == pytest.approx(time.time(), abs=5.0)
        assert store.clock.jumps == 1
        store.reopen()
        assert store.clock.jumps == 1
    finally:
        store.close()


def test_the_clock_of_a_home_is_that_which_its_stores_measure(database_url):
    home = home_of(database_url)
    store = home.store(allow_any_filesystem=True)

    assert store.clock is home.clock()
    assert home_of("state").clock().wall is time.time
