"""What all parts of one simulated history share: chance, time, faults, the store, the inbox and the journal."""

from __future__ import annotations

from collections import deque
from random import Random

from actorproc.model.events import Event
from actorproc.store.memory import MemoryStore
from actorproc.testing.faults import FaultPlan
from actorproc.testing.invariants import Entry, Violation
from actorproc.testing.scripts import Scenario, make_scenario

__all__ = ["HostCrash", "World"]

EPOCH_START = 1_000_000.0
"""Virtual wall clock at the beginning, in seconds."""


class HostCrash(Exception):
    """The host process dies here."""


class World:
    """Everything outside the engine's memory. `random` is the only source of chance.

    Without a `scenario` and a `plan` both are drawn by chance.
    """

    def __init__(self, seed: int, scenario: Scenario | None = None, plan: FaultPlan | None = None) -> None:
        self.rng = Random(seed)  # noqa: S311 - chance that can be repeated, no secret
        self.random = self.rng.random
        self.scenario: Scenario = make_scenario(self.rng) if scenario is None else scenario
        self.plan = FaultPlan(self.rng) if plan is None else plan
        self.now = EPOCH_START
        self.store = MemoryStore()
        self.inbox: deque[Event] = deque()
        self.late: list[Event] = []
        """Answers that arrive when nobody expects them any more."""
        self.journal: list[Entry] = []
        self.violations: list[Violation] = []

    def violate(self, number: int, text: str) -> None:
        """Record a broken promise that only the simulation can see."""
        self.violations.append(Violation(number, text))

    def pick(self, length: int) -> int:
        """A place in a sequence of this length."""
        return int(self.random() * length)
