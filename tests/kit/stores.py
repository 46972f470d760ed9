"""LMDB stores that are small enough to be made by the hundred, and one whose commits can be held up."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from actorproc.model.rows.writes import Write
from actorproc.store.lmdb.store import LmdbStore

__all__ = ["HeldStore", "opened"]


class HeldStore(LmdbStore):
    """Its commits wait while `free` is not set, and say so by `waiting`."""

    def __init__(self, path: Any) -> None:
        super().__init__(path)
        self.free, self.waiting = threading.Event(), threading.Event()
        self.free.set()

    def hold(self) -> None:
        """Wait, if it is held."""
        if not self.free.is_set():
            self.waiting.set()
            assert self.free.wait(60)

    def commit(self, writes: Sequence[Write], epoch: int, batch: int = 0) -> None:
        self.hold()
        super().commit(writes, epoch, batch)


def opened(path: Any, **options: Any) -> LmdbStore:
    """A store that this process owns."""
    store = LmdbStore(path, map_size=1 << 24, **options)
    store.own()
    return store
