"""Reads of the store with the manager's turn: one that fails for want of the store begins an outage."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from actorproc.errors import StorageUnavailable
from actorproc.store.base import RecordStore

__all__ = ["reads_of"]


def reads_of(store: RecordStore, failed: Callable[[StorageUnavailable], None]) -> RecordStore:
    """The reading half of a store, which tells of each read that fails before it raises.

    Args:
        store: The store.
        failed: Told of a `StorageUnavailable`, on the thread that reads. Damage of a record is no outage.

    Returns:
        The same methods.
    """
    return cast("RecordStore", _StoreReads(store, failed))


class _StoreReads:
    """Stands before a store. Each method is made when it is first asked for."""

    def __init__(self, store: RecordStore, failed: Callable[[StorageUnavailable], None]) -> None:
        self._store = store
        self._failed = failed

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if not callable(method):
            return method

        def read(*arguments: Any, **options: Any) -> Any:
            try:
                return method(*arguments, **options)
            except StorageUnavailable as error:
                self._failed(error)
                raise

        setattr(self, name, read)
        return read
