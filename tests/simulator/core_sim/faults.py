"""The faults of a simulated history: what may go wrong, when, and how often it really did.

A plan draws a few faults and for each the opportunity at which it fires (the third commit, the second
running step, ...). A fault counts as *effective* only when it fired while work was in flight.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from enum import StrEnum
from random import Random

__all__ = ["FaultKind", "FaultPlan"]


class FaultKind(StrEnum):
    """One way a history is disturbed."""

    HOST_BEFORE_COMMIT = "host dies before a commit"
    HOST_AFTER_COMMIT = "host dies after a commit"
    HOST_WHILE_ACTING = "host dies half-way through acting"
    HOST_IN_RECOVERY = "host dies during recovery"
    COMMIT_LOST = "commit fails, not applied"
    COMMIT_UNKNOWN = "commit fails, yet applied"
    WORKER_BEFORE = "worker dies before a step begins"
    WORKER_DURING = "worker dies during a step"
    WORKER_AFTER = "worker dies after its answer"
    WORKER_AGAIN = "worker killed again and again by one step"
    ANSWER_LATE = "answer of an older epoch arrives late"
    ANSWER_OLD = "answer of an older incarnation arrives"
    ANSWER_TWICE = "answer arrives twice"
    TAKE_BACK_RACE = "take-back crosses the answer"
    CLOCK_FORWARD = "clock jumps forward"
    CLOCK_BACK = "clock jumps back"
    EARLY_TICK = "timer fires early"
    REFUSED = "worker refuses a state once"
    PLACED = "new code places a saga before another step"
    UNBEGUN = "new code finds no place for a saga"
    READ_FAILED = "a read of the store fails"
    DEPOSED = "another owner takes the store over"
    WENT_BACK = "the store goes back behind durable commits"
    LEADER_KILLED = "the manager dies while worker hosts go on"
    LINK_CUT = "the link with a worker host breaks"
    AGENT_KILLED = "the agent of a worker host is killed"
    HOST_DRAINED = "a worker host is to leave"
    EXCEEDED = "a step on a worker host uses more than it may"


_ARMED = {
    FaultKind.TAKE_BACK_RACE,
    FaultKind.ANSWER_LATE,
    FaultKind.ANSWER_OLD,
    FaultKind.PLACED,
    FaultKind.UNBEGUN,
    FaultKind.READ_FAILED,
    FaultKind.DEPOSED,
    FaultKind.WENT_BACK,
    FaultKind.LEADER_KILLED,
    FaultKind.LINK_CUT,
    FaultKind.AGENT_KILLED,
    FaultKind.HOST_DRAINED,
    FaultKind.EXCEEDED,
}
_ALWAYS = tuple(kind for kind in FaultKind if kind not in _ARMED)


class FaultPlan:
    """The faults of one history. `fires` is asked at each opportunity; the answer is part of the seed."""

    def __init__(self, random: Random) -> None:
        self.effective: Counter[FaultKind] = Counter()
        self.is_work_in_flight: Callable[[], bool] = bool
        """Asked when a fault fires; without work it happens all the same and is not counted."""
        self._waiting: dict[FaultKind, int] = {}
        draw = random.random
        for _ in range(3 + int(draw() * 4)):
            kind = _ALWAYS[int(draw() * len(_ALWAYS))]
            self._waiting[kind] = int(draw() * (4 if kind is FaultKind.HOST_IN_RECOVERY else 8))
        # These three only add to what another fault or the core itself begins, so they stay armed.
        if draw() < 0.5:
            self._waiting[FaultKind.ANSWER_LATE] = 0
        if draw() < 0.5:
            self._waiting[FaultKind.ANSWER_OLD] = 0
        self._waiting[FaultKind.TAKE_BACK_RACE] = 0

    def arm(self, kind: FaultKind, opportunity: int) -> None:
        """Let a fault that a plan does not draw strike at its n-th opportunity, counted from 0."""
        self._waiting[kind] = opportunity

    @property
    def total(self) -> int:
        """Effective faults so far."""
        return self.effective.total()

    def fires(self, kind: FaultKind) -> bool:
        """True if the fault fires at this opportunity; then it is spent, and counted if there was work to hurt."""
        left = self._waiting.get(kind)
        if left is None:
            return False
        if left:
            self._waiting[kind] = left - 1
            return False
        del self._waiting[kind]
        if self.is_work_in_flight():
            self.effective[kind] += 1
        return True
