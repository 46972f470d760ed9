"""Successions of workers: a death is told together with the spare that has the place, in one decision."""

from __future__ import annotations

import msgspec

from actorproc.engine.messages import Succeeded
from actorproc.model.ids import WorkerId
from actorproc.workers.base import WorkerBooted, WorkerDied

__all__ = ["Successions"]


class Successions:
    """Deaths that are not told yet, as the spares that were given their places are still to boot.

    For threads of the pool; events of one worker come one after the other.
    """

    def __init__(self) -> None:
        self._dead: dict[WorkerId, WorkerDied] = {}
        """By the spares."""

    def died(self, event: WorkerDied) -> list[WorkerDied]:
        """Take a death.

        Args:
            event: The death.

        Returns:
            Deaths that are to be told now. A spare on a host that is lost may die before it was heard of.
        """
        before = self._dead.pop(event.worker, None)
        told = [] if before is None else [msgspec.structs.replace(before, successor=None)]
        if event.successor is None:
            return [*told, event]
        self._dead[event.successor] = event
        return told

    def booted(self, event: WorkerBooted) -> WorkerBooted | Succeeded:
        """Take a boot.

        Args:
            event: The boot.

        Returns:
            The boot, together with the death whose place the worker has, as the manager is told of it.
        """
        died = self._dead.pop(event.worker, None)
        return event if died is None else Succeeded(died, event)
