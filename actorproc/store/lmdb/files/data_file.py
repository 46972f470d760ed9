"""The data file that a store has open, whatever stands under its name by now.

LMDB goes on with a file that was removed as if nothing had happened, and it is gone when the last process closes it. It
does not tell which descriptor it has, so this is one of our own.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import lmdb

from actorproc.errors import StorageUnavailable
from actorproc.store.directory import DATA_FILE, LOCK_FILE
from actorproc.store.lmdb.files.meta_pages import last_transaction

__all__ = ["DataFile"]

_FEWEST, _MORE = 32, 64
"""Pages behind the last one in use, at least, and how many more are made at once."""


class DataFile:
    """Knows whether the data file in this directory is still the one that is open. One thread at a time."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / DATA_FILE
        self._fd = -1
        self._page_size = 4096

    def follow(self, page_size: int) -> None:
        """The file that has the name now was just opened. Raises `OSError`, and nothing has changed then."""
        fd = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        self.close()
        self._fd = fd
        self._page_size = page_size

    def begin(self, txn: lmdb.Transaction[bytes]) -> None:
        """In the first transaction after `follow`: raise `StorageUnavailable` if the file has an older state.

        The kernel tells of a write that failed once, and takes the page for written from then on. So both meta pages
        are written again, for the next wait to take them along. LMDB takes the number of the last transaction from the
        table of readers while another process has the store open. The file may have an older number, when the system
        dropped pages that it could not write. Then that table is of no use, and the next to open the store makes a new
        one. Also raises `OSError`.
        """
        if last_transaction(self._fd, self._page_size) != txn.id() - 1:
            (self._path.parent / LOCK_FILE).unlink(missing_ok=True)
            raise StorageUnavailable(f"{self._path} is behind what other processes saw of it; try again")
        for number in range(2):
            page = os.pread(self._fd, self._page_size, number * self._page_size)
            os.pwrite(self._fd, page, number * self._page_size)

    def close(self) -> None:
        """It is open no more. Idempotent."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def is_open(self) -> bool:
        """`follow` was called, and `close` was not."""
        return self._fd >= 0

    def spare(self, log: int) -> int:
        """Bytes that `keep_room` adds, at most, beside so many bytes of log."""
        return max(_FEWEST * self._page_size, log) + _MORE * self._page_size

    def keep_room(self, last_page: int, log: int) -> bool:
        """Have room behind the last page in use, for what is in the log and for removals; False where the disk is full.

        A removal needs fresh pages, before those that it frees can be used again.
        """
        end = last_page * self._page_size + self.spare(log)
        try:
            size = os.fstat(self._fd).st_size
            if size < end - _MORE * self._page_size:
                return os.pwrite(self._fd, bytes(end - size), size) == end - size
        except OSError:
            return False
        return True

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
