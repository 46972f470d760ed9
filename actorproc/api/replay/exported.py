"""An export as a store in memory, to be read like any other."""

from __future__ import annotations

from actorproc.report.schema.export import read_export
from actorproc.store.memory import MemoryStore
from actorproc.store.tools.transfer import bring_in

__all__ = ["store_of_export"]


def store_of_export(name: str) -> MemoryStore:
    """The trees of an export in a store of their own. Raises `UsageError`."""
    store = MemoryStore()
    epoch = store.own()
    bring_in(store, read_export(name), lambda writes: store.commit(writes, epoch))
    return store
