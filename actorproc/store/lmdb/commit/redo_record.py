"""The redo record: what lets a small commit wait for the disk once, and not twice.

LMDB makes a commit durable in two steps: the changed pages, and then one of two meta pages, by turns, that points to
them. It waits for the disk after each. Without the second wait (``MDB_NOMETASYNC``) the file is sound after a power
cut all the same, but it may be as it was one commit earlier. So the rows of a small commit are written once more,
before it. They go into the unused rest of the meta page of the commit before, which the wait for the pages takes to
the disk along with them. The owner of the store after a power cut finds the rows there and commits them again.

The record of transaction N stands in the page of N - 1, so only that of N + 2 overwrites it. By then the wait of N + 1
has taken the meta page of N to the disk. The first sector of a page, which LMDB writes, is left alone.

A redo log as in any database (Gray and Reuter, 1992, chapter 9), of which a single commit is ever needed.
"""

from __future__ import annotations

import contextlib
import os
import struct
import zlib
from collections.abc import Sequence
from pathlib import Path

import msgspec

from actorproc.errors import EngineError, StorageUnavailable, StoreFormat
from actorproc.store.directory import DATA_FILE
from actorproc.store.lmdb.commit.meta_pages import read_meta_pages
from actorproc.store.lmdb.environment import Databases
from actorproc.store.lmdb.transaction import Txn, apply_rows
from actorproc.store.rows.layout import Row
from actorproc.store.rows.tables import Table

__all__ = ["RedoRecord", "is_one_behind"]

_SECTOR = 512
"""Bytes of a meta page that belong to LMDB, which uses fewer. A sector is on the disk as a whole, or is not."""
_HEAD = struct.Struct(">8sQII")  # magic, the number of the transaction, length and checksum of the rows
_MAGIC = b"ap-redo1"
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[int, bytes, bytes | None]]).decode
_numbers = struct.Struct(">Q")


class RedoRecord:
    """Place of the second copy of the last commit's rows, in the data file that is open as `fd`.

    Used by the one thread that writes the store.
    """

    def __init__(self, fd: int, page_size: int) -> None:
        self._fd = fd
        self.page_size = page_size
        self._room = page_size - _SECTOR - _HEAD.size

    def body_of(self, rows: Sequence[Row]) -> bytes | None:
        """The rows as `write` takes them; None when they have no room, or are not put and deleted one by one."""
        size = 0
        for _, key, value in rows:
            if type(value) is bytes:
                size += len(value)
            elif value is not None:
                return None
            size += len(key)
        if size > self._room:
            return None
        body = _encode(rows)
        return body if len(body) <= self._room else None

    def write(self, transaction: int, body: bytes) -> None:
        """Before the transaction with this number is committed. Raises `StorageUnavailable`."""
        head = _HEAD.pack(_MAGIC, transaction, len(body), _checksum(transaction, body))
        try:
            written = os.pwrite(self._fd, head + body, self._place(transaction))
        except OSError as error:
            raise StorageUnavailable(f"writing a redo record: {error.strerror}; check the disk") from error
        if written != len(head) + len(body):
            raise StorageUnavailable(f"writing a redo record: the disk took {written} bytes of it; check the disk")

    def forget(self, transaction: int) -> None:
        """The transaction with this number has failed, and its rows are not to come back.

        Best effort: its outcome is unknown in any case until the store was read again.
        """
        with contextlib.suppress(OSError):
            self._erase(transaction)

    def redo(self, txn: Txn, databases: Databases, path: Path) -> None:
        """Do in this transaction, the first of a store just opened, what a power cut has left in the record alone.

        In the transaction, as its lock keeps other writers away. Raises `OSError`, `StoreFormat`.
        """
        self._write_again()
        rows = self.read(txn.id())
        if rows is not None:
            apply_rows(txn, databases, rows)
            from actorproc.support.engine_log import engine_logger  # noqa: PLC0415 - who only looks at a store needs no logging

            log = engine_logger("actorproc.store")
            log.info("the last commit of %s was on the disk as its redo record only, and is made again", path)
        # Part of a commit that was under way when the power failed. It was not acknowledged, and it must not be found
        # when the next number is this one.
        following = txn.id() + 1
        if _in_head(os.pread(self._fd, _HEAD.size, self._place(following)), following) is not None:
            self._erase(following)

    def read(self, transaction: int) -> list[Row] | None:
        """The rows of the transaction with this number; None when they are not there as a whole.

        Raises `OSError`, and `StoreFormat` for rows that only a later actorproc can have written.
        """
        page = os.pread(self._fd, self.page_size - _SECTOR, self._place(transaction))
        found = _in_head(page, transaction)
        if found is None:
            return None
        length, checksum = found
        body = page[_HEAD.size : _HEAD.size + length]
        if len(body) != length or checksum != _checksum(transaction, body):
            return None
        try:
            return [(Table(table), key, value) for table, key, value in _decode(body)]
        except (ValueError, msgspec.MsgspecError) as error:
            raise StoreFormat(
                f"the last commit before a power cut, or a kill, was made by a later actorproc ({error}); open the "
                "store with that one. It was not changed"
            ) from error

    def _write_again(self) -> None:
        """Have the kernel write both meta pages with the next wait for the disk.

        Of a write that failed it tells once, and takes the page for written from then on.
        """
        for number in range(2):
            page = os.pread(self._fd, self.page_size, number * self.page_size)
            os.pwrite(self._fd, page, number * self.page_size)

    def _erase(self, transaction: int) -> None:
        os.pwrite(self._fd, bytes(_HEAD.size), self._place(transaction))

    def _place(self, transaction: int) -> int:
        return (transaction - 1) % 2 * self.page_size + _SECTOR


def is_one_behind(path: Path) -> bool:
    """True when the store at `path`, which has no owner, lacks a commit of which it has the redo record.

    Raises `StoreFormat` when a later actorproc made that one.
    """
    try:
        metas = read_meta_pages(path)
        if metas is None:
            return False
        with (path / DATA_FILE).open("rb") as file:
            return RedoRecord(file.fileno(), metas.page_size).read(metas.newest + 1) is not None
    except StoreFormat:
        raise
    except (OSError, EngineError):
        return False  # the next read meets it


def _in_head(record: bytes, transaction: int) -> tuple[int, int] | None:
    """Length and checksum of the rows of this transaction; None when it is no record, or that of another one."""
    if len(record) < _HEAD.size:
        return None
    magic, number, length, checksum = _HEAD.unpack_from(record)
    return (length, checksum) if (magic, number) == (_MAGIC, transaction) else None


def _checksum(transaction: int, body: bytes) -> int:
    return zlib.crc32(body, zlib.crc32(_numbers.pack(transaction)))
