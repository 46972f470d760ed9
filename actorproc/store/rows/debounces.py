"""Look-up of debounced roots by their key."""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

from actorproc.errors import StoreDamaged
from actorproc.model.ids import debounce_name
from actorproc.model.rows.cold_trees import debounce_of
from actorproc.store.rows import codec
from actorproc.store.rows.keys import text_key
from actorproc.store.rows.tables import Rows, Table

__all__ = ["DebounceReader"]


class DebounceReader(ABC):
    """Part of a `RecordReader`."""

    @abstractmethod
    def _view(self) -> AbstractContextManager[Rows]:
        """A snapshot of the last commit, to be given back soon."""

    def newest_debounced(self, key: str) -> str | None:
        """The newest root of this debounce key; None: there is none whose head is sound."""
        start = text_key(debounce_name(key)) + b"\0"
        with self._view() as rows:
            for _, id_ in rows.scan(Table.BY_TAG, start, reverse=True):
                with contextlib.suppress(StoreDamaged):
                    value = rows.get(Table.PROCEDURES, id_)
                    head = None if value is None else codec.decode(Table.PROCEDURES, id_, value)
                    mark = None if head is None else debounce_of(head)
                    if head is not None and mark is not None and mark.key == key:  # else it is a user's tag
                        return str(head.id)
        return None
