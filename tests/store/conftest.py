"""Builders of records, and a store of each kind."""

from __future__ import annotations

import pytest

from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.memory import MemoryStore
from actorproc.store.postgres.store import DatabaseStore
from actorproc.testing.store_suite import Writes


@pytest.fixture
def make():
    """Writes by short names."""
    return Writes


@pytest.fixture
def lmdb_path(tmp_path):
    return tmp_path / "store"


@pytest.fixture(params=["memory", "lmdb", "postgres"])
def store(request, lmdb_path):
    """An owned store with epoch 1."""
    if request.param == "memory":
        made = MemoryStore()
    elif request.param == "lmdb":
        made = LmdbStore(lmdb_path, map_size=1 << 24)
    else:
        made = DatabaseStore(request.getfixturevalue("database_url"))
    assert made.own() == 1
    yield made
    made.close()
