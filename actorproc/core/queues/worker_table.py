"""Workers as the core sees them: who is alive, what each has in hand, who may get more.

Prefetch: a worker may hold several steps when they are known to be short, so that it never idles between
a commit and the next dispatch. Steps that wait behind a long one are asked back when another worker is idle.
"""

from __future__ import annotations

from collections.abc import Iterable
from heapq import heappop, heappush

import msgspec

from actorproc.core.queues.host_table import Demand, HostTable
from actorproc.model.ids import Mode, StepToken, WorkerId

__all__ = ["BULKY", "PREFETCH_LIMIT", "PREFETCH_WINDOW", "STEAL_AFTER", "InHand", "SlotPlan", "Worker", "WorkerTable"]

PREFETCH_LIMIT = 256
"""Steps in one worker's hands at most."""
PREFETCH_WINDOW = 0.02
"""Seconds of expected work in one worker's hands beyond which it gets no more."""
BULKY = 64 * 1024
"""Bytes of a first state from which on it counts as work by itself."""
_BYTES_PER_SECOND = 2e9
"""Rate at which first states count as work: those on their way to a worker are some 40 MB, or one larger."""
STEAL_AFTER = 0.005
"""Seconds a worker may be silent before the steps behind its current one are asked back."""
_SMOOTHING = 0.2


class InHand(msgspec.Struct):
    """One step handed out and not answered."""

    token: StepToken
    type_name: str
    recalled: bool = False
    forced: str | None = None
    """Reason to stop the step: aborted, abort-grace, bypassed, deadline, killed. It is killed, or taken back when it
    has not begun."""
    killed: bool = False
    """The worker was told to be killed for it."""
    told: bool = False
    """The step was told that its undo is decided."""
    kill_at: float | None = None
    """Epoch seconds at which it is killed for that; None: it may go on to its end."""
    threads: int = 1
    """Steps like this one that may run in a worker at once."""
    weight: float = 0.0
    """Seconds it was expected to take when it was handed out."""
    pid: int = 0
    """The process of the worker that has it; 0: not known."""
    size: int = 0
    """Bytes of its first state if they are many: should it come back unanswered, they will be sent again."""
    demand: Demand | None = None
    """Labels and resources of the host that it asked for."""
    is_task: bool = False
    """It runs on an event loop, where it can be stopped without an end of its worker."""


class Worker(msgspec.Struct):
    """One live worker. `queue` is in the order the steps were handed out: the first one runs."""

    id: WorkerId
    queue: dict[str, InHand]
    load: float = 0.0
    """Expected seconds of work in hand."""
    active_at: float = 0.0
    """Time at which it last answered, or got work while idle."""
    pid: int = 0
    reserved: str | None = None
    """The procedure it belongs to; None: it takes steps of any."""
    leaving: bool = False
    """It gets no further step."""
    stopped: bool = False
    """It was told to end."""
    work_class: str = "default"
    """Class of work of the steps in hand, when classes have shares."""
    threaded: int = 0
    """Steps in hand that run beside each other; then there are no others."""
    host: str = ""
    """Name of the host that it is on."""


class SlotPlan:
    """Worker slots, dedicated ones not included, and what is to become of them."""

    def __init__(self, workers: int) -> None:
        self.slots: set[int] = set()
        """Slots that are kept filled. A worker of each was ready once: which number comes next is not known before."""
        self.ordered = workers
        """Workers ordered whose slots are not known yet, as none was ready."""
        self.unwanted = 0
        """Number of workers that go as soon as they are ready: the pool was made smaller before that."""
        self.vacated: set[int] = set()
        """Slots whose next worker goes as soon as it is ready: the pool was made smaller while they had none."""
        self.retired: set[WorkerId] = set()
        """Workers that were told to end and whose slots go with them."""
        self.look_at: float | None = None
        """Time of the next look whether all workers are stuck."""

    def take_over(self, living: Iterable[int]) -> None:
        """Memory was lost while workers lived on: they are the slots there are, others that were wanted are to come."""
        self.slots = set(living)
        self.vacated.clear()
        self.ordered = max(0, self.ordered - len(self.slots))


