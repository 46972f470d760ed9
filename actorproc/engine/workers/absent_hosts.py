"""Absent hosts: those that have steps of an earlier leader, and have not joined this one yet."""

from __future__ import annotations

from actorproc.core.results.adoption import absent_worker
from actorproc.engine.callers.counters import Counters
from actorproc.engine.pipeline.in_flight import InFlightTable
from actorproc.engine.workers.worker_events import WorkerEvents
from actorproc.model.crash_report import HOST_LOST, CrashReport
from actorproc.model.ids import WorkerId
from actorproc.model.messages.events import WorkerLost
from actorproc.model.slots import host_of
from actorproc.support.clock import Clock
from actorproc.support.engine_log import engine_logger

__all__ = ["AbsentHosts"]

logger = engine_logger("actorproc")

_LOOK = 1.0
"""Seconds between two looks while the store is away."""


class AbsentHosts:
    """Waits for each host `patience` seconds. Needs the manager's turn (`CombiningInbox`)."""

    def __init__(
        self, in_flight: InFlightTable, counters: Counters, news: WorkerEvents, clock: Clock, patience: float
    ) -> None:
        self._in_flight = in_flight
        self._counters = counters
        self._news = news
        self._patience = patience
        self._hosts = {host_of(worker.slot): worker for worker in in_flight.entries}
        """At the start of a leader the table holds nothing but the absent workers of hosts."""
        self.due_at: float | None = clock.monotonic() + patience if self._hosts else None
        """Monotonic time at which they are given up; None: none is absent."""

    def joined(self, host: int) -> None:
        """A host has come, and said what it has."""
        worker = self._hosts.pop(host, None)
        if worker is not None:
            self._forget(worker)

    def look(self, now: float, *, in_trouble: bool) -> list[WorkerLost]:
        """Give up those that have not come in time; not while the store is away, as none can be let in."""
        if self.due_at is None or now < self.due_at:
            return []
        if in_trouble:
            self.due_at = now + _LOOK
            return []
        lost = []
        for host in list(self._hosts):
            count = len(self._in_flight.entries[absent_worker(host)].held)
            why = f"host h{host} did not join the new leader within {self._patience:g} s"
            logger.warning("%s; the steps that it had run again elsewhere: %d", why, count)
            self._counters.host_losses += 1
            self._news.host("host-lost", f"h{host}", "", 0, count, why)
            report = CrashReport(kind=HOST_LOST, message=why)
            lost.append(WorkerLost(absent_worker(host), report, crashed=False))
        self._hosts.clear()
        self.due_at = None
        return lost

    def _forget(self, worker: WorkerId) -> None:
        self._in_flight.entries.pop(worker, None)
        if not self._hosts:
            self.due_at = None
