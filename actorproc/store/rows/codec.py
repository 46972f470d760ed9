"""Records to bytes and back, so that damage is noticed.

A value is::

    version (1 byte, 1)  ·  checksum (4 bytes, big-endian)  ·  the record as one msgpack array

The checksum is the CRC-32 of version, database name, key and record together: LMDB does not notice damage by
itself, and a whole and valid record that stands under the wrong key (a swapped or replayed page) is damage
too. It finds accidents, not attackers.

A record whose long field stands in a file of its own (`actorproc.store.lmdb.files.blobs`)::

    version (1 byte, 3)  ·  checksum of the rest (4 bytes)  ·  name of the file (8 bytes)  ·  length (8 bytes)
    and CRC-32 (4 bytes) of the field  ·  which field (1 byte)  ·  the record, with nothing in that field

Records are msgpack arrays whose new fields go to the end with a default (`actorproc.model.rows.records`). So an older
record decodes by the defaults, and of a newer one unknown fields are left out.

Index rows (members, timers, order, finished, by_*) hold a bare id: they are checked against the head they
point to, which has a checksum.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from actorproc.errors import InternalError, StoreDamaged
from actorproc.model.exact import as_plain
from actorproc.model.rows.asks import ReplyRecord
from actorproc.model.rows.enqueued import EnqueuedRecord
from actorproc.model.rows.records import (
    AcknowledgementRecord,
    AttemptRecord,
    AuditRecord,
    ChildRecord,
    EventRecord,
    ExposedRecord,
    LockRecord,
    NoteRecord,
    PoisonRecord,
    ProcedureRecord,
    RemovalRecord,
    StartRecord,
    StepRecord,
    UndoRecord,
)
from actorproc.model.rows.schedules import ScheduleRecord
from actorproc.store.rows.tables import Table

__all__ = [
    "OUTSIDE",
    "VERSION",
    "Outside",
    "Reference",
    "checked_reference",
    "damaged",
    "decode",
    "encode",
    "encode_long",
    "encode_outside",
    "raised",
    "reference_in",
    "show_key",
    "shown_key",
    "unchecked",
]

VERSION = 1
_crc32 = zlib.crc32
_head = struct.Struct(">BI")
_HEAD_SIZE = _head.size
_unpack_head = _head.unpack_from
_SEED = [zlib.crc32(bytes([VERSION]) + table.label.encode() + b"\0") for table in Table]
OUTSIDE = b"\3"
"""Beginning of the value of a record with a file."""
_reference = struct.Struct(">8sQIB")
_OUTSIDE_SIZE = _head.size + _reference.size
_OUTSIDE_SEED = [zlib.crc32(OUTSIDE + table.label.encode() + b"\0") for table in Table]
_FIELDS = ("state", "output")
"""Fields of a record that may stand in a file, by their number in the value."""
_encoder = msgspec.msgpack.Encoder(enc_hook=as_plain)
_encode, _encode_into = _encoder.encode, _encoder.encode_into
_DECODERS: dict[Table, msgspec.msgpack.Decoder[Any]] = {
    Table.META: msgspec.msgpack.Decoder(int | str),
    Table.PROCEDURES: msgspec.msgpack.Decoder(ProcedureRecord),
    Table.STEPS: msgspec.msgpack.Decoder(StepRecord),
    Table.CHILDREN: msgspec.msgpack.Decoder(ChildRecord),
    Table.UNDO: msgspec.msgpack.Decoder(UndoRecord),
    Table.LOCKS: msgspec.msgpack.Decoder(LockRecord),
    Table.POISON: msgspec.msgpack.Decoder(PoisonRecord),
    Table.EVENTS: msgspec.msgpack.Decoder(EventRecord),
    Table.NOTES: msgspec.msgpack.Decoder(NoteRecord),
    Table.ATTEMPTS: msgspec.msgpack.Decoder(AttemptRecord),
    Table.EXPOSED: msgspec.msgpack.Decoder(ExposedRecord),
    Table.STARTS: msgspec.msgpack.Decoder(StartRecord),
    Table.AUDIT: msgspec.msgpack.Decoder(AuditRecord),
    Table.ACKNOWLEDGED: msgspec.msgpack.Decoder(AcknowledgementRecord),
    Table.REMOVALS: msgspec.msgpack.Decoder(RemovalRecord),
    Table.SCHEDULES: msgspec.msgpack.Decoder(ScheduleRecord),
    Table.ENQUEUED: msgspec.msgpack.Decoder(EnqueuedRecord),
    Table.REPLIES: msgspec.msgpack.Decoder(ReplyRecord),
}


class Reference(NamedTuple):
    """Place of the long field of a record."""

    name: str
    """Of the file, in hex."""
    size: int
    checksum: int
    """Of the field: CRC-32."""
    field: str


class Outside(bytes):
    """The value of a record whose long field stands in a file, which is read when the record is decoded."""

    read: Callable[[Reference], bytes | None]
    """The field; None: the file is not there, or has not all of it."""


def encode(table: Table, key: bytes, record: object) -> bytes:
    """The value to store for `record` under `key`.

    Raises `InternalError` for what msgpack cannot hold (a lone surrogate, an integer past 64 bits): such values
    are refused where they come from, long before they get here.
    """
    try:
        body = _encode(record)
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError) as error:
        raise _unstorable(table, key, record, error) from error
    return _head.pack(VERSION, _crc32(body, _crc32(key, _SEED[table]))) + body


def encode_long(table: Table, key: bytes, record: StepRecord) -> bytearray:
    """As `encode`, for a record of many bytes: they are copied once and not twice."""
    value = bytearray(_HEAD_SIZE)
    try:
        _encode_into(record, value, _HEAD_SIZE)
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError) as error:
        raise _unstorable(table, key, record, error) from error
    with memoryview(value)[_HEAD_SIZE:] as body:
        _head.pack_into(value, 0, VERSION, _crc32(body, _crc32(key, _SEED[table])))
    return value


def encode_outside(table: Table, key: bytes, record: StepRecord, reference: Reference) -> bytes:
    """As `encode`, for a record whose long field is empty and stands in a file."""
    name, size, checksum, field = reference
    try:
        rest = _reference.pack(bytes.fromhex(name), size, checksum, _FIELDS.index(field)) + _encode(record)
    except (UnicodeEncodeError, OverflowError, TypeError, ValueError) as error:
        raise _unstorable(table, key, record, error) from error
    return _head.pack(OUTSIDE[0], _crc32(rest, _crc32(key, _OUTSIDE_SEED[table]))) + rest


def reference_in(value: bytes | None) -> Reference | None:
    """The file that a stored value refers to; None when it refers to none. It is not checked."""
    if value is None or value[:1] != OUTSIDE or len(value) <= _OUTSIDE_SIZE:
        return None
    name, size, checksum, field = _reference.unpack_from(value, _HEAD_SIZE)
    return Reference(name.hex(), size, checksum, _FIELDS[field]) if field < len(_FIELDS) else None


def _unstorable(table: Table, key: bytes, record: object, error: Exception) -> InternalError:
    return InternalError(
        f"a {type(record).__name__} for {table.label} {show_key(table, key)} cannot be stored: {error}"
    )


def decode(table: Table, key: bytes, value: bytes) -> Any:
    """The record stored under `key`. Raises `StoreDamaged` naming database and key."""
    if len(value) <= _HEAD_SIZE:
        raise damaged(table, key, f"a value of {len(value)} bytes is too short to be a record")
    version, checksum = _unpack_head(value)
    if version == VERSION:
        body = value[_HEAD_SIZE:]
        if checksum != _crc32(body, _crc32(key, _SEED[table])):
            raise damaged(table, key, "the checksum does not match")
    elif version == OUTSIDE[0]:
        return _with_content(table, key, value)
    else:
        raise damaged(table, key, f"record version {version} is not known here (1 and 3 are)")
    return _decoded(table, key, body)


def _decoded(table: Table, key: bytes, body: bytes) -> Any:
    try:
        return _DECODERS[table].decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:  # ValidationError included
        raise damaged(table, key, f"the checksum matches, but the record does not decode: {error}") from error


def checked_reference(table: Table, key: bytes, value: bytes | None) -> Reference:
    """As `reference_in`, of a row that is sound. Raises `StoreDamaged`."""
    reference = reference_in(value)
    if value is None or reference is None:
        raise damaged(table, key, "the checksum does not match")
    if _unpack_head(value)[1] != _crc32(value[_HEAD_SIZE:], _crc32(key, _OUTSIDE_SEED[table])):
        raise damaged(table, key, "the checksum does not match")
    return reference


def _with_content(table: Table, key: bytes, value: bytes) -> Any:
    """A record together with the field that stands in its file."""
    reference = checked_reference(table, key, value)
    record = _decoded(table, key, value[_OUTSIDE_SIZE:])
    content = value.read(reference) if isinstance(value, Outside) else None
    if content is None:
        reason = f"the file blobs/{reference.name}, which holds its {reference.field}, is missing or unreadable"
        raise damaged(table, key, reason)
    if _crc32(content) != reference.checksum:
        reason = f"the file blobs/{reference.name}, which holds its {reference.field}, was changed"
        raise damaged(table, key, reason)
    msgspec.structs.force_setattr(record, reference.field, content)
    return record


def unchecked(table: Table, value: bytes) -> Any:
    """Contents that a damaged value seems to have, only to tell its owner; None when it says nothing."""
    try:
        return _DECODERS[table].decode(value[_OUTSIDE_SIZE if value[:1] == OUTSIDE else _HEAD_SIZE :])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, KeyError):
        return None


def raised(table: Table, key: bytes, stored: bytes | None, least: int) -> bytes | None:
    """The value that raises a stored number to at least `least`; None when it is there already.

    A damaged number is replaced: it must not stand in the way of every later commit.
    """
    try:
        found = None if stored is None else decode(table, key, stored)
    except StoreDamaged:
        found = None
    if isinstance(found, int) and found >= least:
        return None
    return encode(table, key, least)


def damaged(table: Table, key: bytes, reason: str) -> StoreDamaged:
    """The error for a record that cannot be trusted."""
    shown = show_key(table, key)
    return StoreDamaged(
        f"the store is damaged at {table.label} {shown}: {reason}", table=table.label, key=shown, reason=reason
    )


def show_key(table: Table, key: bytes) -> str:
    """A key for people: ``order-7/3`` for step 3 of ``order-7``."""
    if table in (Table.META, Table.PROCEDURES, Table.POISON, Table.ACKNOWLEDGED, Table.REMOVALS, Table.SCHEDULES):
        return _text(key)
    if table is Table.ENQUEUED:
        return key.hex()
    if table in (Table.ORDER, Table.FAILED, Table.ROLLED_BACK):
        return _numbers(key)
    if table in (Table.TIMERS, Table.FINISHED):
        return f"{_numbers(key[:8])}/{_text(key[9:])}"
    if table is Table.STEPS:
        return f"{_text(key[8:])}/{_numbers(key[:8])}"
    name, _, rest = key.partition(b"\0")
    if table is Table.LOCKS:
        return f"{_text(name)} held by {_text(rest)}"
    if table is Table.NOTES:
        return f"{_text(name)}/{_numbers(rest[:8])}/{_text(rest[9:])}"
    if table in (Table.EXPOSED, Table.REPLIES):
        return f"{_text(name)}/{_text(rest)}"
    return f"{_text(name)}/{_numbers(rest)}"


def _text(raw: bytes) -> str:
    return raw.decode("utf-8", "backslashreplace")


def shown_key(text: str) -> bytes:
    """The key that `show_key` shows as this text, in a table whose keys are ids: those have no backslash."""
    return re.sub(rb"\\x([89a-f][0-9a-f])", lambda found: bytes.fromhex(found[1].decode()), text.encode())


def _numbers(raw: bytes) -> str:
    return "/".join(str(int.from_bytes(raw[at : at + 8])) for at in range(0, len(raw), 8))
