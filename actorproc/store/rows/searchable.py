"""Names of the searchable fields that stored procedures have, as their index tells them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

from actorproc.store.rows.keys import FIELDS
from actorproc.store.rows.tables import Rows, Table

__all__ = ["SearchableReader"]

_BEHIND = (b"=", b"#", b"\0")
"""Bytes behind the name of a field: before a value, before the hash of one, and where the field has none."""
_END = re.compile(rb"[=#\0]")


class SearchableReader(ABC):
    """Part of a `RecordReader`."""

    @abstractmethod
    def _view(self) -> AbstractContextManager[Rows]:
        """A snapshot of the last commit, to be given back soon."""

    def has_searchable(self, field: str) -> bool:
        """True if a stored procedure has this searchable field, with a value or with none."""
        start = FIELDS + field.encode("utf-8", "surrogatepass")
        with self._view() as rows:
            return any(next(iter(rows.scan(Table.BY_TAG, start + byte)), None) is not None for byte in _BEHIND)

    def searchable_fields(self) -> list[str]:
        """Names of the searchable fields of stored procedures: a few rows of the index are read for each."""
        found: dict[str, None] = {}
        place: bytes | None = None
        while True:
            with self._view() as rows:
                entry = next(iter(rows.scan(Table.BY_TAG, FIELDS, after=place)), None)
            if entry is None:
                return list(found)
            place = entry[0]
            end = _END.search(place, len(FIELDS))
            if end is not None:  # else the row is damaged
                found[place[len(FIELDS) : end.start()].decode("utf-8", "backslashreplace")] = None
                place = place[: end.start()] + bytes([place[end.start()] + 1])  # behind all that begin so
