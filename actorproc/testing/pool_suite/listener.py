"""A listener of a worker pool: it hears every event, and hands them to a test in order."""

from __future__ import annotations

import queue
import time
from typing import Any, TypeVar

from actorproc.model.ids import Mode, StepToken, WorkerId
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.runtime.class_shipping import definition_of
from actorproc.procedure.runtime.engine_side import TypeRuntime
from actorproc.workers.base import (
    HostJoined,
    PoolEvent,
    PoolFailed,
    WorkerBooted,
    WorkerDied,
    WorkerMessages,
    WorkerPool,
)
from actorproc.workers.protocol.frames import Define, Ended, FromWorker, Run

__all__ = ["PoolListener"]

_T = TypeVar("_T")


class PoolListener:
    """A pool that is open, and everything it said.

    Args:
        pool: A pool that is not open yet.
        bound: Seconds after which a condition that should hold soon is given up. Default: 20.
        first_slot: Number of the slot that `boot` calls 0. Default: 0.
    """

    def __init__(self, pool: WorkerPool, *, bound: float = 20.0, first_slot: int = 0) -> None:
        self.pool = pool
        self.bound = bound
        self.first_slot = first_slot
        self.events: queue.Queue[PoolEvent] = queue.Queue()
        self.heard: list[PoolEvent] = []
        """Events that no test has taken yet."""
        self.inbox: dict[WorkerId, list[FromWorker]] = {}
        """Messages by worker that no test has taken yet."""
        self._machine: HostJoined | None = None
        pool.open(self.events.put)

    def measures(self) -> bool:
        """True if the pool samples what its workers use, as it has announced.

        Returns:
            False for a pool whose workers have no process that could be measured.

        Raises:
            AssertionError: It has announced nothing.
        """
        assert self._machine is not None, "the first event of a pool is a HostJoined"
        return self._machine.limits != "none"

    def boot(self, slot: int = 0, incarnation: int = 1) -> WorkerId:
        """Start a worker, and wait until it is ready.

        Args:
            slot: Number of the worker. Default: 0.
            incarnation: Number of its life. Default: 1.

        Returns:
            The worker.
        """
        worker = WorkerId(self.first_slot + slot, incarnation)
        self.pool.launch(worker)
        self.next_event(WorkerBooted, worker)
        return worker

    def next_event(self, kind: type[_T], worker: WorkerId) -> _T:
        """The next event of a kind about a worker.

        Args:
            kind: `WorkerBooted`, `WorkerMessages` or `WorkerDied`.
            worker: The worker.

        Returns:
            The event, which is taken.

        Raises:
            AssertionError: It does not come in time, or the pool failed.
        """
        deadline = time.monotonic() + self.bound
        while True:
            for index, event in enumerate(self.heard):
                if isinstance(event, kind) and getattr(event, "worker", None) == worker:
                    del self.heard[index]
                    return event
            try:
                new = self.events.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                msg = f"no {kind.__name__} of worker {worker} within {self.bound:g} s; heard: {self.heard}"
                raise AssertionError(msg) from None
            if isinstance(new, PoolFailed):
                raise AssertionError("the pool failed") from new.error  # noqa: TRY004 - it fails the test
            if isinstance(new, HostJoined):
                self._machine = new
                continue
            if isinstance(new, WorkerMessages):
                self.inbox.setdefault(new.worker, []).extend(new.messages)
            self.heard.append(new)

    def next_message(self, kind: type[_T], worker: WorkerId) -> _T:
        """The next message of a kind from a worker.

        Args:
            kind: A class of `actorproc.workers.protocol.frames`.
            worker: The worker.

        Returns:
            The message, which is taken.

        Raises:
            AssertionError: It does not come in time, or the pool failed.
        """
        while True:
            waiting = self.inbox.setdefault(worker, [])
            for index, message in enumerate(waiting):
                if isinstance(message, kind):
                    del waiting[index]
                    return message
            self.next_event(WorkerMessages, worker)

    def died(self, worker: WorkerId) -> WorkerDied:
        """The death of a worker, waited for.

        Args:
            worker: The worker.

        Returns:
            The event.
        """
        return self.next_event(WorkerDied, worker)

    def step(self, worker: WorkerId, procedure: Procedure, *, name: str = "p", number: int = 1, **more: Any) -> Run:
        """The message that hands a step with its state to a worker; it is not sent.

        Args:
            worker: The worker.
            procedure: The procedure, before the step.
            name: Its id. Default: "p".
            number: Number of the step. Default: 1.
            **more: Further fields of `Run`, and `mode`.

        Returns:
            The message.
        """
        new = TypeRuntime.of_class(type(procedure)).describe(procedure, id=name)
        token = StepToken(1, worker, name, number, 1, more.pop("mode", Mode.EXECUTE))
        return Run(token, new.type_name, name, None, new.state, new.codec, new.version, **more)

    def start(self, worker: WorkerId, procedure: Procedure, **more: Any) -> Run:
        """Send a step, and the class it needs.

        Args:
            worker: The worker.
            procedure: The procedure, before the step.
            **more: As for `step`.

        Returns:
            The message that was sent.
        """
        run = self.step(worker, procedure, **more)
        self.pool.send(worker, [Define(definition_of(TypeRuntime.of_class(type(procedure)), 1)), run])
        return run

    def finish(self, worker: WorkerId, procedure: Procedure, **more: Any) -> Any:
        """Run a step to its answer.

        Args:
            worker: The worker.
            procedure: The procedure, before its last step.
            **more: As for `step`.

        Returns:
            The decoded output.
        """
        run = self.start(worker, procedure, **more)
        ended: Any = self.next_message(Ended, worker)
        assert ended.token == run.token
        return TypeRuntime.of_class(type(procedure)).decode_output(ended.outcome.output)
