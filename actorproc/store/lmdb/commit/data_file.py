"""The data file that a store has open, whatever stands under its name by now.

LMDB goes on with a file that was removed as if nothing had happened, and it is gone when the last process closes it. It
does not tell which descriptor it has, so this is one of our own.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from actorproc.errors import StorageUnavailable
from actorproc.store.directory import DATA_FILE, LOCK_FILE
from actorproc.store.lmdb.commit.meta_pages import last_transaction
from actorproc.store.lmdb.commit.redo_record import RedoRecord
from actorproc.store.lmdb.environment import Databases
from actorproc.store.lmdb.transaction import Txn

__all__ = ["DataFile"]


class DataFile:
    """Knows whether the data file in this directory is still the one that is open. One thread at a time."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / DATA_FILE
        self._fd = -1
        self.redo: RedoRecord | None = None
        """In the file that is open."""

    def follow(self, page_size: int) -> None:
        """The file that has the name now was just opened. Raises `OSError`, and nothing has changed then."""
        fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        self.close()
        self._fd = fd
        self.redo = RedoRecord(fd, page_size)

    def redo_last(self, txn: Txn, databases: Databases) -> None:
        """In the first transaction after `follow`: make the last commit again if only its redo record is left.

        LMDB takes the number of the last transaction from the table of readers while another process has the store
        open. The file may have an older number, when the system dropped pages that it could not write. Then that
        table is of no use, and this raises `StorageUnavailable`: the next to open the store makes a new one. Also
        raises `OSError`, and `StoreFormat` for a record of a later version.
        """
        redo = self.redo
        assert redo is not None, "the file is followed"
        if last_transaction(self._fd, redo.page_size) != txn.id() - 1:
            (self._path.parent / LOCK_FILE).unlink(missing_ok=True)
            raise StorageUnavailable(f"{self._path} is behind what other processes saw of it; try again")
        redo.redo(txn, databases, self._path.parent)

    def close(self) -> None:
        """It is open no more. Idempotent."""
        self.redo = None
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def is_open(self) -> bool:
        """`follow` was called, and `close` was not."""
        return self._fd >= 0

    def check_not_removed(self) -> None:
        """Raise `StorageUnavailable` when the open file has no name any more."""
        if os.fstat(self._fd).st_nlink == 0:
            raise StorageUnavailable(
                f"{self._path} was removed while it was open, and what is in it goes with this process: save it now "
                "with backup() of its manager; nothing more is accepted"
            )

    def check_in_place(self) -> None:
        """Raise `StorageUnavailable` unless the file with the name is the one that is open.

        When the directory was moved away, another store may be in its place, which is not ours to change.
        """
        is_here = False
        with contextlib.suppress(OSError):
            is_here = os.path.samestat(os.fstat(self._fd), self._path.stat())
        if not is_here:
            raise StorageUnavailable(
                f"{self._path} is not the file that is open: the store was moved or removed; nothing was changed"
            )
