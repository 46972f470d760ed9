"""The row of a procedure that an application enqueued in a transaction of its own (`actorproc.postgres.enqueue`)."""

from __future__ import annotations

import msgspec

from actorproc.model.rows.records import NewProcedure

__all__ = ["REFUSED", "WAITING", "EnqueuedRecord", "refused_key", "waiting_key"]

WAITING, REFUSED = b"w", b"r"
"""Beginnings of the keys of rows that wait, and of those that were refused."""
_TIME, _RANDOM = 8, 8
_KEY = len(WAITING) + _TIME + _RANDOM
"""Bytes of a key."""


class EnqueuedRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True, gc=False):
    """One enqueued procedure: it waits for a manager, or it was refused. Times are epoch seconds."""

    key: bytes
    at: float
    """Time of the database when it was enqueued."""
    new: NewProcedure | None = None
    """The procedure; None: the row could not be read."""
    refused: str = ""
    """Reason in words for which no procedure was made of it; "": it waits."""
    error: str = ""
    """Name of the class of that error."""
    refused_at: float | None = None
    raw: bytes = b""
    """The row as it was found, where it could not be read."""


def waiting_key(at: float, random: bytes) -> bytes:
    """The key of a row that waits: rows are taken about in the order of their times.

    Args:
        at: Epoch seconds.
        random: 8 bytes, so that no other row has this key.

    Returns:
        The key.
    """
    return WAITING + int(at * 1_000_000).to_bytes(_TIME) + random[:_RANDOM]


def refused_key(key: bytes) -> bytes:
    """The key under which a row is kept that was refused.

    Args:
        key: The key under which it was found, which another program may have made.

    Returns:
        The key; it fits every store.
    """
    if len(key) == _KEY:
        return REFUSED + key[1:]
    import hashlib  # noqa: PLC0415 - it loads OpenSSL, which a worker does without

    return REFUSED + bytes(_TIME) + hashlib.blake2b(key, digest_size=_RANDOM).digest()
