"""Time: when the manager is to be woken, and what running steps may not exceed."""

from __future__ import annotations

import math
from collections.abc import Callable

from actorproc.engine.callers.change_digests import ChangeDigests
from actorproc.engine.callers.parked_waits import ParkedWaits
from actorproc.engine.pipeline.commit_pipeline import CommitPipeline
from actorproc.engine.pipeline.in_flight import LOADS_WITHIN, InFlightTable, WorkerEntry
from actorproc.engine.pipeline.step_reports import StepReports
from actorproc.engine.pipeline.task_cancellation import TaskCancellation
from actorproc.engine.runtime.clock import OVERSLEPT, Alarm
from actorproc.engine.workers.absent_hosts import AbsentHosts
from actorproc.engine.workers.dedicated_workers import DedicatedWorkers
from actorproc.engine.workers.sampled_steps import SampledSteps
from actorproc.model.messages.commands import RunStep
from actorproc.model.messages.events import Tick
from actorproc.support.clock import Clock
from actorproc.support.engine_log import engine_logger
from actorproc.workers.base import WorkerExceeded, WorkerPool

__all__ = ["TimerService"]

logger = engine_logger("actorproc")
_SECOND_CHANCE = 2.0
"""Seconds a step past its wall time gets after its host stood still."""
_GRACE_OF = {"memory-limit": 0.05, "process-limit": 0.0}
"""Seconds between the stack dump and the kill of a worker that uses too much: it may grow fast."""


class TimerService:
    """Arms the alarm for stored times and for limits of running steps. Needs the manager's turn (`CombiningInbox`)."""

    def __init__(
        self,
        *,
        clock: Clock,
        alarm: Alarm,
        pipeline: CommitPipeline,
        in_flight: InFlightTable,
        sampled: SampledSteps,
        dedicated: DedicatedWorkers,
        absent: AbsentHosts,
        parked_waits: ParkedWaits,
        digests: ChangeDigests,
        reports: StepReports,
        pool: WorkerPool,
        on_alarm: Callable[[], None],
    ) -> None:
        self._clock = clock
        self._alarm = alarm
        self._pipeline = pipeline
        self._in_flight = in_flight
        self._sampled = sampled
        self._dedicated = dedicated
        self._absent = absent
        self._parked_waits = parked_waits
        self._digests = digests
        self._reports = reports
        self._pool = pool
        self._on_alarm = on_alarm
        self._canceller = TaskCancellation(pool=pool, in_flight=in_flight, clock=clock)
        self._armed: float | None = None
        self._faults: frozenset[str] = frozenset()
        alarm.when_clock_is_set(on_alarm)

    def arm(self, *, in_trouble: bool) -> None:
        """Ask to be woken for whatever is due first: a stored time, or a step's time limit."""
        self._sampled.follow()
        due = None if in_trouble else self._pipeline.core.next_deadline()
        limit = self._next_look()
        if due is None and limit is None:
            if self._armed is not None:
                self._armed = None
                self._alarm.set("manager", None, self._on_alarm)
            return
        now = self._clock.monotonic()
        when = now + max(0.001, due - self._clock.wall()) if due is not None else math.inf
        if limit is not None:
            when = min(when, limit)
        # The same stored time gives slightly different sums at each reading: a millisecond is no change.
        if self._armed is None or abs(when - self._armed) > 0.001:
            self._armed = when
            self._alarm.set("manager", when, self._on_alarm)

    def _next_look(self) -> float | None:
        """Monotonic time when a step, a worker on its way, something parked, a digest or a report is due."""
        earliest = self._in_flight.next_limit()
        for at in (
            self._dedicated.next_retry(),
            self._absent.due_at,
            self._parked_waits.due_at,
            self._digests.due_at,
            self._reports.due_at,
        ):
            if at is not None and (earliest is None or at < earliest):
                earliest = at
        return earliest

    def wake(self, *, in_trouble: bool) -> None:
        """A deadline has come: end what is past its limits, and tell the core the time when something is due."""
        armed, self._armed = self._armed, None
        now = self._clock.monotonic()
        if armed is not None and now > armed + OVERSLEPT:
            # Stopped and continued, or a machine that stood still: answers may be waiting, and the workers may have
            # stood still as well. Who is late for its time limit by this gets a second chance.
            self._in_flight.forgive(now - armed + _SECOND_CHANCE)
        for entry, command, is_silent in self._in_flight.overdue(now):
            if is_silent:
                silence = f"sent no heartbeat for {command.heartbeat:g} s"
                if command.token not in entry.heard:
                    silence = f"has not begun within {LOADS_WITHIN + (command.heartbeat or 0.0):g} s"
                why = f"{command.step_in_words} {silence} (Limits.heartbeat)"
                self._end_step(entry, command, "heartbeat-limit", why, command.grace)
            else:
                why = f"{command.step_in_words} ran longer than its wall time of {command.wall_time:g} s"
                self._end_step(entry, command, "timeout", why, command.grace)
        if self._in_flight.cancelled:
            self._canceller.kill_outstaying(now)
        self._dedicated.retry(now, self._pipeline.core.wants_worker_for)
        if self._absent.due_at is not None:
            for lost in self._absent.look(now, in_trouble=in_trouble):
                self._pipeline.handle(lost)
        self._parked_waits.look(now)
        if self._digests.due_at is not None and now >= self._digests.due_at:
            self._digests.look(now)
        self._reports.look(now, in_trouble=in_trouble)
        core, wall = self._pipeline.core, self._clock.wall()
        due = core.next_deadline()
        if not in_trouble and ((due is not None and due <= wall) or core.was_set_back(wall)):
            self._pipeline.handle(Tick())
            self._warn_of_schedules()

    def _warn_of_schedules(self) -> None:
        """Log each fault of a schedule once."""
        faults = frozenset(self._pipeline.core.faulty_schedules)
        for said in sorted(faults - self._faults):
            logger.warning("%s", said)
        self._faults = faults

    def exceeded(self, event: WorkerExceeded) -> None:
        """A step uses more than it may; one that has been answered meanwhile does not count."""
        entry = self._in_flight.entries.get(event.worker)
        command = entry.queue.get(event.token) if entry is not None and not entry.dead else None
        if entry is not None and command is not None:
            self._end_step(entry, command, event.kind, event.why, _GRACE_OF.get(event.kind, command.grace))

    def _end_step(self, entry: WorkerEntry, command: RunStep, kind: str, why: str, grace: float) -> None:
        """Kill the worker of a step that is past one of its limits; who runs beside it starts again elsewhere."""
        if entry.killed is None and not self._canceller.cancel(entry, command, kind, why, grace):
            entry.killed, entry.kind, entry.why = command.token, kind, why
            self._pool.kill(entry.ready.worker, grace=grace, blamed=command.token, reason=why, kind=kind)
