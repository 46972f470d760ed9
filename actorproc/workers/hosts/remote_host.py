"""One host as the manager that leads sees it: its session, its workers, and questions that it has not answered."""

from __future__ import annotations

import math
import threading
import time
from concurrent.futures import Future, wait

from actorproc.model.ids import StepToken, WorkerId
from actorproc.workers.base import WorkerInfo
from actorproc.workers.hosts.codec import encode_message
from actorproc.workers.hosts.handshake import HostHello
from actorproc.workers.hosts.messages import HostAnswer, HostQuestion, ToHost, lane_of
from actorproc.workers.link.session import LinkSession

__all__ = ["RemoteHost", "answers", "ask_all"]


class RemoteHost:
    """A host that has joined.

    Args:
        number: Its number.
        name: Its name as people see it.
        address: The address that it came from.
        hello: The message with which it came.
        session_id: Name of the session.
    """

    def __init__(self, number: int, name: str, address: str, hello: HostHello, session_id: bytes) -> None:
        self.number = number
        self.name = name
        self.address = address
        self.hello = hello
        self.session_id = session_id
        self.session: LinkSession
        self.joined_at = time.time()
        self.limits = "none"
        self.process_limits = "none"
        self.workers: dict[WorkerId, int | None] = {}
        """Workers that live there or are on their way, and their pids; None: it has not booted."""
        self.before: tuple[WorkerId, ...] = ()
        """Workers that the manager may have taken over when this host tried to come before."""
        self.is_arriving = True
        """The manager is being asked what counts of that which it has in hand."""
        self.arrived_at = math.inf
        """Monotonic seconds at which it was known."""
        self.is_open = False
        """It was announced."""
        self.draining: str | None = None
        """Reason for which it leaves; None: it stays."""
        self.is_closing_out = False
        self.gone = False
        self.lock = threading.RLock()
        """Held while something of it is told, so that nothing is told of it after its end."""
        self.full_since: float | None = None
        """Monotonic time since when too much waits for it; None: it does not."""
        self.living: tuple[tuple[WorkerId, int, tuple[StepToken, ...]], ...] = ()
        """Workers that it brought along, with their pids and the steps in their hands that count."""
        self.questions: dict[int, Future[HostAnswer]] = {}

    @property
    def state(self) -> str:
        """joined, draining or silent."""
        if not self.session.is_connected:
            return "silent"
        return "joined" if self.draining is None else "draining"

    def known_facts(self) -> dict[WorkerId, WorkerInfo]:
        """Facts of its workers as far as they are known here, while it does not answer."""
        return {
            worker: WorkerInfo(
                slot=worker.slot,
                incarnation=worker.incarnation,
                pid=pid or 0,
                state="booting" if pid is None else "idle",
            )
            for worker, pid in list(self.workers.items())
        }

    def send(self, message: ToHost) -> None:
        """Send a message; returns at once."""
        if not self.gone:
            self.session.put(lane_of(message), encode_message(message))

    def ask(self, question: HostQuestion) -> Future[HostAnswer]:
        """Ask, and get the future of the answer; it fails with the host."""
        future: Future[HostAnswer] = Future()
        self.questions[question.number] = future
        if self.gone:
            self.fail_questions()
        self.send(question)
        return future

    def answered(self, answer: HostAnswer) -> None:
        """An answer came, maybe too late."""
        future = self.questions.pop(answer.number, None)
        if future is not None and not future.done():
            future.set_result(answer)

    def fail_questions(self) -> None:
        """Nothing is answered any more."""
        while self.questions:
            _, future = self.questions.popitem()
            if not future.done():
                future.set_exception(ConnectionError(f"host {self.name} is gone"))


def ask_all(asked: list[tuple[RemoteHost, HostQuestion]]) -> list[Future[HostAnswer]]:
    """Ask each host its question."""
    return [host.ask(question) for host, question in asked]


def answers(
    asked: list[tuple[RemoteHost, HostQuestion]], futures: list[Future[HostAnswer]], timeout: float
) -> list[tuple[RemoteHost, HostAnswer | None]]:
    """The answers that come within `timeout` seconds; None for a host that does not answer."""
    wait(futures, timeout)
    found: list[tuple[RemoteHost, HostAnswer | None]] = []
    for (host, question), future in zip(asked, futures, strict=True):
        host.questions.pop(question.number, None)
        is_there = future.done() and future.exception() is None
        found.append((host, future.result() if is_there else None))
    return found
