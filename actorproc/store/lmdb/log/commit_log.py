"""The log of an owner: two files, written by turns, and one sync for each commit.

A file has the records since a checkpoint began. Then the other one is written. Once the checkpoint is done, the first
is free again. A file is not written again after a sync of it has failed: the kernel tells of lost pages only once. Then
`LmdbStore.reopen` reads what there is, and goes on with another log.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from pathlib import Path

from actorproc.errors import Deposed, StorageUnavailable
from actorproc.store.directory import sync_names
from actorproc.store.lmdb.log.place import LogPlace
from actorproc.store.lmdb.log.record import LogRow, encoded
from actorproc.store.lmdb.log.segment import RECORDS_AT, Segment, names_of, numbers_in

__all__ = ["CommitLog", "remove_logs"]

_LARGEST = 16 << 20
"""Bytes of a file, at most: then a commit waits for a checkpoint."""


class CommitLog:
    """The log that an owner writes. Used by the thread that commits, but for `place`."""

    def __init__(self, directory: Path, place: LogPlace, *, sync: bool) -> None:
        """Make both files. `place` is that of the last record before. Raises `OSError`."""
        self.place = place
        """Place of the last record that is on the disk."""
        self._sync = sync
        self._segments: list[Segment] = []
        self._which = 0
        self._at = RECORDS_AT
        self._error: Exception | None = None
        try:
            for name in names_of(place.number):
                (directory / name).unlink(missing_ok=True)  # of a start that was interrupted
                self._segments.append(Segment.make(directory / name, place.number, place.epoch, sync=sync))
            if sync:
                sync_names(directory)
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """Bytes in the file that is written."""
        return self._at

    def make_room(self, record: bytes) -> OSError | None:
        """See that the file has room for this record; the error, if it cannot be made longer."""
        if self._at + len(record) > _LARGEST:
            return OSError(errno.EFBIG, "it is full")
        try:
            self._segments[self._which].make_room(self._at + len(record))
        except OSError as error:
            return error
        return None

    def encode(self, rows: Sequence[LogRow], batch: int) -> bytes:
        """The next record."""
        return encoded(rows, self.place.place + 1, self.place.epoch, batch, self._segments[self._which].salt)

    def append(self, record: bytes) -> None:
        """Put it on the disk, after `make_room`.

        Raises:
            StorageUnavailable: It may be there, or not; the log takes no more.
            Deposed: Another owner has closed the log.
        """
        if isinstance(self._error, Deposed):
            raise self._error
        if self._error is not None:
            raise StorageUnavailable(f"writing the log: {self._error}; it is opened again") from self._error
        segment = self._segments[self._which]
        try:
            segment.write(record, self._at)
            if self._sync:
                os.fdatasync(segment.fd)
            if segment.is_forbidden():
                raise Deposed(
                    f"a newer owner has taken the store {segment.path.parent} over; epoch {self.place.epoch} is fenced off"
                )
            if segment.is_removed():
                raise OSError(errno.ENOENT, "it was removed while it was open")
        except OSError as error:
            self._error = error
            raise StorageUnavailable(
                f"writing {segment.path}: {error.strerror}; free some space or check the disk, nothing acknowledged is "
                "lost"
            ) from error
        except BaseException as error:
            self._error = error if isinstance(error, Exception) else OSError(errno.EINTR, "interrupted")
            raise
        self._at += len(record)
        self.place = self.place._replace(place=self.place.place + 1)

    def turn(self) -> None:
        """Write to the other file from now on; all that is in it has to be in the data file."""
        self._which = 1 - self._which
        self._at = RECORDS_AT

    def opened(self) -> list[Segment]:
        """Both files; they can be read also when they have lost their names."""
        return self._segments

    def close(self) -> None:
        """Close both files. Idempotent."""
        for segment in self._segments:
            segment.close()


def remove_logs(directory: Path, *, but: int | None = None) -> None:
    """Remove the files of all logs but one. Raises `OSError`."""
    for number, names in numbers_in(directory).items():
        if number != but:
            for name in names:
                (directory / name).unlink(missing_ok=True)
