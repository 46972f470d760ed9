"""Workers as the core sees them: who is alive, what each has in hand, who may get more.

Prefetch: a worker may hold several steps when they are known to be short, so that it never idles between
a commit and the next dispatch. What waits behind a long step is asked back when another worker is idle.
"""

from __future__ import annotations

import msgspec

from actorproc.model.ids import StepToken, WorkerId

__all__ = ["PREFETCH_LIMIT", "PREFETCH_WINDOW", "STEAL_AFTER", "InHand", "Staff", "Worker"]

PREFETCH_LIMIT = 256
"""Steps in one worker's hands at most."""
PREFETCH_WINDOW = 0.02
"""Seconds of expected work in one worker's hands beyond which it gets no more."""
STEAL_AFTER = 0.005
"""Seconds a worker may be silent before the steps behind its current one are asked back."""
_SMOOTHING = 0.2


class InHand(msgspec.Struct):
    """One step handed out and not answered."""

    token: StepToken
    type_name: str
    recalled: bool = False
    forced: str | None = None
    """Why the step must not go on: aborted, deadline. It is killed, or taken back when it has not begun."""
    killed: bool = False
    """The worker was told to be killed for it."""
    weight: float = 0.0
    """Seconds it was expected to take when it was handed out."""


class Worker(msgspec.Struct):
    """One live worker. `queue` is in the order the steps were handed out: the first one runs."""

    id: WorkerId
    queue: dict[str, InHand]
    load: float = 0.0
    """Expected seconds of work in hand."""
    active_at: float = 0.0
    """When it last answered, or got work while idle."""


class Staff:
    """All live workers."""

    def __init__(self) -> None:
        self.workers: dict[int, Worker] = {}
        self.in_hand: dict[str, Worker] = {}
        """Worker by procedure, for every step handed out."""
        self._expected: dict[str, float] = {}

    def add(self, worker: WorkerId, now: float) -> None:
        """A worker is ready."""
        self.workers[worker.slot] = Worker(worker, {}, 0.0, now)

    def find(self, worker: WorkerId) -> Worker | None:
        """The live worker of exactly this incarnation."""
        found = self.workers.get(worker.slot)
        return found if found is not None and found.id == worker else None

    def current(self, token: StepToken) -> InHand | None:
        """The handed-out step a token names, None when the token is stale."""
        worker = self.in_hand.get(token.procedure)
        if worker is None:
            return None
        item = worker.queue[token.procedure]
        return item if item.token == token else None

    def give(self, worker: Worker, item: InHand, now: float) -> None:
        """Note that a step is handed to a worker."""
        if not worker.queue:
            worker.active_at = now
        procedure = item.token.procedure
        item.weight = self._expected.get(item.type_name, PREFETCH_WINDOW)
        worker.queue[procedure] = item
        worker.load += item.weight
        self.in_hand[procedure] = worker

    def take(self, procedure: str, now: float, elapsed: float | None = None) -> InHand:
        """A step left a worker's hands; `elapsed` seconds if it was answered."""
        worker = self.in_hand.pop(procedure)
        item = worker.queue.pop(procedure)
        worker.active_at = now
        if elapsed is not None:
            expected = self._expected.get(item.type_name, PREFETCH_WINDOW)
            self._expected[item.type_name] = expected + _SMOOTHING * (elapsed - expected)
        worker.load = worker.load - item.weight if worker.queue else 0.0
        return item

    def lose(self, worker: Worker) -> list[InHand]:
        """A worker is gone; what it had in hand, first the one that ran."""
        del self.workers[worker.id.slot]
        for procedure in worker.queue:
            del self.in_hand[procedure]
        return list(worker.queue.values())

    def choose(self, type_name: str, preferred: WorkerId | None) -> Worker | None:
        """Who gets the next step: the preferred worker when it has room, else the least loaded with room."""
        if preferred is not None:
            worker = self.find(preferred)
            if worker is not None and self._has_room(worker, type_name):
                return worker
        best: Worker | None = None
        for worker in self.workers.values():
            if self._has_room(worker, type_name) and (
                best is None or (worker.load, worker.id.slot) < (best.load, best.id.slot)
            ):
                best = worker
        return best

    def _has_room(self, worker: Worker, type_name: str) -> bool:
        if not worker.queue:
            return True
        if len(worker.queue) >= PREFETCH_LIMIT:
            return False
        return worker.load + self._expected.get(type_name, PREFETCH_WINDOW) <= PREFETCH_WINDOW

    @property
    def has_idle(self) -> bool:
        """Whether a worker has nothing in hand."""
        return any(not worker.queue for worker in self.workers.values())

    def steal_at(self) -> float | None:
        """When prefetched steps should be asked back, None when there is nobody to give them to."""
        if not self.has_idle:
            return None
        times = [worker.active_at for worker in self.workers.values() if _waiting_behind(worker)]
        return min(times) + STEAL_AFTER if times else None

    def stuck_behind(self, now: float) -> list[tuple[Worker, list[InHand]]]:
        """Steps to ask back now: those behind the running one of silent workers, while another is idle."""
        if not self.has_idle:
            return []
        return [
            (worker, behind)
            for worker in self.workers.values()
            if now >= worker.active_at + STEAL_AFTER and (behind := _waiting_behind(worker))
        ]


def _waiting_behind(worker: Worker) -> list[InHand]:
    if len(worker.queue) < 2:
        return []
    return [item for item in list(worker.queue.values())[1:] if not item.recalled]
