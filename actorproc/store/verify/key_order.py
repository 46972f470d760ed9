"""Check of a record's place: its key must follow from its contents, and the contents must be possible."""

from __future__ import annotations

import struct
from typing import Any

import msgspec

from actorproc.errors import InvalidId, StoreDamaged
from actorproc.model.ids import check_id
from actorproc.model.policies import LockMode
from actorproc.model.rows.records import ProcedureRecord
from actorproc.store.rows import codec
from actorproc.store.rows.keys import head_key, number_key, prefix
from actorproc.store.rows.layout import LARGEST, key_of
from actorproc.store.rows.step_log import step_key
from actorproc.store.rows.tables import Rows, Table

__all__ = ["check_place", "is_a_copy", "is_sound"]

_INHERITED = frozenset({0, *LockMode})


def check_place(table: Table, key: bytes, record: Any) -> None:
    """Raise `StoreDamaged` for a record that is sound, and another one's, or was never written by an engine."""
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
    if table is Table.STEPS:  # the many: nothing is counted from them
        return
    values = msgspec.structs.astuple(record)
    for value in values:
        kind = type(value)
        if (kind is int and not -LARGEST <= value <= LARGEST) or (kind is float and value != value):  # noqa: PLR0124
            raise codec.damaged(table, key, f"its {record.__struct_fields__[values.index(value)]} is {value!r}")
    if table is Table.PROCEDURES:
        _check_head(key, record)
    elif table is Table.LOCKS and record.inherited not in _INHERITED:
        raise codec.damaged(table, key, f"its inherited mode is {record.inherited}")


def _check_head(key: bytes, head: ProcedureRecord) -> None:
    try:
        check_id(head.id)
        if head.parent is not None:
            check_id(head.root)
            check_id(head.parent)
    except InvalidId as error:
        raise codec.damaged(Table.PROCEDURES, key, str(error)) from None
    if (head.parent is None) != (head.root == head.id):
        raise codec.damaged(Table.PROCEDURES, key, f"its root is {head.root} and its parent {head.parent}")
    if not head.type_name.isprintable():
        raise codec.damaged(Table.PROCEDURES, key, f"its type cannot be {head.type_name!r:.80}")
    if head.step < 1 or head.records < 1:
        raise codec.damaged(Table.PROCEDURES, key, f"it is at step {head.step}, with {head.records} records")


def is_a_copy(rows: Rows, table: Table, value: bytes) -> bool:
    """True if the record in a wrong place stands, sound, in its own as well."""
    body = codec.unchecked(table, value)
    try:
        key = b"" if body is None else key_of(table, body)
        own = rows.get(table, key) if key else None
        return own is not None and bool(codec.decode(table, key, own) == body)
    except (UnicodeError, struct.error, OverflowError, StoreDamaged):
        return False


def is_sound(rows: Rows, name: str) -> bool:
    """True if a head of this name stands where it belongs."""
    try:
        key = head_key(name)
        value = rows.get(Table.PROCEDURES, key)
        return value is not None and bool(codec.decode(Table.PROCEDURES, key, value).id == name)
    except (UnicodeError, StoreDamaged):
        return False
