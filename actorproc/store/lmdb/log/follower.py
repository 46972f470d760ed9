"""The log as a process sees it that only reads the store, while the owner may be writing it."""

from __future__ import annotations

import threading
from pathlib import Path

from actorproc.errors import StorageUnavailable
from actorproc.store.lmdb.log.overlay import Layers, Overlay
from actorproc.store.lmdb.log.place import LogPlace
from actorproc.store.lmdb.log.record import LogRow
from actorproc.store.lmdb.log.segment import RECORDS_AT, Segment, names_of
from actorproc.store.lmdb.log.tail import check_apart, record_in

__all__ = ["Follower"]


class Follower:
    """Keeps the rows that are in a log alone, and adds those that came since it was asked last."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._lock = threading.Lock()
        self._number = 0
        self._segments: list[Segment] = []
        self._records: list[tuple[int, list[LogRow]]] = []
        """Places and rows, without a gap between them."""
        self._overlay = Overlay()
        self._base = 0
        """Place behind which the records of the overlay begin."""
        self._last = 0
        self._at: tuple[Segment, int] | None = None
        """File and byte of the record that comes next."""

    def layers(self, place: LogPlace) -> Layers:
        """The layers of a view, over a snapshot of the data file that is at this place.

        A newer snapshot of the data file may be there by the end of it. Then what this gives may lack records, as their
        file is in use again.

        Raises:
            StoreDamaged: A file of the log is not there, or is another one.
            StorageUnavailable: It cannot be read.
        """
        with self._lock:
            try:
                if place.number != self._number or any(segment.is_removed() for segment in self._segments):
                    self._open(place.number)
                    self._begin_at(place.place)
                elif place.place > self._last:
                    self._begin_at(place.place)
                elif place.place != self._base:
                    self._records = [one for one in self._records if one[0] > place.place]
                    self._show_anew(place.place)
                self._read_on()
            except OSError as error:
                raise StorageUnavailable(f"reading the log of {self._directory}: {error.strerror}") from error
            return self._overlay.layers()

    def records(self) -> tuple[int, list[tuple[int, list[LogRow]]]]:
        """The number of the log that was read last, and places and rows of the commits behind the last snapshot."""
        with self._lock:
            return self._number, list(self._records)

    def close(self) -> None:
        """Close its files. It opens them again when it is asked."""
        with self._lock:
            self._close()

    def _close(self) -> None:
        for segment in self._segments:
            segment.close()
        self._segments, self._number = [], 0

    def _open(self, number: int) -> None:
        self._close()
        try:
            for name in names_of(number):
                self._segments.append(Segment.open(self._directory / name, number))
            check_apart(self._segments)
        except BaseException:
            self._close()
            raise
        self._number = number

    def _begin_at(self, place: int) -> None:
        self._records, self._last, self._at = [], place, None
        self._show_anew(place)

    def _show_anew(self, place: int) -> None:
        self._base = place
        self._overlay = Overlay()
        for one, rows in self._records:
            self._overlay.put(rows, one)

    def _read_on(self) -> None:
        """Take the records that have come."""
        while True:
            places = [] if self._at is None else [self._at]
            places += [(segment, RECORDS_AT) for segment in self._segments]
            for segment, at in places:
                record = record_in(segment, at)
                if record is not None and record.place == self._last + 1:
                    break
            else:
                return
            self._at = segment, record.end
            self._last = record.place
            rows = record.rows()
            self._records.append((record.place, rows))
            self._overlay.put(rows, record.place)
