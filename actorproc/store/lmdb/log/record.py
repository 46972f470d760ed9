"""One record of the log: the rows of one commit, with what tells that it is there as a whole.

A record is::

    magic (4 bytes)  ·  checksum (4)  ·  length of the body (4)  ·  place (8)  ·  epoch (8)  ·  batch (8)  ·  body

All numbers are big-endian. The body is a msgpack array of [table, key, value or nil], where nil deletes. The place is
the number of the record; each record has one more than the record before. The checksum is the CRC-32 of the salt of its
file and of all behind the checksum itself. So a record that was torn by a power cut is none, and neither is one that is
left of an earlier use of the file: its place is smaller.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec

from actorproc.errors import StoreFormat
from actorproc.store.rows import codec
from actorproc.store.rows.layout import BATCH
from actorproc.store.rows.tables import Table

__all__ = ["HEAD_SIZE", "LogRecord", "LogRow", "decoded", "encoded", "later_record", "length_of", "record_at"]

LogRow = tuple[Table, bytes, bytes | None]
"""Table, key, and the new value; None: the row is deleted."""

_MAGIC = b"aplr"
_HEAD = struct.Struct(">4sIIQQQ")
HEAD_SIZE = _HEAD.size
_PLACE_AT = 12
_BEHIND_CHECKSUM = struct.Struct(">IQQQ")
_TABLES = tuple(Table)
_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[tuple[int, bytes, bytes | None]]).decode


class LogRecord(NamedTuple):
    """A record that is there as a whole."""

    place: int
    epoch: int
    batch: int
    body: bytes
    end: int
    """Byte at which the next record begins, counted as that of this one was."""

    def rows(self) -> list[LogRow]:
        """Its rows, that of the number of the batch included. Raises `StoreFormat` for those of a later version."""
        return decoded(self.body, self.batch)


def encoded(rows: Sequence[LogRow], place: int, epoch: int, batch: int, salt: int) -> bytes:
    """The record of a commit. `salt` is the checksum of the salt of the file."""
    body = _encode(rows)
    checksum = zlib.crc32(body, zlib.crc32(_BEHIND_CHECKSUM.pack(len(body), place, epoch, batch), salt))
    return _HEAD.pack(_MAGIC, checksum, len(body), place, epoch, batch) + body


def length_of(head: bytes) -> int | None:
    """Bytes of the record that begins so; None when none does."""
    if len(head) < HEAD_SIZE or not head.startswith(_MAGIC):
        return None
    return HEAD_SIZE + int.from_bytes(head[8:12])


def record_at(data: bytes, at: int, salt: int) -> LogRecord | None:
    """The record that begins at this byte of `data`; None when there is none as a whole."""
    if len(data) - at < HEAD_SIZE:
        return None
    magic, checksum, length, place, epoch, batch = _HEAD.unpack_from(data, at)
    end = at + HEAD_SIZE + length
    if magic != _MAGIC or end > len(data):
        return None
    body = data[at + HEAD_SIZE : end]
    if checksum != zlib.crc32(body, zlib.crc32(_BEHIND_CHECKSUM.pack(length, place, epoch, batch), salt)):
        return None
    return LogRecord(place, epoch, batch, body, end)


def later_record(data: bytes, at: int, salt: int, place: int) -> LogRecord | None:
    """A whole record of this place or a later one anywhere behind a byte of `data`; None when there is none."""
    for found in _begins(data, at):
        if int.from_bytes(data[found + _PLACE_AT : found + _PLACE_AT + 8]) < place:
            continue
        record = record_at(data, found, salt)
        if record is not None:
            return record
    return None


def _begins(data: bytes, at: int) -> Iterator[int]:
    found = data.find(_MAGIC, at)
    while found >= 0:
        yield found
        found = data.find(_MAGIC, found + 1)


def decoded(body: bytes, batch: int) -> list[LogRow]:
    """The rows in the body of a record. Raises `StoreFormat`."""
    try:
        rows: list[LogRow] = [(_TABLES[table], key, value) for table, key, value in _decode(body)]
    except (IndexError, msgspec.MsgspecError) as error:
        raise StoreFormat(
            f"a commit in the log was made by a later actorproc ({error}); open the store with that one. It was not "
            "changed"
        ) from error
    if batch:
        rows.append((Table.META, BATCH, codec.encode(Table.META, BATCH, batch)))
    return rows
