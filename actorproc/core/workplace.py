"""Queues in which steps wait for their turn, and the workers that run them."""

from __future__ import annotations

from typing import NamedTuple

from actorproc.core.backlog import Backlog
from actorproc.core.concurrency import Slots
from actorproc.core.lobby import Lobby
from actorproc.core.ready import ReadyQueue
from actorproc.core.shares import Shares
from actorproc.core.staff import Roster, Staff, WaitingRoom
from actorproc.model.ids import WorkerId
from actorproc.model.policies import Scheduling

__all__ = ["Hindered", "Workplace"]


class Hindered(NamedTuple):
    """A step that could not be begun, for a reason that may pass."""

    step: tuple[int, int]
    """Its number and that of the record before it."""
    tried: int
    reason: str


class Workplace:
    """Part of the `Book`: queues and workers. Nothing here is stored, but for the marks in the heads."""

    def __init__(self, scheduling: Scheduling) -> None:
        self.scheduling = scheduling
        self.ready = ReadyQueue(scheduling.priority_ageing)
        self.lobby = Lobby(scheduling.max_running)
        self.slots = Slots(scheduling.concurrency, scheduling.rate)
        self.knows_dedicated = False
        """A class, or a procedure in memory, has been met whose steps run in a worker of its own."""
        self.aside = WaitingRoom()
        """Runnable procedures whose worker of their own is not there yet."""
        self.backlog = Backlog(self.ready.ageing)
        self.ready.rooms += [self.lobby, self.slots, self.aside, self.backlog]
        self.shares: Shares | None = None
        if scheduling.shares or scheduling.reserved:
            self.shares = Shares(scheduling.shares, scheduling.reserved)
        self.staff = Staff()
        self.roster = Roster(scheduling.workers)
        self.hired: dict[str, WorkerId | None] = {}
        """Procedures with a worker of their own; None: it was asked for."""
        self.suspects: set[str] = set()
        """Procedures one of which killed a worker that ran several: each runs alone until it was answered."""
        self.outdated: set[WorkerId] = set()
        """While workers are reloaded: those with old code."""
        self.renewed: set[str] = set()
        """Procedures that a worker with new code was handed meanwhile."""
        self.hindered: dict[str, Hindered] = {}
        """Steps that could not be begun for a reason that may pass, by procedure."""
        self.warm: dict[str, WorkerId] = {}
        """Which worker holds the live object of a procedure."""

    @property
    def leaves_outside(self) -> bool:
        """Who needs nothing but a worker may wait in the backlog: nobody counts or shares out before its turn."""
        return self.shares is None and self.lobby.capacity is None
