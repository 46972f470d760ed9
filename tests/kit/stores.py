"""Stores for tests: LMDB stores that are small enough to be made by the hundred, held commits, and a full disk."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from actorproc.errors import StorageUnavailable
from actorproc.model.rows.writes import Write
from actorproc.store.lmdb.store import LmdbStore
from actorproc.store.memory import MemoryStore
from actorproc.store.rows.layout import Row

__all__ = ["FullDisk", "HeldCommits", "opened"]


class HeldCommits:
    """Commits of a store of any kind, which from now on wait while `free` is not set, and say so by `waiting`."""

    def __init__(self, store: Any) -> None:
        self.free, self.waiting = threading.Event(), threading.Event()
        self.free.set()
        self._commit, store.commit = store.commit, self._held

    def _held(self, writes: Sequence[Write], epoch: int, batch: int = 0) -> None:
        if not self.free.is_set():
            self.waiting.set()
            assert self.free.wait(60)
        self._commit(writes, epoch, batch)


class FullDisk(MemoryStore):
    """Refuses commits while `full` is set; with `late` it applies them first and then says it failed.

    With `room` it is full after so many commits more, in the middle of work, however fast that is.
    """

    def __init__(self, *, late: bool = False) -> None:
        super().__init__()
        self.full, self.late = False, late
        self.room: int | None = None
        self.refused = self.reopened = 0

    def _apply(self, rows: Sequence[Row]) -> None:
        if self.room is not None:
            self.room -= 1
            if self.room < 0:
                self.full, self.room = True, None
        if self.full:
            self.refused += 1
            if self.late:
                super()._apply(rows)
            raise StorageUnavailable("no space left on device")
        super()._apply(rows)

    def reopen(self) -> None:
        if self.full:
            raise StorageUnavailable("still no space left")
        self.reopened += 1
        super().reopen()


def opened(path: Any, **options: Any) -> LmdbStore:
    """A store that this process owns."""
    store = LmdbStore(path, map_size=1 << 24, **options)
    store.own()
    return store
