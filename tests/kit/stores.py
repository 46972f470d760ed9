"""LMDB stores that are small enough to be made by the hundred."""

from __future__ import annotations

from typing import Any

from actorproc.store.lmdb import LmdbStore

__all__ = ["opened"]


def opened(path: Any, **options: Any) -> LmdbStore:
    """A store that this process owns."""
    store = LmdbStore(path, map_size=1 << 24, **options)
    store.own()
    return store
