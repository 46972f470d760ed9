"""Workers: those that live, those that are wanted, and which procedure has its object in which of them."""

from __future__ import annotations

from collections.abc import Iterable

from actorproc.core.queues.worker_shares import WorkerShares
from actorproc.core.queues.worker_table import SlotPlan, WorkerTable
from actorproc.model.ids import WorkerId
from actorproc.model.policies import Scheduling

__all__ = ["WorkerState"]


class WorkerState:
    """Part of the `EngineState`: workers and the plan of their slots. Nothing here is stored."""

    def __init__(self, scheduling: Scheduling) -> None:
        self.table = WorkerTable()
        self.slot_plan = SlotPlan(scheduling.workers)
        self.shares: WorkerShares | None = None
        if scheduling.shares or scheduling.reserved:
            self.shares = WorkerShares(scheduling.shares, scheduling.reserved)
        self.hired: dict[str, WorkerId | None] = {}
        """Procedures with a worker of their own; None: it was asked for."""
        self.asked_of: dict[str, str] = {}
        """Hosts that were asked for such a worker because of what they offer, by procedure."""
        self._looked_at = 0
        """Number of changes of hosts after which those that wait for a worker of their own were looked at."""
        self.suspects: set[str] = set()
        """Procedures one of which killed a worker that ran several: each runs alone until it was answered."""
        self.outdated: set[WorkerId] = set()
        """While workers are reloaded: those with old code."""
        self.renewed: set[str] = set()
        """Procedures that a worker with new code was handed meanwhile."""
        self.warm: dict[str, WorkerId] = {}
        """Worker that holds the live object of a procedure, by procedure."""

    def hosts_changed(self) -> bool:
        """True once after each change of hosts."""
        changes, self._looked_at = self._looked_at, self.table.hosts.changes
        return changes != self._looked_at

    def begin_reload(self, outdated: Iterable[WorkerId], renewed: Iterable[str] = ()) -> None:
        """Note the workers that have old code, and the procedures that were handed to one with new code."""
        self.outdated = set(outdated)
        self.renewed = set(renewed)
