"""The faults of a history: a few, each at a place drawn by chance among all where it may strike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from tests.simulator.core_sim.faults import FaultKind, FaultPlan

__all__ = ["CHANCES", "OF_HOSTS", "Hazards"]

CHANCES = {
    FaultKind.HOST_BEFORE_COMMIT: 0.015,
    FaultKind.HOST_AFTER_COMMIT: 0.015,
    FaultKind.HOST_IN_RECOVERY: 0.1,
    FaultKind.COMMIT_LOST: 0.03,
    FaultKind.COMMIT_UNKNOWN: 0.03,
    FaultKind.WORKER_BEFORE: 0.03,
    FaultKind.WORKER_DURING: 0.05,
    FaultKind.WORKER_AFTER: 0.02,
    FaultKind.CLOCK_FORWARD: 0.03,
    FaultKind.CLOCK_BACK: 0.03,
    FaultKind.REFUSED: 0.01,
    FaultKind.PLACED: 0.1,
    FaultKind.UNBEGUN: 0.03,
    FaultKind.READ_FAILED: 0.1,
    FaultKind.DEPOSED: 0.01,
    FaultKind.WENT_BACK: 0.3,
    FaultKind.ANSWER_TWICE: 0.05,
    FaultKind.LEADER_KILLED: 0.25,
    FaultKind.LINK_CUT: 0.4,
    FaultKind.AGENT_KILLED: 0.15,
    FaultKind.HOST_DRAINED: 0.15,
    FaultKind.EXCEEDED: 0.5,
}
"""Chance of each fault where it may strike, while the history has faults left."""
OF_HOSTS = (
    FaultKind.ANSWER_TWICE,
    FaultKind.LEADER_KILLED,
    FaultKind.LINK_CUT,
    FaultKind.AGENT_KILLED,
    FaultKind.HOST_DRAINED,
    FaultKind.EXCEEDED,
)
"""Faults of histories with worker hosts."""
_LATER = {
    FaultKind.PLACED,
    FaultKind.UNBEGUN,
    FaultKind.READ_FAILED,
    FaultKind.DEPOSED,
    FaultKind.WENT_BACK,
    *OF_HOSTS,
}
"""Strike only in histories that have them: the draws of all others stay as they were."""
_FEWEST, _SPREAD = 4, 8


class Hazards(FaultPlan):
    """A plan with chance in the place of counted opportunities: the shell offers far more of some kinds than of others.

    What is no fault of the engine's environment draws on the same number of faults (`strikes`): a boot that fails, a
    worker that wants to leave.
    """

    def __init__(self, seed: int) -> None:
        self.effective: Counter[FaultKind] = Counter()
        self.is_work_in_flight: Callable[[], bool] = bool
        self._random = Random(f"hazards of {seed}").random
        self._left = _FEWEST + int(self._random() * _SPREAD)
        self.armed: set[FaultKind] = set()
        """Faults of this history that strike in few histories only."""
        self.is_over = False
        """Nothing goes wrong any more, so that the history comes to its end."""

    def arm(self, kind: FaultKind, opportunity: int) -> None:
        """Let this fault strike as well, whenever chance says so."""
        del opportunity
        self.armed.add(kind)

    def fires(self, kind: FaultKind, times: float = 1.0) -> bool:
        """True if the fault strikes here; `times` as likely as it usually does."""
        if kind in _LATER - self.armed or not self.strikes(CHANCES[kind] * times):
            return False
        if self.is_work_in_flight():
            self.effective[kind] += 1
        return True

    def strikes(self, probability: float) -> bool:
        """True if something goes wrong here, with this probability; then there is one fault less to come."""
        if self.is_over or self._left <= 0 or self._random() >= probability:
            return False
        self._left -= 1
        return True
