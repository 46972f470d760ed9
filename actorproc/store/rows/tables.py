"""The databases of a store and the sorted rows in them. Keys and values are in `actorproc.store.rows.layout`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from itertools import islice
from typing import Protocol

__all__ = ["INDEXES", "STATE_TABLES", "Rows", "Table", "looked_up_heads"]

_AT_ONCE = 512
"""Heads looked up with one call."""


class Table(IntEnum):
    """One named database; its name on disk is the member's name in lower case."""

    META = 0
    PROCEDURES = 1
    STEPS = 2
    CHILDREN = 3
    MEMBERS = 4
    UNDO = 5
    LOCKS = 6
    POISON = 7
    TIMERS = 8
    EVENTS = 9
    NOTES = 10
    ORDER = 11
    FINISHED = 12
    BY_STATE = 13
    BY_TYPE = 14
    BY_TAG = 15
    ACKNOWLEDGED = 16
    REMOVALS = 17
    AUDIT = 18
    STARTS = 19
    FAILED = 20
    ROLLED_BACK = 21
    ATTEMPTS = 22
    EXPOSED = 23
    SCHEDULES = 24
    ENQUEUED = 25
    REPLIES = 26

    @property
    def label(self) -> str:
        """The name on disk."""
        return self.name.lower()


STATE_TABLES = (Table.BY_STATE, Table.FAILED, Table.ROLLED_BACK)
"""Tables that hold one row for each procedure between them, by its state."""

INDEXES = (Table.ORDER, Table.MEMBERS, *STATE_TABLES, Table.BY_TYPE, Table.BY_TAG, Table.TIMERS, Table.FINISHED)
"""Tables whose rows follow from the heads; they have no checksum."""


class Rows(Protocol):
    """One consistent snapshot of a store's rows."""

    def get(self, table: Table, key: bytes) -> bytes | None:
        """The value under a key."""
        ...

    def get_many(self, table: Table, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        """The values under those of the keys that are there."""
        ...

    def scan(
        self, table: Table, prefix: bytes = b"", *, after: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        """Rows whose keys begin with `prefix`, in key order; with `after` those that come after that key."""
        ...

    def count(self, table: Table) -> int:
        """Number of rows of a table. In a database it takes time by their number."""
        ...

    def is_empty(self, table: Table) -> bool:
        """True if a table has no rows; cheap also where `count` is not."""
        ...

    def heads_of(self, table: Table, prefix: bytes) -> Iterator[tuple[bytes, bytes, bytes | None]]:
        """Rows of an index whose keys begin with `prefix`, in key order: key, id, and the head under that id."""
        ...


def looked_up_heads(rows: Rows, table: Table, prefix: bytes) -> Iterator[tuple[bytes, bytes, bytes | None]]:
    """`Rows.heads_of` for rows that have no better way."""
    entries = rows.scan(table, prefix)
    while some := list(islice(entries, _AT_ONCE)):
        heads = rows.get_many(Table.PROCEDURES, [id_ for _, id_ in some])
        for key, id_ in some:
            yield key, id_, heads.get(id_)
