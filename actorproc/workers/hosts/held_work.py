"""Work that a host has in hand: its workers, the steps that they were given, and what the leader may not have stored.

A new leader takes over the running steps of live hosts. The one before may have lost messages of workers. So the host
keeps answers for a while, and of running steps what they ask, show and note.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from actorproc.model.ids import StepToken, WorkerId
from actorproc.workers.hosts.handshake import HeldWorker
from actorproc.workers.protocol.frames import (
    Ask,
    Began,
    Ended,
    Exposed,
    FromWorker,
    Heartbeat,
    Leaving,
    NeedState,
    Returned,
    Run,
    StepAnswer,
    ToWorker,
)

__all__ = ["HeldWork"]

_KEPT_SECONDS = 30.0
"""Seconds for which an answer is kept: a leader that could not store it in that time has lost its lease long since."""
_KEPT_ANSWERS = 10_000
_KEPT_DEAD = 1_000
_KEPT_BYTES = 64 * 1024 * 1024


class _Worker:
    """One live worker."""

    def __init__(self) -> None:
        self.pid = 0
        self.booted = False
        self.leaving: Leaving | None = None
        """Its wish to be replaced: it gives back every step that it is sent."""
        self.running: dict[StepToken, dict[tuple[str, object], FromWorker]] = {}
        """Steps that it was given and has not answered, with what it said of them that must not be lost."""
        self.answered: dict[StepToken, tuple[FromWorker, ...]] = {}
        """Answers, each behind the values and notes of its step, which are stored with it."""


class HeldWork:
    """Workers of a host by their ids. Not safe for several threads at once."""

    def __init__(self) -> None:
        self._workers: dict[WorkerId, _Worker] = {}
        self._kept: deque[tuple[float, WorkerId, StepToken, int]] = deque()
        """Answers by age: when each came, whose it is, and its bytes."""
        self._kept_bytes = 0
        self._dead: dict[WorkerId, _Worker] = {}
        """Workers that have died since they were last listed for a leader."""
        self._declined: deque[Returned | NeedState] = deque(maxlen=_KEPT_ANSWERS)
        """Steps that workers gave back, or lack the state of: a leader may be about to adopt one of them."""

    def __contains__(self, worker: WorkerId) -> bool:
        return worker in self._workers

    def __iter__(self) -> Iterator[WorkerId]:
        return iter(tuple(self._workers))

    # ------------------------------------------------------------ what happens
    def launched(self, worker: WorkerId) -> None:
        """A worker is being started."""
        self._workers[worker] = _Worker()

    def booted(self, worker: WorkerId, pid: int) -> None:
        """A worker is ready."""
        held = self._workers.setdefault(worker, _Worker())
        held.booted, held.pid = True, pid

    def died(self, worker: WorkerId) -> None:
        """A worker is gone, and its steps with it."""
        held = self._workers.pop(worker, None)
        if held is not None:
            self._dead[worker] = held
            if len(self._dead) > _KEPT_DEAD:
                del self._dead[next(iter(self._dead))]

    def given(self, worker: WorkerId, messages: Iterable[ToWorker]) -> None:
        """Messages go to a worker."""
        held = self._workers.get(worker)
        if held is None:
            return
        for message in messages:
            if isinstance(message, Run):
                held.running[message.token] = {}
            elif isinstance(message, StepAnswer):
                for said in held.running.values():
                    said.pop(("ask", message.request), None)

    def heard(self, worker: WorkerId, messages: Sequence[FromWorker], now: float) -> None:
        """A worker said this.

        Args:
            worker: The worker.
            messages: The messages.
            now: Monotonic seconds.
        """
        held = self._workers.get(worker)
        if held is None:
            return
        for message in messages:
            if isinstance(message, Ended):
                said = held.running.pop(message.token, None)
                if said is not None:
                    self._keep(held, worker, said, message, now)
            elif isinstance(message, Returned | NeedState):
                held.running.pop(message.token, None)
                self._declined.append(message)
            elif isinstance(message, Leaving):
                held.leaving = message
            elif isinstance(message, Ask | Exposed | Heartbeat | Began):
                said = held.running.get(message.token)
                if said is not None:
                    said[_key_of(message)] = message

    def _keep(
        self,
        held: _Worker,
        worker: WorkerId,
        said: dict[tuple[str, object], FromWorker],
        answer: Ended,
        now: float,
    ) -> None:
        outcome = answer.outcome
        size = 200 + len(getattr(outcome, "state", None) or b"") + len(getattr(outcome, "output", None) or b"")
        reports = [message for message in said.values() if isinstance(message, Exposed | Heartbeat)]
        size += sum(200 + len(_value_of(message)) for message in reports)
        held.answered[answer.token] = (*reports, answer)
        self._kept.append((now, worker, answer.token, size))
        self._kept_bytes += size
        while self._kept and (
            self._kept[0][0] < now - _KEPT_SECONDS or len(self._kept) > _KEPT_ANSWERS or self._kept_bytes > _KEPT_BYTES
        ):
            _, worker, token, size = self._kept.popleft()
            self._kept_bytes -= size
            for workers in (self._workers, self._dead):
                if worker in workers:
                    workers[worker].answered.pop(token, None)

    # ------------------------------------------------------------ questions
    def begin_list(self) -> None:
        """The workers are about to be listed for a leader: of those that are dead it knows nothing."""
        self._dead.clear()

    def last_words(self, worker: WorkerId, adopted: frozenset[StepToken]) -> list[FromWorker]:
        """Answers and reports about steps that count, of a worker that died while it was listed.

        Args:
            worker: The worker.
            adopted: Steps that count.
        """
        held = self._dead.pop(worker, None)
        if held is None:
            return []
        said = [message for token, answer in held.answered.items() if token in adopted for message in answer]
        for token, running in held.running.items():
            if token in adopted:
                said += (message for message in running.values() if isinstance(message, Exposed | Heartbeat))
        return said

    def busy(self) -> list[WorkerId]:
        """Workers with steps that are not answered."""
        return [worker for worker, held in self._workers.items() if held.running]

    def has(self, token: StepToken) -> bool:
        """True if a worker has this step in hand.

        Args:
            token: The step.
        """
        held = self._workers.get(token.worker)
        return held is not None and token in held.running

    def listed(self) -> tuple[HeldWorker, ...]:
        """All live workers and their steps, as a leader is told of them."""
        return tuple(
            HeldWorker(worker, held.pid, held.booted, tuple(held.running), tuple(held.answered))
            for worker, held in self._workers.items()
        )

    def taken_over(self, worker: WorkerId, adopted: frozenset[StepToken]) -> list[FromWorker] | None:
        """Settle the work of a kept worker with a new leader, and forget answers that do not count any more.

        Args:
            worker: The worker.
            adopted: Steps that count.

        Returns:
            Messages to be said again; None: the worker has a step that does not count, and is to be killed.
        """
        held = self._workers[worker]
        held.answered = {token: answer for token, answer in held.answered.items() if token in adopted}
        if not adopted.issuperset(held.running):
            return None
        again: list[FromWorker] = [message for answer in held.answered.values() for message in answer]
        for said in held.running.values():
            again += said.values()
        open_ = {token for token in adopted.difference(held.running, held.answered) if token.worker == worker}
        again += {message.token: message for message in self._declined if message.token in open_}.values()
        return again if held.leaving is None else [*again, held.leaving]


def _value_of(message: Exposed | Heartbeat) -> bytes:
    return (message.value if isinstance(message, Exposed) else message.details) or b""


def _key_of(message: Ask | Exposed | Heartbeat | Began) -> tuple[str, object]:
    """Key of what a running step said and must not be lost with its leader; a later one takes its place."""
    if isinstance(message, Ask):
        return "ask", message.request
    if isinstance(message, Exposed):
        return "exposed", message.key
    if isinstance(message, Heartbeat):
        return ("note", message.key) if message.details is not None else ("beat", "")
    return "began", message.in_code
