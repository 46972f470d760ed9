"""Pages of a commit that stand beside each other: the disk takes them in one write, scattered ones in one each.

LMDB gives out free pages from a short list, which it fills from the pages of the oldest transaction, and only when it
is empty. With time the six or seven pages of a small commit stand in as many places of the file. A value of several
pages makes it look for neighbours, so that it gathers what many transactions have freed, in order. So such a value is
put now and then, and taken away in the same transaction. Its pages are free again then; only where none was free, as
beside a reader of an old state, LMDB writes them for nothing.

LMDB writes a part of what it has gathered with every commit, and takes fresh pages behind the end of the file where
there are no neighbours. So both are bounded by the number of free pages. Where the file cannot grow, nothing is
gathered. Removals there make room for the next writes, and a list with pages that do not exist would be in their way.
"""

from __future__ import annotations

from collections.abc import Callable

import lmdb

from actorproc.store.lmdb.environment import Databases, used_pages
from actorproc.store.lmdb.transaction import Txn
from actorproc.store.rows.tables import Table

__all__ = ["PageClustering"]

_KEY = b"gathering"
_HEADER = 16
"""Bytes of the first page of a value that are not the value's."""
_FIXED = 5
"""Pages of any commit, beside one for each write: roots, the row of the batch, the list of free pages."""
_LARGE = 512
"""Writes from which on a commit finds neighbours by itself, at the end of the file."""
_SMALLEST, _LARGEST = 16, 64
"""Pages of a value: some more than a commit takes."""
_EVERY = 3
"""Values' worth of pages that are taken between one and the next."""
_PLENTY = 12
"""Values' worth of free pages that are enough: then a quarter of the value gathers them, and hardly any is added."""
_PATIENCE = 10_000
"""Pages that commits take before a file that could not grow is tried again."""
_TOO_MANY = 4096
"""Free pages among which the search would take milliseconds, and which LMDB has in long lists anyway."""


class PageClustering:
    """Page clustering for a store that waits for the disk. Used by the one thread that writes it.

    `has_room` makes the data file as long as a number of pages, and returns False if it cannot grow.
    """

    def __init__(self, has_room: Callable[[int], bool]) -> None:
        self._has_room = has_room
        self._taken = 0
        """Pages that commits took since the last time; below 0 while the file cannot grow."""

    def before(self, writes: int, env: lmdb.Environment, txn: Txn, databases: Databases) -> bool:
        """Begin a commit of a number of `writes` in `txn`. True if free pages were gathered for it."""
        if writes >= _LARGE:
            return False
        pages = _FIXED + writes
        size = min(max(1 << (pages - 1).bit_length(), _SMALLEST), _LARGEST)
        self._taken += pages
        if self._taken < _EVERY * size:
            return False
        self._taken = 0
        info, psize = env.info(), env.stat()["psize"]
        last = int(info["last_pgno"])
        free = last - used_pages(txn, databases)
        if free > _TOO_MANY:
            return False
        # LMDB takes fresh pages behind the last one where it finds no neighbours, whether they can be written or not.
        needed = last + _FIXED + size
        if needed * psize >= info["map_size"]:
            return False  # the map grows when a commit needs it
        if not self._has_room(needed):
            self._taken = -_PATIENCE
            return False
        if free > _PLENTY * size:
            size //= 4
        meta = databases[Table.META]
        txn.put(_KEY, bytes(size * psize - _HEADER), db=meta)
        txn.delete(_KEY, db=meta)
        return True
