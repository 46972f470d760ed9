"""The outcome of one simulated history, and the totals of many."""

from __future__ import annotations

import gc
import hashlib
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from actorproc.testing.histories.evidence import Violation
from tests.simulator.core_sim.faults import FaultKind
from tests.simulator.rules.judge import Entry

__all__ = ["MIN_FAULTS", "Campaign", "History", "rarely_collected"]

MIN_FAULTS = 2
"""Effective faults without which a history is not counted."""
_OBJECTS = 50_000


class History(msgspec.Struct):
    """The outcome of one simulated history."""

    seed: int
    violations: list[Violation]
    faults: Counter[FaultKind]
    journal: list[Entry]
    steps: int
    """Steps of the scenario's programs."""

    @property
    def trace(self) -> str:
        """One line per entry of the journal."""
        return "\n".join(repr(entry) for entry in self.journal)

    @property
    def digest(self) -> str:
        """Hash of the trace bytes."""
        return hashlib.sha256(self.trace.encode()).hexdigest()


class Campaign(msgspec.Struct):
    """Totals of many histories. `weak` ones had fewer than two effective faults and are not counted."""

    histories: int = 0
    weak: int = 0
    seconds: float = 0.0
    faults: Counter[FaultKind] = msgspec.field(default_factory=Counter)
    failed: list[History] = msgspec.field(default_factory=list)

    @property
    def per_minute(self) -> float:
        """Counted histories a minute of one core."""
        return 60.0 * self.histories / self.seconds if self.seconds else 0.0

    def add(self, history: History) -> None:
        """Count one more."""
        if history.faults.total() >= MIN_FAULTS:
            self.histories += 1
        else:
            self.weak += 1
        self.faults.update(history.faults)
        if history.violations:
            self.failed.append(history)


@contextmanager
def rarely_collected() -> Iterator[None]:
    """Histories leave few cycles behind: to look for them after every 700 objects takes a twentieth of the time."""
    before = gc.get_threshold()
    gc.set_threshold(_OBJECTS, *before[1:])
    try:
        yield
    finally:
        gc.set_threshold(*before)
