"""Workers on their way: by when each is to have booted, and what becomes of one that has not."""

from __future__ import annotations

import math
from collections.abc import Callable

from actorproc.engine.runtime.clock import OVERSLEPT
from actorproc.model.ids import WorkerId
from actorproc.support.clock import Clock

__all__ = ["BOOT_PATIENCE", "BootDeadlines"]

BOOT_PATIENCE = 2.0
"""Factor of the boot time of later workers over that of the first ones: the machine may be busy by now."""


class BootDeadlines:
    """Ends by `stop` a worker that has not booted `within` that number of seconds: its imports may never return.

    In order, should it have booted in that moment.
    """

    def __init__(self, within: float, clock: Clock, stop: Callable[[WorkerId], None]) -> None:
        self.within = within
        self._clock = clock
        self._stop = stop
        self._until: dict[WorkerId, float] = {}
        """Monotonic times."""
        self._stuck: set[WorkerId] = set()

    def begin(self, worker: WorkerId) -> None:
        """It is started."""
        if self.within < math.inf:
            self._until[worker] = self._clock.monotonic() + self.within

    def over(self, worker: WorkerId) -> bool:
        """It has booted, or is dead; whether it was ended for not booting."""
        self._until.pop(worker, None)
        was_stuck = worker in self._stuck
        self._stuck.discard(worker)
        return was_stuck

    def forget(self) -> None:
        """Forget all boots that are under way."""
        self._until.clear()

    def next(self) -> float | None:
        """Monotonic time of the next `end_late`; None when nothing is on its way."""
        return min(self._until.values(), default=None)

    def end_late(self, now: float) -> None:
        """End workers whose boot is late. They get more time if this program stood still or its clock was moved."""
        for worker, until in list(self._until.items()):
            if now > until + OVERSLEPT:
                self._until[worker] = now + self.within / BOOT_PATIENCE
            elif until <= now:
                del self._until[worker]
                self._stuck.add(worker)
                self._stop(worker)
