"""Deaths and replacements of workers, and what becomes of hosts, as lifecycle events.

Needs the manager's turn (`CombiningInbox`).
"""

from __future__ import annotations

from actorproc.engine.callers.event_hooks import EventHooks
from actorproc.engine.messages import SlotParked, SlotRecovered
from actorproc.engine.pipeline.in_flight import WorkerEntry
from actorproc.engine.workers.crash_verdict import CrashVerdict
from actorproc.model.crash_report import CrashReport
from actorproc.model.ids import WorkerId
from actorproc.report.changes import HostEvent, HostEventKind, WorkerEvent, WorkerEventKind
from actorproc.support.clock import Clock

__all__ = ["WorkerEvents"]


class WorkerEvents:
    """Tells the hook and the log what became of workers and hosts; a stop of the whole engine is no news."""

    def __init__(self, events: EventHooks, clock: Clock) -> None:
        self._events = events
        self._clock = clock

    def died(self, entry: WorkerEntry, verdict: CrashVerdict) -> None:
        """A worker is dead that had booted."""
        report = verdict.report
        if report.kind == "stopped":
            if entry.ready.leaving:
                self._put("worker-recycled", entry.ready.worker, report, entry=entry)
            return
        self._put("worker-died", entry.ready.worker, report, entry=entry, verdict=verdict)

    def never_booted(self, worker: WorkerId, report: CrashReport) -> None:
        """A worker is dead that took no step ever."""
        if report.kind != "stopped":
            self._put("worker-died", worker, report)

    def slot(self, message: SlotParked | SlotRecovered) -> None:
        """A slot was given up for a while, or a worker has booted in it again."""
        if isinstance(message, SlotParked):
            self._put("worker-parked", message.worker, message.report)
        else:
            self._put("worker-recovered", message.worker, None)

    def host(self, kind: HostEventKind, name: str, machine: str, workers: int, steps: int, why: str | None) -> None:
        """A worker host has joined, drains, left, or is lost."""
        at = self._clock.wall()
        self._events.put(
            HostEvent(kind=kind, at=at, name=name, machine=machine, workers=workers, steps=steps, reason=why)
        )

    def _put(
        self,
        kind: WorkerEventKind,
        worker: WorkerId,
        report: CrashReport | None,
        *,
        entry: WorkerEntry | None = None,
        verdict: CrashVerdict | None = None,
    ) -> None:
        died_in = None
        if entry is not None and verdict is not None:
            died_in = entry.queue[verdict.blamed] if verdict.blamed is not None else entry.running
        self._events.put(
            WorkerEvent(
                kind=kind,
                at=self._clock.wall(),
                slot=worker.slot,
                incarnation=worker.incarnation,
                pid=entry.ready.pid if entry is not None else None,
                cause=report.kind if report is not None else None,
                signal=report.signal if report is not None else None,
                code=report.code if report is not None else None,
                reason=report.message if report is not None else None,
                id=died_in.token.procedure if died_in is not None else None,
                type_name=died_in.type_name if died_in is not None else None,
                step=died_in.token.step if died_in is not None else None,
                attempt=died_in.token.attempt if died_in is not None else None,
                step_name=died_in.step_name if died_in is not None else None,
            )
        )
