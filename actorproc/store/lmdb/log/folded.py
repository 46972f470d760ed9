"""A snapshot of the data file with the rows of the log folded over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import lmdb

from actorproc.store.lmdb.environment import Databases, ReadSnapshot
from actorproc.store.lmdb.files.blobs import with_blob
from actorproc.store.lmdb.log.overlay import Absent, Layer, Layers
from actorproc.store.rows.tables import Table

__all__ = ["FoldedSnapshot"]

_STEPS = Table.STEPS


class FoldedSnapshot(ReadSnapshot):
    """`Rows` of the data file and of the log, as of one commit."""

    def __init__(
        self,
        txn: lmdb.Transaction[bytes],
        databases: Databases,
        leave: Callable[[], None],
        path: Path,
        layers: Layers,
    ) -> None:
        super().__init__(txn, databases, leave, path)
        self._layers = layers

    def get(self, table: Table, key: bytes) -> bytes | None:
        value = self._layers.get(table, key)
        if isinstance(value, Absent):
            return super().get(table, key)
        return with_blob(self._path, value) if table is _STEPS else value

    def get_many(self, table: Table, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        if not self._layers.has(table):
            return super().get_many(table, keys)
        found: dict[bytes, bytes] = {}
        rest = []
        for key in keys:
            value = self._layers.get(table, key)
            if isinstance(value, Absent):
                rest.append(key)
            elif value is not None:
                found[key] = (with_blob(self._path, value) or b"") if table is _STEPS else value
        return found | super().get_many(table, rest) if rest else found

    def count(self, table: Table) -> int:
        base = super().count(table)
        if not self._layers.before:
            number = base
            below: tuple[Layer, ...] = ()
            for layer in reversed(self._layers.found):
                number += self._added(table, layer, below)
                below = (layer,)
            if not self._layers.before:
                return number
        # A commit has changed a layer since, perhaps just now: each row is looked at as it was.
        rows = list(self._layers.scan(table, b"", None, reverse=False))
        there = super().get_many(table, [key for key, _ in rows])
        return base + sum((value is not None) - (key in there) for key, value in rows)

    def _added(self, table: Table, layer: Layer, below: tuple[Layer, ...]) -> int:
        """Rows that a layer has more than those below it."""
        known = layer.below(self._txn.id())[table]
        rows = list(layer.tables[table].items())
        unknown = [key for key, _ in rows if key not in known]
        for lower in below:
            known |= {key: lower.tables[table][key] is not None for key in unknown if key in lower.tables[table]}
        rest = [key for key in unknown if key not in known]
        if rest:
            there = super().get_many(table, rest)
            known |= {key: key in there for key in rest}
        return sum((value is not None) - known[key] for key, value in rows)

    def is_empty(self, table: Table) -> bool:
        number = super().count(table)
        if not self._layers.has(table):
            return number == 0
        for _, value in self._layers.scan(table, b"", None, reverse=False):
            if value is not None:
                return False
            number -= 1
        return number <= 0 or self.count(table) == 0

    def scan(
        self, table: Table, prefix: bytes = b"", *, after: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        base = super().scan(table, prefix, after=after, reverse=reverse)
        if not self._layers.has(table):
            yield from base
            return
        row = next(base, None)
        for key, value in self._layers.scan(table, prefix, after, reverse=reverse):
            while row is not None and (row[0] > key if reverse else row[0] < key):
                yield row
                row = next(base, None)
            if row is not None and row[0] == key:
                row = next(base, None)
            if value is not None:
                yield key, (with_blob(self._path, value) or b"") if table is _STEPS else value
        if row is not None:
            yield row
            yield from base
