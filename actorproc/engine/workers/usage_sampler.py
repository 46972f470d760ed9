"""Watching what limited steps use while they run.

The host samples CPU time and memory of a worker and its descendants, and their number. A worker whose GIL is held by C
code can watch nothing, and rlimits of CPU time count from the start of the process, not of the step.
"""

from __future__ import annotations

import msgspec

from actorproc.engine.pipeline.in_flight import InFlightTable, WorkerEntry
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.commands import RunStep
from actorproc.workers.base import WorkerPool

__all__ = ["Excess", "UsageSampler"]

_INTERVAL = 0.1
"""Seconds between two samples of a limited step."""


class Excess(msgspec.Struct, frozen=True):
    """A step that uses more than it may."""

    entry: WorkerEntry
    command: RunStep
    kind: str
    """cpu-limit, memory-limit or process-limit."""
    why: str


class UsageSampler:
    """Samples running steps with ``cpu_time``, ``memory_hard`` or ``processes``.

    Needs the manager's turn (`CombiningInbox`).
    """

    def __init__(self, pool: WorkerPool, in_flight: InFlightTable) -> None:
        self._pool = pool
        self._in_flight = in_flight
        self._cpu_before: dict[StepToken, float] = {}
        self._next = 0.0
        self._guarded: dict[WorkerId, int] = {}
        """Workers with a memory limit set by the system, where it can."""

    def due(self, now: float) -> float | None:
        """Monotonic time of the next look: at once for a step that has just begun, as CPU time counts from there."""
        running = self._in_flight.sampled()
        if not running:
            self._cpu_before.clear()
            return now if self._guarded else None
        return self._next if all(command.token in self._cpu_before for _, command in running) else now

    def look(self, now: float) -> list[Excess]:
        """Sample what runs; the steps that are to be ended."""
        running = self._in_flight.sampled()
        self._guard({entry.ready.worker: command.limits.memory_hard for entry, command in running if command.limits})
        before = self._cpu_before
        self._cpu_before = {}
        found = []
        for entry, command in running:
            used = self._pool.usage(entry.ready.worker)
            if used is None:
                self._cpu_before[command.token] = before.get(command.token, 0.0)
                continue
            cpu, rss = used
            started_with = self._cpu_before[command.token] = before.get(command.token, cpu)
            excess = _judge(entry, command, cpu - started_with, rss) or self._count(entry, command)
            if excess is not None:
                found.append(excess)
        self._next = now + _INTERVAL
        return found

    def _count(self, entry: WorkerEntry, command: RunStep) -> Excess | None:
        """Excess of processes that the step has started; None: it has no such limit, or keeps to it."""
        most = command.limits.processes if command.limits is not None else None
        if most is None:
            return None
        count = self._pool.processes(entry.ready.worker)
        if count is None or count <= most:
            return None
        why = f"killed in {command.step_in_words} because it had started {count} processes that lived, "
        return Excess(entry, command, "process-limit", f"{why}more than its limit of {most}")

    def _guard(self, wanted: dict[WorkerId, int | None]) -> None:
        """Set the system's own limits for the steps that run now, and lift those of steps that do not any more."""
        limited = {worker: size for worker, size in wanted.items() if size is not None}
        for worker in self._guarded.keys() - limited.keys():
            self._pool.limit_memory(worker, None)
        for worker, size in limited.items():
            if self._guarded.get(worker) != size:
                self._pool.limit_memory(worker, size)
        self._guarded = limited


def _judge(entry: WorkerEntry, command: RunStep, cpu: float, rss: int) -> Excess | None:
    limits = command.limits
    assert limits is not None
    step = command.step_in_words
    if limits.memory_hard is not None and rss > limits.memory_hard:
        why = (
            f"killed in {step} because it and the processes below it held {rss / 1e6:.0f} MB of memory, "
            f"more than its memory_hard of {limits.memory_hard / 1e6:.0f} MB"
        )
        return Excess(entry, command, "memory-limit", why)
    if limits.cpu_time is not None and cpu > limits.cpu_time:
        why = f"{step} used {cpu:.1f} s of CPU time, more than its cpu_time of {limits.cpu_time:g} s"
        return Excess(entry, command, "cpu-limit", why)
    return None
