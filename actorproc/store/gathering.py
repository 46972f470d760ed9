"""Pages of a commit that stand beside each other: the disk takes them in one write, scattered ones in one each.

LMDB gives out free pages from a short list, which it fills from what the oldest transaction has freed, and only when it
is empty: with time the six or seven pages of a small commit stand in as many places of the file. A value of several
pages makes it look for neighbours, so that it gathers what many transactions have freed, in order. So such a value is
put now and then, and taken away in the same transaction: nothing of it is ever written.

LMDB writes the list it has gathered with every commit, and takes fresh pages from the end of the file where there are
no neighbours, so both are bounded by looking at how many pages are free.
"""

from __future__ import annotations

import lmdb

from actorproc.store.environment import Databases, used_pages
from actorproc.store.tables import Table
from actorproc.store.transaction import Txn

__all__ = ["Gathering"]

_KEY = b"gathering"
_HEADER = 16
"""Bytes of the first page of a value that are not the value's."""
_FIXED = 5
"""Pages of any commit, beside those of its rows: roots, the row of the batch, the list of free pages."""
_LARGE = 512
"""Rows from which on a commit finds neighbours by itself, at the end of the file."""
_SMALLEST, _LARGEST = 16, 64
"""Pages of a value: some more than a commit takes."""
_EVERY = 3
"""Values' worth of pages that are taken between one and the next."""
_PLENTY = 12
"""Values' worth of free pages that are enough: then a quarter of the value gathers them, and hardly any is added."""
_TOO_MANY = 4096
"""Free pages among which the search would take milliseconds, and which LMDB has in long lists anyway."""


class Gathering:
    """When a store that waits for the disk gathers its free pages. Used by the one thread that writes it."""

    def __init__(self) -> None:
        self._taken = 0

    def before(self, rows: int, env: lmdb.Environment, txn: Txn, databases: Databases) -> bool:
        """A commit of so many rows begins in `txn`. Returns whether the file may have to grow by this."""
        pages = _FIXED + rows
        if rows >= _LARGE:
            return False
        size = min(max(1 << (pages - 1).bit_length(), _SMALLEST), _LARGEST)
        self._taken += pages
        if self._taken < _EVERY * size:
            return False
        self._taken = 0
        free = int(env.info()["last_pgno"]) - used_pages(txn, databases)
        if free > _TOO_MANY:
            return False
        if free > _PLENTY * size:
            size //= 4
        meta = databases[Table.META]
        txn.put(_KEY, bytes(size * env.stat()["psize"] - _HEADER), db=meta)
        txn.delete(_KEY, db=meta)
        return True