class WorkerWaitList:
    """Procedures that could run if a worker of their own were there, in the order they came."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}

    def __contains__(self, procedure: str) -> bool:
        return procedure in self._names

    def put(self, procedure: str) -> None:
        """It waits here from now on, at its old place if it was here."""
        self._names[procedure] = None

    def discard(self, procedure: str) -> None:
        """It does not wait here any more."""
        self._names.pop(procedure, None)

    def names(self) -> list[str]:
        """All of them."""
        return list(self._names)


class WorkerTable:
    """All live workers."""

    def __init__(self) -> None:
        self.workers: dict[int, Worker] = {}
        self.hosts = HostTable()
        self.in_hand: dict[str, Worker] = {}
        """Worker by procedure, for every step handed out."""
        self.by_host: dict[str, dict[int, Worker]] = {}
        """Workers by slot, of each host."""
        self.busy = 0
        """Workers with anything in hand."""
        self._idle: list[int] = []
        """Heap of slots: of each idle worker that is for all, and of others, which leave it when one is looked for."""
        self._listed: set[int] = set()
        """Slots in that heap."""
        self._expected: dict[str, float] = {}
        self._bulky: dict[str, int] = {}
        """Bytes of large first states that no worker got yet. A hint: after a start they are not known."""

    def note_size(self, procedure: str, size: int) -> None:
        """Note that its first step is still to be sent, with `size` bytes: `BULKY` or more."""
        self._bulky[procedure] = size

    def forget_size(self, procedure: str) -> None:
        """Its tree leaves memory."""
        if self._bulky:
            self._bulky.pop(procedure, None)

    def add(
        self,
        worker: WorkerId,
        now: float,
        pid: int = 0,
        *,
        reserved: str | None = None,
        leaving: bool = False,
        host: str = "",
    ) -> Worker:
        """A worker is ready."""
        added = Worker(worker, {}, 0.0, now, pid, reserved, leaving, host=host)
        self.workers[worker.slot] = added
        self.by_host.setdefault(host, {})[worker.slot] = added
        self._list_idle(worker.slot)
        return added

    def _list_idle(self, slot: int) -> None:
        if slot not in self._listed:
            self._listed.add(slot)
            heappush(self._idle, slot)

    def first_idle(self) -> Worker | None:
        """The idle worker for all with the lowest slot."""
        heap = self._idle
        while heap:
            worker = self.workers.get(heap[0])
            if worker is not None and not worker.queue and worker.reserved is None and not worker.leaving:
                return worker
            self._listed.discard(heappop(heap))
        return None

    def set_back(self, now: float) -> None:
        """The clock was set back: no worker has been heard of later than that."""
        for worker in self.workers.values():
            worker.active_at = min(worker.active_at, now)

    def find(self, worker: WorkerId) -> Worker | None:
        """The live worker of exactly this incarnation."""
        found = self.workers.get(worker.slot)
        return found if found is not None and (found.id is worker or found.id == worker) else None

    def runs_a_step(self, procedure: str) -> bool:
        """True if a worker has a step of it. One that is asked about its `abort` may wait for something meanwhile."""
        worker = self.in_hand.get(procedure)
        return worker is not None and worker.queue[procedure].token.mode is not Mode.ASK_ABORT

    def current(self, token: StepToken) -> InHand | None:
        """The handed-out step a token names, None when the token is stale."""
        worker = self.in_hand.get(token.procedure)
        if worker is None:
            return None
        item = worker.queue[token.procedure]
        return item if item.token == token else None

    def answer(self, token: StepToken, now: float, elapsed: float) -> tuple[Worker, InHand] | None:
        """A step was answered after `elapsed` seconds and left its worker's hands; None when the token is stale."""
        item = self.current(token)
        return None if item is None else (self.put_down(item, now, elapsed), item)

    def put_down(self, item: InHand, now: float, elapsed: float) -> Worker:
        """A step that is in a worker's hands was answered after `elapsed` seconds: whose hands it left."""
        procedure, type_name = item.token.procedure, item.type_name
        worker = self.in_hand.pop(procedure)
        queue = worker.queue
        del queue[procedure]
        if item.threads > 1:
            worker.threaded -= 1
        if item.demand is not None:
            self.hosts.give_back(worker.host, item.demand)
        worker.active_at = now
        expected = self._expected.get(type_name, PREFETCH_WINDOW)
        self._expected[type_name] = expected + _SMOOTHING * (elapsed - expected)
        if queue:
            worker.load -= item.weight
        else:
            worker.load = 0.0
            self.busy -= 1
            slot = worker.id.slot
            if slot not in self._listed:  # as `_list_idle`
                self._listed.add(slot)
                heappush(self._idle, slot)
        return worker

    def give(self, worker: Worker, item: InHand, now: float) -> None:
        """Note that a step is handed to a worker."""
        if not worker.queue:
            worker.active_at = now
            self.busy += 1
        procedure = item.token.procedure
        item.weight = self._expected.get(item.type_name, PREFETCH_WINDOW)
        if self._bulky:
            item.size = self._bulky.pop(procedure, 0)
            item.weight += item.size / _BYTES_PER_SECOND
        item.pid = worker.pid
        worker.queue[procedure] = item
        worker.load += item.weight
        if item.threads > 1:
            worker.threaded += 1
        if item.demand is not None:
            self.hosts.take(worker.host, item.demand)
        self.in_hand[procedure] = worker

    def take_in_hand(self, host: str) -> None:
        """A host is there now: take of it what the steps asked for that its workers have in hand already."""
        for worker in self.by_host.get(host, {}).values():
            for item in worker.queue.values():
                if item.demand is not None:
                    self.hosts.take(host, item.demand)

    def keep(self, worker: Worker, item: InHand, now: float, elapsed: float) -> bool:
        """`answer`, `choose` and `give` in one, for an answered step after which the same worker gets the next one.

        False, and nothing is done, when the worker has no room for it or has another step that must not go on.
        """
        if worker.threaded or worker.leaving or worker.reserved is not None or item.threads > 1 or item.demand:
            return False
        queue = worker.queue
        procedure, type_name = item.token.procedure, item.type_name
        expected = self._expected.get(type_name, PREFETCH_WINDOW)
        expected += _SMOOTHING * (elapsed - expected)
        load = 0.0
        if len(queue) > 1:
            load = worker.load - item.weight
            if len(queue) > PREFETCH_LIMIT or load + expected > PREFETCH_WINDOW:
                return False
            names = iter(queue)
            following = next(names)
            if following == procedure:
                following = next(names)
            if queue[following].forced is not None:
                return False
        self._expected[type_name] = expected
        del queue[procedure]
        queue[procedure] = item
        item.weight = expected
        item.size = 0
        item.recalled = item.killed = False
        worker.load = load + expected
        worker.active_at = now
        return True

    def take(self, procedure: str, now: float) -> InHand:
        """A step left a worker's hands without an answer."""
        worker = self.in_hand.pop(procedure)
        item = worker.queue.pop(procedure)
        worker.threaded -= item.threads > 1
        if item.demand is not None:
            self.hosts.give_back(worker.host, item.demand)
        worker.active_at = now
        if worker.queue:
            worker.load -= item.weight
        else:
            worker.load = 0.0
            self.busy -= 1
            self._list_idle(worker.id.slot)
        if item.size:
            self.note_size(procedure, item.size)
        return item

    def delay(self, token: StepToken, now: float) -> tuple[Worker, InHand] | None:
        """A worker puts a step behind the others it has; None when the token is stale."""
        item = self.current(token)
        if item is None:
            return None
        worker = self.in_hand[token.procedure]
        worker.queue[token.procedure] = worker.queue.pop(token.procedure)
        worker.active_at = now
        return worker, item

    def lose(self, worker: Worker) -> list[InHand]:
        """A worker is gone; what it had in hand, first the one that ran."""
        del self.workers[worker.id.slot]
        self.busy -= bool(worker.queue)
        beside = self.by_host[worker.host]
        if beside.get(worker.id.slot) is worker:
            del beside[worker.id.slot]
            if not beside:
                del self.by_host[worker.host]
        for procedure, item in worker.queue.items():
            del self.in_hand[procedure]
            if item.demand is not None:
                self.hosts.give_back(worker.host, item.demand)
            if item.size:
                self.note_size(procedure, item.size)
        return list(worker.queue.values())

    def choose(
        self,
        type_name: str,
        preferred: WorkerId | None,
        threads: int = 1,
        among: list[Worker] | None = None,
        is_task: bool = False,
    ) -> Worker | None:
        """Choose the worker for the next step: the preferred one when it has room, else the least loaded with room.

        Steps that may run beside each other (`threads` above 1) are kept together, so that the others have workers.
        Those on threads and those on an event loop (`is_task`) are never in one worker. With `among` only these workers
        count.
        """
        workers = self.workers.values() if among is None else among
        if threads > 1:
            return self._choose_threaded(threads, workers, is_task)
        if preferred is not None:
            worker = self.find(preferred)
            is_open = among is None or any(worker is one for one in among)
            if worker is not None and is_open and self._has_room(worker, type_name):
                return worker
        expected = self._expected.get(type_name, PREFETCH_WINDOW)
        if among is None:
            heap = self._idle
            while heap:  # as `first_idle`: of many workers most are busy
                idle = self.workers.get(heap[0])
                if idle is not None and not idle.queue and idle.reserved is None and not idle.leaving:
                    return idle
                self._listed.discard(heappop(heap))
            if expected > PREFETCH_WINDOW:
                return None
        best: Worker | None = None
        for worker in workers:  # for every step that is handed out: `_has_room` written out
            if worker.reserved is not None or worker.leaving:
                continue
            load, queue = worker.load, worker.queue
            if queue and (worker.threaded or len(queue) >= PREFETCH_LIMIT or load + expected > PREFETCH_WINDOW):
                continue
            if best is None or load < best.load or (load == best.load and worker.id.slot < best.id.slot):
                best = worker
        return best

    @staticmethod
    def _choose_threaded(threads: int, workers: Iterable[Worker], is_task: bool) -> Worker | None:
        idle: Worker | None = None
        for worker in workers:
            if worker.reserved is not None or worker.leaving:
                continue
            if worker.threaded:
                first = next(iter(worker.queue.values()))
                if first.is_task is is_task and len(worker.queue) < min(
                    threads, *(item.threads for item in worker.queue.values())
                ):
                    return worker
            elif not worker.queue and idle is None:
                idle = worker
        return idle

    def _has_room(self, worker: Worker, type_name: str) -> bool:
        if worker.reserved is not None or worker.leaving:
            return False
        if not worker.queue:
            return True
        if worker.threaded or len(worker.queue) >= PREFETCH_LIMIT:
            return False
        return worker.load + self._expected.get(type_name, PREFETCH_WINDOW) <= PREFETCH_WINDOW

    def for_all(self) -> list[Worker]:
        """Workers that stay and are not dedicated."""
        return [worker for worker in self.workers.values() if worker.reserved is None and not worker.leaving]

    def room(self, wanted: int) -> int:
        """Number of further steps that could be handed out at most, whatever they are; not counted beyond `wanted`."""
        if wanted <= PREFETCH_LIMIT and self.has_idle:
            return PREFETCH_LIMIT
        found = 0
        for worker in self.workers.values():
            if (worker.threaded or worker.load < PREFETCH_WINDOW) and worker.reserved is None and not worker.leaving:
                found += PREFETCH_LIMIT - len(worker.queue)
                if found >= wanted:
                    break
        return found

    @property
    def is_full(self) -> bool:
        """True if no worker may get another step, whatever it is, short of a new one."""
        for worker in self.workers.values():  # asked after every step that is handed out: no generator
            if (
                (len(worker.queue) < PREFETCH_LIMIT or worker.threaded)
                and worker.reserved is None
                and not worker.leaving
            ):
                return False
        return True

    @property
    def has_idle(self) -> bool:
        """True if a worker has nothing in hand."""
        return self.first_idle() is not None

    @staticmethod
    def waiting_behind(worker: Worker) -> list[InHand]:
        """Steps in a worker's hands that have not begun and were not asked back."""
        return _waiting_behind(worker)

    @staticmethod
    def has_begun(worker: Worker, item: InHand) -> bool:
        """True if a step in a worker's hands runs, as far as can be told."""
        return bool(worker.threaded) or next(iter(worker.queue.values())) is item

    def steal_at(self) -> float | None:
        """Time at which prefetched steps should be asked back, None when there is no worker to give them to."""
        if len(self.in_hand) == self.busy or not self.has_idle:  # each worker has one step at most: none waits
            return None
        times = [worker.active_at for worker in self.workers.values() if _waiting_behind(worker)]
        return min(times) + STEAL_AFTER if times else None

    def stuck_behind(self, now: float) -> list[tuple[Worker, list[InHand]]]:
        """Steps to ask back now: those behind the running one of silent workers, while another is idle."""
        if len(self.in_hand) == self.busy or not self.has_idle:
            return []
        return [
            (worker, behind)
            for worker in self.workers.values()
            if now >= worker.active_at + STEAL_AFTER and (behind := _waiting_behind(worker))
        ]


def _waiting_behind(worker: Worker) -> list[InHand]:
    if len(worker.queue) < 2 or worker.threaded:
        return []
    return [item for item in list(worker.queue.values())[1:] if not item.recalled]
