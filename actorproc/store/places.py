"""Whether a record stands where it belongs: its key follows from its contents."""

from __future__ import annotations

import struct
from typing import Any

from actorproc.errors import StoreDamaged
from actorproc.store import codec
from actorproc.store.keys import head_key, number_key, prefix
from actorproc.store.layout import key_of
from actorproc.store.step_log import step_key
from actorproc.store.tables import Rows, Table

__all__ = ["check_place", "is_a_copy", "is_sound"]


def check_place(table: Table, key: bytes, record: Any) -> None:
    """Raise `StoreDamaged` for a record that is sound, and another one's."""
    match table:  # most rows are of these
        case Table.STEPS:
            place = step_key(record.procedure, record.number)
        case Table.PROCEDURES:
            place = head_key(record.id)
        case Table.UNDO:
            place = prefix(record.root) + number_key(record.seq)
        case _:
            place = key_of(table, record)
    if place != key:
        raise codec.damaged(table, key, "the record belongs under another key")


def is_a_copy(rows: Rows, table: Table, value: bytes) -> bool:
    """Whether what stands in a wrong place stands, sound, in its own as well."""
    body = codec.unchecked(table, value)
    try:
        key = b"" if body is None else key_of(table, body)
        own = rows.get(table, key) if key else None
        return own is not None and bool(codec.decode(table, key, own) == body)
    except (UnicodeError, struct.error, OverflowError, StoreDamaged):
        return False


def is_sound(rows: Rows, name: str) -> bool:
    """Whether a head of this name stands where it belongs."""
    try:
        key = head_key(name)
        value = rows.get(Table.PROCEDURES, key)
        return value is not None and bool(codec.decode(Table.PROCEDURES, key, value).id == name)
    except (UnicodeError, StoreDamaged):
        return False
