"""The step log: under which keys its records lie, and how the log of one procedure is read.

The number comes first in a key, and then the id. So the records of procedures that run at the same time lie side by
side, and a commit of a hundred steps changes a few pages and not a hundred. With the id first, commits took three
times the CPU and twice the time. The price: the records of one procedure do not lie together. They are found
from the newest one, whose number the head knows: every record says for how many steps it stands, and so which number
the one before it has.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from actorproc.errors import StoreDamaged
from actorproc.model.rows.records import StepRecord
from actorproc.store.rows import codec
from actorproc.store.rows.tables import Table

__all__ = ["in_pages", "keys_of_log", "owner_of", "read_log", "step_key"]

_STEPS = Table.STEPS
_pack = struct.Struct(">Q").pack
_NUMBER = 8
"""Bytes of the number in a key."""
_SHORT = 4
"""Records of a log whose rows are deleted unread."""

_PAGE = 64
"""Records of a log that are read at once, at most."""

Get = Callable[[bytes], bytes | None]
"""Reads the value under a key of the step log."""


def step_key(id: str, number: int) -> bytes:
    """Key of one record."""
    return _pack(number) + id.encode()


def owner_of(key: bytes) -> bytes:
    """The id in a key; empty when the key is none."""
    return key[_NUMBER:]


def read_log(get: Get, id: str, last: int, trimmed: int = 0) -> Iterator[StepRecord]:
    """The records of a procedure whose newest one has the number `last`, the newest first.

    Of a log that was trimmed up to the record `trimmed` the first record follows what is left behind that one.
    Raises `StoreDamaged` at one that is damaged or missing.
    """
    number = last
    while number > 0:
        key = step_key(id, number)
        value = get(key)
        if value is None:
            raise codec.damaged(_STEPS, key, "the record is missing")
        record: StepRecord = codec.decode(_STEPS, key, value)
        if record.steps < 1:
            raise codec.damaged(_STEPS, key, f"it stands for {record.steps} steps")
        yield record
        number -= record.steps
        if 1 < number <= trimmed:
            number = 1


def in_pages(get_many: Callable[[list[bytes]], dict[bytes, bytes]], id: str) -> Get:
    """A way to read a log from its end on that reads many rows at once, for `read_log`."""
    page: dict[bytes, bytes] = {}
    asked: set[bytes] = set()
    size = 1

    def get(key: bytes) -> bytes | None:
        nonlocal page, asked, size
        if key not in asked:
            last = int.from_bytes(key[:_NUMBER])
            keys = [step_key(id, number) for number in range(last, max(last - size, 0), -1)] or [key]
            page, asked = get_many(keys), set(keys)
            size = min(size * 8, _PAGE)
        return page.get(key)

    return get


def keys_of_log(get: Get, id: str, last: int, trimmed: int = 0) -> Iterator[bytes]:
    """The keys of what there is of a log, whatever is damaged or missing of it. A short one may have fewer rows."""
    if last <= _SHORT:
        for number in range(last, 0, -1):
            yield step_key(id, number)
        return
    number = last
    while number > 0:
        key = step_key(id, number)
        value = get(key)
        back = 1
        if value is not None:
            yield key
            try:
                back = max(1, codec.decode(_STEPS, key, value).steps)
            except StoreDamaged:
                back = 1  # how far back the next one is, is not known: look at every number
        number -= back
        if 1 < number <= trimmed:
            number = 1
