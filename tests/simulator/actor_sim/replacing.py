"""A reload in the actor simulation: workers are replaced one by one, as `actorproc.engine.workers.rolling_reload` does it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from actorproc.engine.messages import ReplaceWorker
from actorproc.model.ids import WorkerId
from tests.simulator.actor_sim.host import SimulatedHost

__all__ = ["SimulatedReload"]

_REASON = "its code is loaded again"


class SimulatedReload:
    """Begins when the manager has answered that it knows, and ends with its host or behind the last worker."""

    def __init__(self, end: Callable[[], None]) -> None:
        self._end = end
        """Tells the manager that the reload is over."""
        self._host: SimulatedHost | None = None
        """None: no reload is under way."""
        self._old: deque[WorkerId] = deque()
        self._leaving: WorkerId | None = None

    def begin(self, host: SimulatedHost) -> None:
        """Replace all workers that are there now. A reload that is under way begins anew."""
        self._host = host
        self._old = deque(worker.id for worker in host.pool.workers.values() if worker.booted)
        self._leaving = None

    def give_up(self) -> None:
        """The host is gone, and all its workers."""
        self._host = None

    @property
    def can_go_on(self) -> bool:
        """The worker that was to leave last has left, or it was the first."""
        return self._host is not None and self._leaving not in self._host.pool.workers

    def go_on(self) -> None:
        """The next worker is to leave; behind the last one the reload is over."""
        host = self._host
        assert host is not None
        while self._old and self._old[0] not in host.pool.workers:
            self._old.popleft()
        if self._old:
            self._leaving = self._old.popleft()
            host.tell(ReplaceWorker(self._leaving, _REASON))
        else:
            self._host = None
            self._end()
