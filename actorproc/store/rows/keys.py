"""Keys as bytes whose order is the order of what they stand for.

The keys of each table are listed in `actorproc.store.rows.layout`.
"""

from __future__ import annotations

import hashlib
import struct

from actorproc.store.rows import step_log
from actorproc.store.rows.tables import Table

__all__ = ["field_key", "head_key", "number_key", "owner_of", "prefix", "tag_key", "text_key", "time_key"]

_STEPS = Table.STEPS
_TEXT_LIMIT = 255
_LAST_MICROSECOND = 2**63 - 1
_pack = struct.Struct(">Q").pack


def head_key(id: str) -> bytes:
    """Key of a head."""
    return id.encode()


def prefix(id: str) -> bytes:
    """Beginning of the keys of all rows that belong to this id."""
    return id.encode() + b"\0"


def number_key(number: int) -> bytes:
    """A number as key bytes that sort as the numbers do."""
    return _pack(number)


def time_key(at: float) -> bytes:
    """Epoch seconds as whole microseconds; times outside of what 63 bits hold are moved to their bounds."""
    return _pack(int(at * 1e6) if 0 <= at < _LAST_MICROSECOND / 1e6 else (_LAST_MICROSECOND if at > 0 else 0))


def owner_of(table: Table, key: bytes) -> bytes:
    """Owner of a row of a table whose keys hold the id of a procedure, or the holder of a lock."""
    if table is _STEPS:
        return step_log.owner_of(key)
    return key.rpartition(b"\0")[2] if table is Table.LOCKS else key.partition(b"\0")[0]


def tag_key(tag: str) -> bytes:
    """Beginning of the keys of the index rows of a tag."""
    return text_key(tag) + b"\0"


def field_key(text: str) -> bytes:
    """Beginning of the keys of the index rows of a searchable field with a value; no key of a tag begins with FE."""
    return b"\xfe" + text_key(text) + b"\0"


def text_key(text: str) -> bytes:
    """Free text as key bytes: 1 to 255 of them, without NUL, different for different texts."""
    raw = text.encode("utf-8", "surrogatepass")
    if raw and len(raw) <= _TEXT_LIMIT and b"\0" not in raw:
        return raw
    # No UTF-8 text holds the byte FF, so a hashed key cannot meet a plain one.
    tail = b"\xff" + hashlib.blake2b(raw, digest_size=16).hexdigest().encode()
    return raw[: _TEXT_LIMIT - len(tail)].replace(b"\0", b"\xff") + tail
