"""Reads of procedures that applications enqueued in transactions of their own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any

from actorproc.errors import StoreDamaged
from actorproc.model.rows.enqueued import REFUSED, WAITING, EnqueuedRecord
from actorproc.store.rows import codec
from actorproc.store.rows.tables import Rows, Table

__all__ = ["EnqueuedReader"]


class EnqueuedReader(ABC):
    """Part of a `RecordReader`."""

    @abstractmethod
    def _view(self) -> AbstractContextManager[Rows]:
        """A snapshot of the last commit, to be given back soon."""

    def enqueued(
        self, *, refused: bool = False, after: bytes | None = None, limit: int | None = None
    ) -> list[EnqueuedRecord]:
        """Rows that wait, or those that were refused, about in the order in which they were enqueued.

        A row that cannot be read is among them, without its procedure and with the reason.
        """
        with self._view() as rows:
            found = rows.scan(Table.ENQUEUED, REFUSED if refused else WAITING, after=after)
            return [_read(key, value) for key, value in islice(found, limit)]

    def count_enqueued(self, *, refused: bool = False) -> tuple[int, float | None]:
        """Number of rows that wait, or that were refused, and the time of the oldest; None: there is none."""
        count, oldest = 0, None
        with self._view() as rows:
            for key, _ in rows.scan(Table.ENQUEUED, REFUSED if refused else WAITING):
                count += 1
                oldest = oldest if oldest is not None else int.from_bytes(key[1:9]) / 1e6
        return count, oldest

    def enqueued_facts(self) -> dict[str, Any]:
        """Numbers of what was enqueued, and since when the oldest of these waits, for a diagnosis."""
        (waiting, oldest), (refused, _) = self.count_enqueued(), self.count_enqueued(refused=True)
        return {"enqueued": waiting, "enqueued_since": oldest, "enqueued_refused": refused}


def _read(key: bytes, value: bytes) -> EnqueuedRecord:
    try:
        record: EnqueuedRecord = codec.decode(Table.ENQUEUED, key, value)
        if record.key == key:
            return record
        reason = "the row stands under another key than its own"
    except StoreDamaged as error:
        reason = f"the row cannot be read: {error.reason}"
    at = int.from_bytes(key[1:9]) / 1e6
    return EnqueuedRecord(key=key, at=at, refused=reason, error="StoreDamaged", raw=bytes(value))
