"""Admission queue of new roots: they wait here while `Scheduling.max_running` roots run, before they ask for locks."""

from __future__ import annotations

import heapq

from actorproc.model.rows.records import Admitted, ProcedureRecord

__all__ = ["AdmissionQueue"]


class AdmissionQueue:
    """Counts running roots. A root is let in before it asks for locks, so those inside never wait for one outside."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        self.running = 0
        self._heap: list[tuple[float, int, str]] = []
        self._waiting: dict[str, int] = {}
        self._count = 0

    def __contains__(self, procedure: str) -> bool:
        return procedure in self._waiting

    def __len__(self) -> int:
        return len(self._waiting)

    def names(self) -> list[str]:
        """All roots that wait."""
        return list(self._waiting)

    @property
    def has_news(self) -> bool:
        """True when a root waits that may be admitted now."""
        return bool(self._waiting) and self._has_room

    @property
    def _has_room(self) -> bool:
        return self.capacity is None or self.running < self.capacity

    def ask(self, record: ProcedureRecord, order: float) -> bool:
        """Let a root in, or have it wait by its virtual deadline; True when it is in and its head has changed."""
        if record.id in self._waiting:
            return False
        if self._has_room and not self._waiting:
            self._let_in(record)
            return True
        self._count += 1
        self._waiting[record.id] = self._count
        heapq.heappush(self._heap, (order, self._count, record.id))
        return False

    def next(self) -> str | None:
        """The root to be let in now."""
        while self._heap:
            _, number, procedure = self._heap[0]
            if self._waiting.get(procedure) == number:
                return procedure
            heapq.heappop(self._heap)
        return None

    def admit(self, record: ProcedureRecord) -> None:
        """Let the root that `next` named in."""
        self.discard(record.id)
        self._let_in(record)

    def _let_in(self, record: ProcedureRecord) -> None:
        self.running += 1
        record.admitted |= Admitted.RUNNING

    def leave(self, record: ProcedureRecord) -> None:
        """A root that was let in has ended."""
        self.running = max(0, self.running - 1)
        record.admitted &= ~Admitted.RUNNING

    def discard(self, procedure: str) -> None:
        """It does not wait any more."""
        self._waiting.pop(procedure, None)
