"""Writing rows to the data file on a disk that is full.

LMDB copies each page that it changes, and takes the old one again two transactions later. So many small transactions
pass where one that changes as much needs more room than there is.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence

from actorproc.errors import StorageUnavailable
from actorproc.store.lmdb.log.record import LogRow

__all__ = ["in_parts", "is_full"]

_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""LMDB says EIO when the disk took a part of a write only."""
_PART = 64
_SMALLER = 8


def is_full(error: StorageUnavailable) -> bool:
    """True if the disk, or the user's share of it, may have no room."""
    cause = error.__cause__
    return getattr(cause, "errno", None) in _NO_ROOM or getattr(cause, "code", None) in _NO_ROOM


def in_parts(rows: Sequence[LogRow], put: Callable[[Sequence[LogRow]], None]) -> None:
    """`put` all rows, each time as many as there is room for. Raises `StorageUnavailable` where one row is too many."""
    size, done = _PART, 0
    while done < len(rows):
        try:
            put(rows[done : done + size])
        except StorageUnavailable as error:
            if size == 1 or not is_full(error):
                raise
            size //= _SMALLER
        else:
            done += size
