"""Workers that belong to one procedure each, as the core asks for them; the supervisor keeps the others."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable

from actorproc.engine.workers.boot_deadlines import BootDeadlines
from actorproc.engine.workers.restart_policy import RestartWindow
from actorproc.model.ids import WorkerId
from actorproc.model.messages.events import CrashReport
from actorproc.model.slots import count_before, dedicated_slot, host_of
from actorproc.support.clock import Clock
from actorproc.support.engine_log import engine_logger
from actorproc.workers.base import WorkerPool

__all__ = ["DedicatedWorkers"]

_NEVER_PARKED = 1 << 30

logger = engine_logger("actorproc")


class DedicatedWorkers:
    """Dedicated workers, each with the procedure it was started for. Needs the manager's turn (`CombiningInbox`).

    One that cannot boot is tried again with backoff, for as long as its procedure wants it. The cause keeps other
    workers from booting too, and the supervisor gives up for all.
    """

    def __init__(self, pool: WorkerPool, clock: Clock, *, boot_limit: float = math.inf) -> None:
        """Start without workers.

        Args:
            pool: Starts and stops the worker processes.
            clock: Tells the time, and calls back when a boot takes too long.
            boot_limit: Seconds a dedicated worker may take to boot; then it is killed and started again with
                backoff. Default: no limit.
        """
        self._pool = pool
        self._clock = clock
        self._boot_deadlines = BootDeadlines(boot_limit, clock, pool.stop)
        self.hosts: dict[str, int] = {}
        """Numbers of the hosts that take workers, by name."""
        self._counts: Counter[int] = Counter()
        """Workers that were started so far, by host."""
        self._wanted_on: dict[str, str] = {}
        """Hosts that were asked for, by procedure."""
        self._workers: dict[WorkerId, str] = {}
        self._booting: set[WorkerId] = set()
        self._retries: dict[str, tuple[float, RestartWindow]] = {}
        self._failures: dict[str, RestartWindow] = {}

    def want(self, procedure: str, host: str = "") -> None:
        """Start a worker for this procedure, unless there is one or one is on its way; "": on the manager's machine.

        On a host that has left nothing is started: the core asks for another one when it hears of that.
        """
        if procedure in self._retries or procedure in self._workers.values() or (host and host not in self.hosts):
            return
        number = self.hosts.get(host, 0)
        worker = WorkerId(*dedicated_slot(number, self._counts[number]))
        self._counts[number] += 1
        if host:
            self._wanted_on[procedure] = host
        self._workers[worker] = procedure
        self._booting.add(worker)
        self._boot_deadlines.begin(worker)
        self._pool.launch(worker)

    def adopt(self, worker: WorkerId, procedure: str) -> None:
        """A worker of a host lives on, from an earlier leader."""
        self._workers[worker] = procedure
        number = host_of(worker.slot)
        self._counts[number] = max(self._counts[number], count_before(worker.slot, worker.incarnation) + 1)

    def procedure_of(self, worker: WorkerId) -> str | None:
        """The procedure a worker belongs to; None when it takes steps of any."""
        return self._workers.get(worker)

    def booted(self, worker: WorkerId) -> None:
        """It works: earlier failures count no more."""
        self._boot_deadlines.over(worker)
        self._booting.discard(worker)
        self._failures.pop(self._workers.get(worker, ""), None)

    def left(self, host: str, number: int) -> None:
        """A host has left: forget those of its workers that have not booted, as the core asks for others."""
        self.hosts.pop(host, None)
        for worker in [one for one in self._booting if host_of(one.slot) == number]:
            self._boot_deadlines.over(worker)
            self._booting.discard(worker)
            self._workers.pop(worker, None)
        for procedure in [name for name, wanted in self._wanted_on.items() if wanted == host]:
            del self._wanted_on[procedure]
            self._retries.pop(procedure, None)

    def died(self, worker: WorkerId, report: CrashReport, *, booted: bool) -> None:
        """It is gone. The core asks for another one when it knows; one that never booted is started again here."""
        procedure = self._workers.pop(worker, None)
        self._booting.discard(worker)
        is_stuck = self._boot_deadlines.over(worker)
        if procedure is None or booted or (report.kind == "stopped" and not is_stuck):
            return
        window = self._failures.setdefault(procedure, RestartWindow(_NEVER_PARKED))
        now = self._clock.monotonic()
        wait = window.failed(now) or 0.0
        why = f"it was not ready within {self._boot_deadlines.within:g} s" if is_stuck else report.message
        logger.warning("a dedicated worker for %s cannot start, next try in %.1f s: %s", procedure, wait, why)
        self._retries[procedure] = (now + wait, window)

    def next_retry(self) -> float | None:
        """Monotonic time when something is to be tried, or ended; None: nothing is."""
        times = [when for when, _ in self._retries.values()]
        late = self._boot_deadlines.next()
        return min(times if late is None else [*times, late], default=None)

    def retry(self, now: float, is_wanted: Callable[[str], bool]) -> None:
        """Start again what is due; what is wanted no more is forgotten, until the core asks for it anew."""
        self._boot_deadlines.end_late(now)
        for procedure in [name for name, (when, _) in self._retries.items() if when <= now]:
            del self._retries[procedure]
            if is_wanted(procedure):
                self.want(procedure, self._wanted_on.pop(procedure, ""))
            else:
                self._failures.pop(procedure, None)
                self._wanted_on.pop(procedure, None)
