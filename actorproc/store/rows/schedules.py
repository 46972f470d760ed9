"""Reads of schedules."""

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AbstractContextManager

from actorproc.model.rows.schedules import ScheduleRecord
from actorproc.store.rows import codec
from actorproc.store.rows.keys import head_key
from actorproc.store.rows.layout import EPOCH
from actorproc.store.rows.loading import read_number
from actorproc.store.rows.tables import Rows, Table

__all__ = ["ScheduleReader"]


class ScheduleReader(ABC):
    """Part of a `RecordReader`."""

    @abstractmethod
    def _view(self) -> AbstractContextManager[Rows]:
        """A snapshot of the last commit, to be given back soon."""

    def schedules(self) -> tuple[int, list[ScheduleRecord]]:
        """The epoch of the store, and all schedules by id. Raises `StoreDamaged`."""
        with self._view() as rows:
            found = [codec.decode(Table.SCHEDULES, key, value) for key, value in rows.scan(Table.SCHEDULES)]
            return read_number(rows, EPOCH), found

    def schedule(self, id: str) -> tuple[int, ScheduleRecord | None]:
        """The epoch of the store, and one schedule; None: there is none of this id. Raises `StoreDamaged`."""
        key = head_key(id)
        with self._view() as rows:
            value = rows.get(Table.SCHEDULES, key)
            found = None if value is None else codec.decode(Table.SCHEDULES, key, value)
            return read_number(rows, EPOCH), found
