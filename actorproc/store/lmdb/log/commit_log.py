"""The log of an owner: two files, written by turns, and one sync for each commit.

A file has the records since a checkpoint began. Then the other one is written. Once the checkpoint is done, the first
is free again. A file is not written again after a sync of it has failed: the kernel tells of lost pages only once. Then
`LmdbStore.reopen` reads what there is, and goes on with another log.
"""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

from actorproc.errors import Deposed, StorageUnavailable, StoreDamaged
from actorproc.store.directory import DATA_FILE, sync_names
from actorproc.store.lmdb.log.place import LogPlace
from actorproc.store.lmdb.log.record import LogRow, encoded
from actorproc.store.lmdb.log.segment import RECORDS_AT, Segment, names_of, numbers_in, sync_data

__all__ = ["CommitLog", "refuse_lone_logs", "remove_logs"]

_LARGEST = 16 << 20
"""Bytes of a file, at most."""


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
                self._segments.append(Segment.make(directory / name, place.number, place.epoch))
            sync_names(directory)
        except BaseException:
            self.close()
            raise

    @property
    def size(self) -> int:
        """Bytes in the file that is written."""
        return self._at

    @property
    def room(self) -> int:
        """Bytes of both files."""
        return sum(segment.length for segment in self._segments)

    def growth(self, record: bytes) -> int:
        """Bytes by which the file must grow for this record."""
        return self._segments[self._which].growth(self._at + len(record))

    def make_room(self, record: bytes) -> bool:
        """See that the file has room for this record; False if it cannot be made so long."""
        if self._at + len(record) > _LARGEST:
            return False
        try:
            self._segments[self._which].make_room(self._at + len(record))
        except OSError:
            return False
        return True

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
        self._error = OSError(errno.EINTR, "interrupted")  # until it is known to be there
        try:
            self._refuse_closed(segment)  # a newer owner that reads the log after this does not find what was refused
            segment.write(record, self._at)
            if self._sync:
                sync_data(segment.fd)
            self._refuse_closed(segment)  # it may have read the log before the record was there
            _refuse_removed(segment)
        except OSError as error:
            self._error = error
            raise StorageUnavailable(
                f"writing {segment.path}: {error.strerror}; free some space or check the disk, nothing acknowledged is "
                "lost"
            ) from error
        except Deposed as error:
            self._error = error
            raise
        self._at += len(record)
        epoch, number, place = self.place
        self.place = LogPlace(epoch, number, place + 1)
        self._error = None

    def _refuse_closed(self, segment: Segment) -> None:
        """Raise `Deposed` when another owner has closed the log."""
        if segment.is_forbidden():
            store = segment.path.parent
            raise Deposed(f"a newer owner has taken the store {store} over; epoch {self.place.epoch} is fenced off")

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


def _refuse_removed(segment: Segment) -> None:
    if segment.is_removed():
        raise OSError(errno.ENOENT, "it was removed while it was open")


def refuse_lone_logs(directory: Path) -> None:
    """Raise `StoreDamaged` when there is a log, and no data file to which it belongs. Also raises `OSError`."""
    names = sorted(name for names in numbers_in(directory).values() for name in names)
    if names and not (directory / DATA_FILE).exists():
        raise StoreDamaged(
            f"{directory / DATA_FILE} is gone, and {names[0]}, which has the last commits of the store, is there; put "
            "it back, or restore a backup into another directory",
            reason=f"{DATA_FILE} is gone",
        )


def remove_logs(directory: Path, *, but: int | None = None) -> None:
    """Remove the files of all logs but one. Raises `OSError`."""
    for number, names in numbers_in(directory).items():
        if number != but:
            for name in names:
                (directory / name).unlink(missing_ok=True)
