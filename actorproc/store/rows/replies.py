"""Reads of replies to asks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

from actorproc.model.rows.asks import AskKey, ReplyRecord
from actorproc.store.rows import codec
from actorproc.store.rows.keys import prefix, text_key
from actorproc.store.rows.tables import Rows, Table

__all__ = ["ReplyReader"]


class ReplyReader(ABC):
    """Part of a `RecordReader`."""

    @abstractmethod
    def _view(self) -> AbstractContextManager[Rows]:
        """A snapshot of the last commit, to be given back soon."""

    def replies(self, id: str, ask: AskKey | None = None) -> list[ReplyRecord]:
        """Replies of a procedure, or the one to this ask. Raises `StoreDamaged`."""
        with self._view() as rows:
            if ask is None:
                found = list(rows.scan(Table.REPLIES, prefix(id)))
            else:
                key = prefix(id) + text_key(ask.mark)
                value = rows.get(Table.REPLIES, key)
                found = [] if value is None else [(key, value)]
            return [codec.decode(Table.REPLIES, key, value) for key, value in found]
