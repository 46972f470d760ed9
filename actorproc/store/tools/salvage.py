"""Salvage of a data file that LMDB must not open: its pages, followed with plain reads.

A page that is not what it should be costs the keys it held, and between which keys these lay is known from the page
above. So a question that touches lost keys is answered with `StoreDamaged`, and every other one as by a sound store.
Index rows are made anew from the heads. Commits in the log count up to the first one that is damaged. All rows are held
in memory: this is for saving what is good, once.

The layout is that of LMDB 0.9 (data version 1) on this machine: ``MDB_page``, ``MDB_node`` and ``MDB_db`` in its mdb.c.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Self

from actorproc.errors import EngineError, StoreDamaged
from actorproc.store.directory import DATA_FILE, check_directory
from actorproc.store.lmdb.environment import LOG_DATABASE
from actorproc.store.lmdb.files.blobs import with_blob
from actorproc.store.lmdb.log.place import place_of
from actorproc.store.lmdb.log.record import LogRow
from actorproc.store.lmdb.log.tail import whole_records
from actorproc.store.rows import codec
from actorproc.store.rows.layout import FORMAT, FORMAT_KEY, index_rows
from actorproc.store.rows.reading import RecordReader
from actorproc.store.rows.tables import INDEXES, Rows, Table, looked_up_heads
from actorproc.support.engine_log import engine_logger

__all__ = ["SalvageReader"]

logger = engine_logger("actorproc.store")

_HEADER, _NODE, _DB = struct.Struct("=QHHHH"), struct.Struct("=HHHH"), struct.Struct("=IHHQQQQQ")
_META = struct.Struct("=II")
_BRANCH, _LEAF, _OVERFLOW = 1, 2, 4
_BIG, _SUB = 1, 2
_DEEPEST = 32
_LAST = b"\xff" * 512
_INDEXES = frozenset(INDEXES)


class SalvageReader(RecordReader):
    """The reading methods of a store over what is left of its file. A context manager; holds nothing open.

    No process may be writing to the store. Raises `EngineError` when there is no file, `StoreDamaged` when neither meta
    page can be read.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        check_directory(self.path, allow_any_filesystem=True)
        try:
            with (self.path / DATA_FILE).open("rb") as file:
                pages = _Pages(file.read())
                last = _behind(self.path, pages)
        except OSError as error:
            raise EngineError(f"cannot read {self.path / DATA_FILE}: {error.strerror}") from error
        self._rows = _Saved(pages, last, self.path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """There is nothing to close."""

    def roots(self) -> list[str]:
        """The ids of all roots whose heads can be read, in order of ids."""
        found = []
        for key, value in self._rows.known(Table.PROCEDURES):
            try:
                head = codec.decode(Table.PROCEDURES, key, value)
            except StoreDamaged:
                continue
            if head.parent is None:
                found.append(str(head.id))
        return found

    def _view(self) -> AbstractContextManager[Rows]:
        return nullcontext(self._rows)


def _behind(path: Path, pages: _Pages) -> list[LogRow]:
    """The rows of the commits in the log that the pages lack, up to the first one that is damaged."""
    rows: list[LogRow] = []
    try:
        place = place_of(pages.table(LOG_DATABASE)[0][b"place"])
        meta, _ = pages.table(Table.META.label.encode())
        if codec.decode(Table.META, FORMAT_KEY, meta[FORMAT_KEY]) == FORMAT:
            return []
        for record in whole_records(path, place):
            rows += record.rows()
    except KeyError:
        pass  # it never had a log, or that is not known
    except EngineError as error:  # what is good is saved all the same
        logger.warning("commits in the log are left out: %s", error)
    return rows


class _Saved:
    """`Rows` that know which keys were lost."""

    def __init__(self, pages: _Pages, last: Sequence[LogRow], path: Path) -> None:
        """``last`` are rows of commits after that of the pages, ``path`` is where files of long values are."""
        self._lost: dict[Table, list[tuple[bytes, bytes]]] = {}
        self._tables: dict[Table, dict[bytes, bytes]] = {table: {} for table in Table}
        for table in Table:
            rows, lost = pages.table(table.label.encode())
            if table not in _INDEXES:
                self._tables[table], self._lost[table] = rows, lost
        for table, place, row in last:
            if table in _INDEXES:
                continue
            if isinstance(row, bytes):
                self._tables[table][place] = row
            else:
                self._tables[table].pop(place, None)
        steps = self._tables[Table.STEPS]
        self._tables[Table.STEPS] = {key: with_blob(path, value) or b"" for key, value in steps.items()}
        for key, value in self.known(Table.PROCEDURES):
            try:
                head = codec.decode(Table.PROCEDURES, key, value)
            except StoreDamaged:
                continue
            for index, place, id_ in index_rows(head):
                assert isinstance(id_, bytes)
                self._tables[index][place] = id_

    def known(self, table: Table) -> list[tuple[bytes, bytes]]:
        """All rows of a table that were read, in order of keys."""
        return sorted(self._tables[table].items())

    def get(self, table: Table, key: bytes) -> bytes | None:
        value = self._tables[table].get(key)
        if value is None:
            self._check(table, key, key)
        return value

    def get_many(self, table: Table, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        return {key: value for key in keys if (value := self.get(table, key)) is not None}

    def count(self, table: Table) -> int:
        return len(self._tables[table])

    def is_empty(self, table: Table) -> bool:
        return not self.count(table)

    def heads_of(self, table: Table, prefix: bytes) -> Iterator[tuple[bytes, bytes, bytes | None]]:
        return looked_up_heads(self, table, prefix)

    def scan(
        self, table: Table, prefix: bytes = b"", *, after: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        self._check(table, prefix, prefix + _LAST)
        rows = [(key, value) for key, value in self.known(table) if key.startswith(prefix)]
        if reverse:
            rows.reverse()
        for key, value in rows:
            if after is None or (key < after if reverse else key > after):
                yield key, value

    def _check(self, table: Table, first: bytes, last: bytes) -> None:
        for low, high in self._lost.get(table, ()):
            if first < high and last >= low:
                raise codec.damaged(table, first, "a page with rows like this cannot be read")


class _Pages:
    """The pages of one file, each looked at before it is used."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.size = 4096
        self.transaction = 0
        """Transaction whose pages these are: the last one with a meta page that can be read."""
        root = self._newest_main_root()
        self._databases: dict[bytes, int] = {}
        self._gaps: list[tuple[bytes, bytes]] = []
        rows, self._gaps = self._walk(root, wanted=_SUB)
        for name, value in rows.items():
            if len(value) == _DB.size:
                self._databases[name] = _DB.unpack(value)[7]

    def table(self, name: bytes) -> tuple[dict[bytes, bytes], list[tuple[bytes, bytes]]]:
        """The rows of a named database, and the ranges of keys that were lost; its name may be lost as well."""
        root = self._databases.get(name)
        if root is None:
            is_lost = any(low <= name < high for low, high in self._gaps)
            return {}, [(b"", _LAST)] if is_lost or name == b"procedures" else []
        return self._walk(root, wanted=0)

    def _newest_main_root(self) -> int:
        found = []
        for size in (4096, 8192, 16384, 32768, 65536):
            for at in (0, size):
                meta = self._data[at + 16 : at + 152]
                if len(meta) < 136 or _META.unpack_from(meta) != (0xBEEFC0DE, 1):
                    continue
                if struct.unpack_from("=I", meta, 24)[0] == size:
                    found.append((struct.unpack_from("=Q", meta, 128)[0], size, _DB.unpack_from(meta, 72)[7]))
            if found:
                break
        if not found:
            raise StoreDamaged(
                "neither meta page of the data file can be read; restore a backup", reason="no meta page"
            )
        self.transaction, self.size, root = max(found)
        return int(root)

    def _walk(self, root: int, *, wanted: int) -> tuple[dict[bytes, bytes], list[tuple[bytes, bytes]]]:
        """Rows below a root whose flags are `wanted` (big values aside), and the ranges that are lost."""
        rows: dict[bytes, bytes] = {}
        lost: list[tuple[bytes, bytes]] = []
        if root == 2**64 - 1:
            return rows, lost
        pending = [(root, b"", _LAST, 0)]
        seen: set[int] = set()
        while pending:
            page, low, high, depth = pending.pop()
            nodes = None if page in seen or depth > _DEEPEST else self._nodes(page, low, high)
            seen.add(page)
            if nodes is None:
                lost.append((low, high))
                continue
            is_branch, entries = nodes
            for number, (key, flags, value) in enumerate(entries):
                if is_branch:
                    start = key if number else low
                    end = entries[number + 1][0] if number + 1 < len(entries) else high
                    pending.append((int.from_bytes(value, "big"), start, end, depth + 1))
                elif flags & ~_BIG != wanted or (saved := self._value(flags, value)) is None:
                    lost.append((key, key + b"\0"))
                else:
                    rows[key] = saved
        return rows, lost

    def _nodes(self, page: int, low: bytes, high: bytes) -> tuple[bool, list[tuple[bytes, int, bytes]]] | None:
        """Keys, flags and values of a page in order; None when it is not a sound page for these keys.

        Values of branches are page numbers, those of big rows length and page number.
        """
        size, at = self.size, page * self.size
        raw = self._data[at : at + size]
        if page < 2 or len(raw) < size:
            return None
        number, _, flags, lower, upper = _HEADER.unpack_from(raw)
        if number != page or flags not in (_BRANCH, _LEAF) or not 16 <= lower <= upper <= size or lower % 2:
            return None
        found: list[tuple[bytes, int, bytes]] = []
        previous = None
        for place in struct.unpack_from(f"={(lower - 16) // 2}H", raw, 16):
            if place < upper or place + 8 > size:
                return None
            first, second, third, key_size = _NODE.unpack_from(raw, place)
            key = raw[place + 8 : place + 8 + key_size]
            begin = place + 8 + key_size
            if begin > size:
                return None
            if flags == _BRANCH:
                value, node_flags = (first | second << 16 | third << 32).to_bytes(8), 0
            else:
                node_flags = third
                length = first | second << 16
                kept = 8 if node_flags & _BIG else length
                if begin + kept > size:
                    return None
                value = raw[begin : begin + kept]
                if node_flags & _BIG:
                    value = length.to_bytes(8) + value
            is_leftmost = flags == _BRANCH and not found
            if not is_leftmost and not (low <= key < high and (previous is None or previous < key)):
                return None
            previous = None if is_leftmost else key
            found.append((key, node_flags, value))
        return flags == _BRANCH, found

    def _value(self, flags: int, value: bytes) -> bytes | None:
        if not flags & _BIG:
            return value
        length = int.from_bytes(value[:8])
        at = struct.unpack("=Q", value[8:])[0] * self.size
        header = self._data[at : at + 16]
        if len(header) < 16 or _HEADER.unpack(header)[2] != _OVERFLOW or at + 16 + length > len(self._data):
            return None
        return self._data[at + 16 : at + 16 + length]
