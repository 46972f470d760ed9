"""The states of procedures that were stored a moment ago and wait for a worker.

To read a state back costs the manager about as much as to decide about its step: LMDB's binding gives the interpreter
lock away twice for a row, and busy threads give it back late.
"""

from __future__ import annotations

from collections.abc import Iterable

from actorproc.engine.runtime.clock import Clock
from actorproc.model.rows.records import StepRecord
from actorproc.model.rows.writes import DeleteProcedure, PutStep, Write

__all__ = ["StateCache"]

_MOST = 16_384
_MOST_BYTES = 4 * 1024 * 1024
_LONG = 10.0
"""Seconds after which a procedure that has not begun gives its place to a new one: it waits for something else."""


class StateCache:
    """The first record of each new procedure, until its step is handed out; a bounded number, of bounded size.

    What is not here is read from the store. Only what is durable comes here, and a first record never changes before
    the end of its procedure: then its state may go.
    """

    def __init__(self, clock: Clock, *, most: int = _MOST, most_bytes: int = _MOST_BYTES) -> None:
        self._clock = clock
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        # Two, as pairs would be looked through by the cycle collector, and make it look through all that is young.
        self._kept: dict[str, StepRecord] = {}
        self._since: dict[str, float] = {}

    def note(self, writes: Iterable[Write]) -> None:
        """These writes are durable."""
        now: float | None = None
        has_room = True
        for write in writes:
            if type(write) is PutStep:
                if has_room and write.record.number == 1 and write.record.state:
                    now = self._clock.monotonic() if now is None else now
                    has_room = self._keep(write.record, now)
            elif type(write) is DeleteProcedure:
                self._drop(write.record.id)  # another one may get its id
                has_room = True

    def forget(self) -> None:
        """The store was opened again, and says what there is."""
        self._kept.clear()
        self._since.clear()
        self._bytes = 0

    def take(self, procedure: str, number: int) -> StepRecord | None:
        """The record, if it is here; it is given away once."""
        return self._drop(procedure) if number == 1 else None

    def _keep(self, record: StepRecord, now: float) -> bool:
        """Keep it, if there is room; False when there is none for any other either."""
        size = len(record.state)
        kept = self._kept
        if record.procedure in kept:
            self._drop(record.procedure)
        while kept and (len(kept) >= self._most or self._bytes + size > self._most_bytes):
            oldest = next(iter(kept))
            if now - self._since[oldest] < _LONG:
                return len(kept) < self._most  # those before it will be needed before it
            self._drop(oldest)
        if size <= self._most_bytes:
            kept[record.procedure] = record
            self._since[record.procedure] = now
            self._bytes += size
        return True

    def _drop(self, procedure: str) -> StepRecord | None:
        found = self._kept.pop(procedure, None)
        if found is None:
            return None
        del self._since[procedure]
        self._bytes -= len(found.state)
        return found
