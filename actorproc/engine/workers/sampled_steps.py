"""Sampled steps: the pool is told which of the steps that run are to be watched, as each begins."""

from __future__ import annotations

from actorproc.engine.pipeline.in_flight import InFlightTable
from actorproc.model.ids import StepToken
from actorproc.workers.base import WorkerPool

__all__ = ["SampledSteps"]


class SampledSteps:
    """Has the pool watch running steps with ``cpu_time``, ``memory_hard`` or ``processes``.

    Needs the manager's turn (`CombiningInbox`).
    """

    def __init__(self, pool: WorkerPool, in_flight: InFlightTable) -> None:
        self._pool = pool
        self._in_flight = in_flight
        self._watched: set[StepToken] = set()

    def follow(self) -> None:
        """Have the steps watched that have begun since; the pool ends by itself what it began."""
        running = self._in_flight.sampled()
        if not running:
            if self._watched:
                self._watched = set()
            return
        before, self._watched = self._watched, {command.token for _, command in running}
        for _, command in running:
            if command.token not in before and command.limits is not None:
                self._pool.watch(command.token.worker, command.token, command.limits)
