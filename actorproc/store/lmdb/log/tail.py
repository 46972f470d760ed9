"""Reading a log: the records behind the last one that the data file has.

The end of a log is where no whole record with the next place follows. That is a commit which was under way when the
power failed, or nothing at all. But a whole record further behind proves that the missing one was there: a commit only
begins when the one before is on the disk. Then the log is damaged, and nothing is left out in silence.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from actorproc.errors import EngineError, StorageUnavailable, StoreDamaged
from actorproc.store.lmdb.log.place import LogPlace
from actorproc.store.lmdb.log.record import HEAD_SIZE, LogRecord, later_record, length_of, record_at
from actorproc.store.lmdb.log.segment import RECORDS_AT, Segment, damaged, names_of

__all__ = ["check_apart", "open_segments", "read_tail", "record_in", "tail_in", "whole_records"]

_LOOK = 4096
"""Bytes that are read first where a record may begin."""


@contextlib.contextmanager
def open_segments(directory: Path, number: int, *, writable: bool = False) -> Iterator[list[Segment]]:
    """The files of a log. Raises `StoreDamaged` where one is missing."""
    with contextlib.ExitStack() as stack:
        opened = []
        for name in names_of(number):
            segment = Segment.open(directory / name, number, writable=writable)
            stack.callback(segment.close)
            opened.append(segment)
        check_apart(opened)
        yield opened


def check_apart(segments: Sequence[Segment]) -> None:
    """Raise `StoreDamaged` when one file is a copy of the other: what the other had is lost."""
    one, other = segments
    if one.mark == other.mark:
        raise damaged(other.path, f"it is a copy of {one.path.name}")


def read_tail(directory: Path, place: LogPlace, *, forbid: bool = False) -> list[LogRecord]:
    """The records behind a place.

    `forbid`: a process that writes it still is told so first, and acknowledges none afterwards. Raises `StoreDamaged`.
    """
    try:
        with open_segments(directory, place.number, writable=forbid) as segments:
            if forbid:
                for segment in segments:
                    segment.forbid()
            return tail_in(segments, place)
    except OSError as error:
        raise StorageUnavailable(f"reading the log of {directory}: {error.strerror}; check the disk") from error


def tail_in(segments: Sequence[Segment], place: LogPlace) -> list[LogRecord]:
    """The records in these files behind a place. Raises `StoreDamaged`, and `OSError`."""
    found: list[LogRecord] = []
    images = [(segment, segment.read()) for segment in segments]
    expected = place.place + 1
    left = list(images)
    stopped: list[tuple[Segment, bytes, int]] = []
    while True:
        for segment, data in left:
            first = record_at(data, RECORDS_AT, segment.salt)
            if first is not None and first.place == expected:
                break
        else:
            break
        left.remove((segment, data))
        at = RECORDS_AT
        while (record := record_at(data, at, segment.salt)) is not None and record.place == expected:
            if record.epoch != place.epoch:
                raise _lost(segment, expected, f"it is of epoch {record.epoch}, and the log of {place.epoch}")
            found.append(record)
            expected += 1
            at = record.end
        stopped.append((segment, data, at))
    for segment, data in left:
        stopped.append((segment, data, RECORDS_AT))
    for segment, data, at in stopped:
        later = later_record(data, at, segment.salt, expected)
        if later is not None:
            raise _lost(segment, expected, f"record {later.place} is there")
    return found


def whole_records(directory: Path, place: LogPlace) -> list[LogRecord]:
    """The records up to the first damage, for saving what is good."""
    found: list[LogRecord] = []
    for name in names_of(place.number):
        with contextlib.suppress(EngineError, OSError):
            segment = Segment.open(directory / name, place.number)
            try:
                data, at = segment.read(), RECORDS_AT
                while (record := record_at(data, at, segment.salt)) is not None and record.epoch == place.epoch:
                    found.append(record)
                    at = record.end
            finally:
                segment.close()
    tail: list[LogRecord] = []
    for record in sorted(found, key=lambda one: one.place):
        if record.place == place.place + len(tail) + 1:
            tail.append(record)
    return tail


def record_in(segment: Segment, at: int) -> LogRecord | None:
    """The record that begins at a byte of a file another process may be writing; None when it is not there yet."""
    data = segment.read(at, _LOOK)
    length = length_of(data[:HEAD_SIZE])
    if length is None:
        return None
    if length > len(data):
        data += segment.read(at + len(data), length - len(data))
    found = record_at(data, 0, segment.salt)
    return None if found is None else found._replace(end=at + found.end)


def _lost(segment: Segment, place: int, why: str) -> StoreDamaged:
    reason = f"record {place} is damaged, and {why}"
    return StoreDamaged(
        f"the log of the store {segment.path.parent} is damaged, so it was not opened and is left as it is: {reason}. "
        f"Restore a backup, or save what is older with: actorproc --path {segment.path.parent} doctor --export-good "
        "GOOD.json",
        reason=f"{segment.path.name}: {reason}",
    )
