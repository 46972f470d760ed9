"""The states of procedures that were stored a moment ago and wait for a worker.

To read a state back costs the manager about as much as to decide about its step: LMDB's binding gives the interpreter
lock away twice for a row, and busy threads give it back late.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from actorproc.actors.clock import Clock
from actorproc.model.records import StepRecord
from actorproc.model.writes import DeleteProcedure, PutStep, Write

__all__ = ["FirstStates"]

_MOST = 16_384
_MOST_BYTES = 4 * 1024 * 1024
_LONG = 10.0
"""Seconds after which a procedure that has not begun gives its place to a new one: it waits for something else."""


class _Kept(NamedTuple):
    record: StepRecord
    at: float


class FirstStates:
    """The first record of each new procedure, until its step is handed out; a bounded number, of bounded size.

    What is not here is read from the store. Only what is durable comes here, and a first record never changes while
    its procedure exists.
    """

    def __init__(self, clock: Clock, *, most: int = _MOST, most_bytes: int = _MOST_BYTES) -> None:
        self._clock = clock
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: dict[str, _Kept] = {}

    def note(self, writes: Iterable[Write]) -> None:
        """These writes are durable."""
        now: float | None = None
        for write in writes:
            if type(write) is PutStep:
                if write.record.number == 1:
                    now = self._clock.monotonic() if now is None else now
                    self._keep(write.record, now)
            elif type(write) is DeleteProcedure:
                self._drop(write.record.id)  # another one may get its id

    def forget(self) -> None:
        """The store was opened again, and says what there is."""
        self._kept.clear()
        self._bytes = 0

    def take(self, procedure: str, number: int) -> StepRecord | None:
        """The record, if it is here; it is given away once."""
        return self._drop(procedure) if number == 1 else None

    def _keep(self, record: StepRecord, now: float) -> None:
        size = len(record.state)
        kept = self._kept
        if record.procedure in kept:
            self._drop(record.procedure)
        while kept and (len(kept) >= self._most or self._bytes + size > self._most_bytes):
            oldest = next(iter(kept))
            if now - kept[oldest].at < _LONG:
                return  # those before it will be needed before it
            self._drop(oldest)
        if size <= self._most_bytes:
            kept[record.procedure] = _Kept(record, now)
            self._bytes += size

    def _drop(self, procedure: str) -> StepRecord | None:
        found = self._kept.pop(procedure, None)
        if found is None:
            return None
        self._bytes -= len(found.record.state)
        return found.record
