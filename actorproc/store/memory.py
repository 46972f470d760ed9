"""A store in memory: the one of the simulator and of most tests.

Same rows and same bytes as on disk, without the disk. `clone()` is the store as a crash leaves it.
"""

from __future__ import annotations

import os
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from functools import partial
from types import TracebackType
from typing import Self

from actorproc.errors import Deposed, EngineError, NotAllowed
from actorproc.model.ids import new_id
from actorproc.model.reports import BackupReport, CompactionReport
from actorproc.model.rows.writes import Write
from actorproc.store.rows import codec
from actorproc.store.rows.layout import (
    BATCH,
    EPOCH,
    FORMAT,
    FORMAT_KEY,
    LAST_BATCH,
    STORE_ID,
    Row,
    Until,
    WholeLog,
    rows_of,
)
from actorproc.store.rows.loading import read_number
from actorproc.store.rows.reading import RecordReader
from actorproc.store.rows.step_log import keys_of_log
from actorproc.store.rows.tables import Table, looked_up_heads

__all__ = ["MemoryRows", "MemoryStore"]


class MemoryStore(RecordReader):
    """`ProcedureStore` on dictionaries. To inject faults, override `_apply`."""

    def __init__(self) -> None:
        self._rows = MemoryRows()
        self._owned = False
        self._epoch = 0
        for key, value in ((FORMAT_KEY, FORMAT), (STORE_ID, new_id()), (EPOCH, 0)):
            self._rows.put(Table.META, key, codec.encode(Table.META, key, value))

    def own(self) -> int:
        """Become the owner and return the new epoch; the owner before is fenced off."""
        with self._rows:
            epoch = read_number(self._rows, EPOCH) + 1
            self._rows.put(Table.META, EPOCH, codec.encode(Table.META, EPOCH, epoch))
            last = read_number(self._rows, BATCH)
            self._rows.put(Table.META, LAST_BATCH, codec.encode(Table.META, LAST_BATCH, last))
            self._rows.put(Table.META, BATCH, codec.encode(Table.META, BATCH, 0))
            self._owned, self._epoch = True, epoch
            return epoch

    def commit(self, writes: Sequence[Write], epoch: int, batch: int = 0) -> None:
        """Apply all writes or none, if `epoch` is still the stored one."""
        rows = rows_of(writes, batch)
        with self._rows:
            self._check(epoch)
            self._apply(rows)

    def reopen(self) -> None:
        """Nothing to open again; the rows are what was committed last. Raises `Deposed` after a takeover."""
        if self._owned:
            self._check(self._epoch)

    def close(self) -> None:
        """Give the store up; it can be owned again."""
        self._owned = False

    def compact(self) -> CompactionReport:
        """Nothing is wasted in memory: the size of all keys and values, unchanged."""
        with self._rows:
            size = self._rows.size()
        return CompactionReport(size, size, 0.0)

    def backup(self, path: str | os.PathLike[str]) -> BackupReport:
        """Refused: there is no file to copy."""
        raise NotAllowed(f"a store in memory has no files that could be backed up to {os.fspath(path)}")

    def clone(self) -> Self:
        """A copy of what is stored now, without an owner: what a crash at this moment leaves."""
        twin = type(self).__new__(type(self))
        twin.__dict__.update(self.__dict__)
        with self._rows:
            twin._rows = self._rows.copy()
        twin._owned = False
        return twin

    def _apply(self, rows: Sequence[Row]) -> None:
        """Change the rows. Called with the lock held, after the epoch was checked."""
        self._rows.apply(rows)

    def _check(self, epoch: int) -> None:
        if not self._owned:
            raise EngineError("this store in memory has no owner: call own() first")
        if read_number(self._rows, EPOCH) != epoch:
            raise Deposed(f"a newer owner has taken over this store in memory; epoch {epoch} is fenced off")

    def _view(self) -> MemoryRows:
        return self._rows


class MemoryRows:
    """Rows in one dictionary per table. As a context manager it is its own lock."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._tables: list[dict[bytes, bytes]] = [{} for _ in Table]
        self._sorted: list[list[bytes] | None] = [None for _ in Table]

    def __enter__(self) -> Self:
        self._lock.acquire()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._lock.release()

    def copy(self) -> MemoryRows:
        twin = MemoryRows()
        twin._tables = [dict(table) for table in self._tables]
        return twin

    def size(self) -> int:
        return sum(len(key) + len(value) for table in self._tables for key, value in table.items())

    def get(self, table: Table, key: bytes) -> bytes | None:
        with self._lock:  # not in the middle of a commit
            return self._tables[table].get(key)

    def get_many(self, table: Table, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        with self._lock:
            rows = self._tables[table]
            return {key: rows[key] for key in keys if key in rows}

    def count(self, table: Table) -> int:
        with self._lock:
            return len(self._tables[table])

    def is_empty(self, table: Table) -> bool:
        return not self._tables[table]

    def heads_of(self, table: Table, prefix: bytes) -> Iterator[tuple[bytes, bytes, bytes | None]]:
        return looked_up_heads(self, table, prefix)

    def scan(
        self, table: Table, prefix: bytes = b"", *, after: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        rows = self._tables[table]
        if not rows:
            return
        keys = self._keys(table)
        low = bisect_left(keys, prefix)
        # No key component is FF for this long, so this is past every key with the prefix.
        high = bisect_left(keys, prefix + b"\xff" * 512)
        if after is not None and reverse:
            high = bisect_left(keys, after)
        elif after is not None:
            low = bisect_right(keys, after)
        for key in reversed(keys[low:high]) if reverse else keys[low:high]:
            yield key, rows[key]

    def put(self, table: Table, key: bytes, value: bytes) -> None:
        rows = self._tables[table]
        if key not in rows:
            self._sorted[table] = None
        rows[key] = value

    def apply(self, changes: Sequence[Row]) -> None:
        for table, key, value in changes:
            if type(value) is bytes or type(value) is bytearray:
                self.put(table, key, bytes(value))
            elif value is None:
                self._delete(table, key)
            elif isinstance(value, int):
                raised = codec.raised(table, key, self.get(table, key), value)
                if raised is not None:
                    self.put(table, key, raised)
            elif isinstance(value, WholeLog):
                for step in keys_of_log(partial(self.get, table), value.id, value.last, value.trimmed):
                    self._delete(table, step)
            else:
                end = value.key if isinstance(value, Until) else None
                for swept, _ in list(self.scan(table, key)):
                    if end is None or swept < end:
                        self._delete(table, swept)

    def _delete(self, table: Table, key: bytes) -> None:
        if self._tables[table].pop(key, None) is not None:
            self._sorted[table] = None

    def _keys(self, table: Table) -> list[bytes]:
        keys = self._sorted[table]
        if keys is None:
            keys = self._sorted[table] = sorted(self._tables[table])
        return keys
