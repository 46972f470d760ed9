"""Queues in which procedures wait for their turn, for a limit or for a worker of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from actorproc.core.queues.key_limits import KeyLimits, RootLimit
from actorproc.core.queues.run_queue import RunQueue
from actorproc.core.queues.worker_table import WorkerWaitList
from actorproc.model.policies import Scheduling

__all__ = ["PostponedStep", "WorkQueues"]


class PostponedStep(NamedTuple):
    """A step that could not be begun, for a reason that may pass."""

    step: tuple[int, int]
    """Its number and that of the record before it."""
    tried: int
    reason: str


class WorkQueues:
    """Part of the `EngineState`: queues of runnable procedures. Only the marks in the heads are stored."""

    def __init__(self, scheduling: Scheduling, place_of: Callable[[str], int]) -> None:
        self.run_queue = RunQueue(scheduling.priority_ageing, place_of)
        self.admission = RootLimit(scheduling.max_running)
        self.key_limits = KeyLimits(scheduling.concurrency, scheduling.rate)
        self.awaiting_worker = WorkerWaitList()
        """Runnable procedures whose worker of their own is not there yet."""
        self.run_queue.rooms += [self.admission, self.key_limits, self.awaiting_worker]
        self.postponed: dict[str, PostponedStep] = {}
        """Steps that could not be begun for a reason that may pass, by procedure."""
