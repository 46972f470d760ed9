"""A pool of real worker processes with a listener that remembers."""

from __future__ import annotations

import queue
import time
from pathlib import Path
from typing import Any, TypeVar

from actorproc.model.ids import Mode, StepToken, WorkerId
from actorproc.procedure.authoring.procedure import Procedure
from actorproc.procedure.runtime.class_shipping import definition_of
from actorproc.procedure.runtime.engine_side import TypeRuntime
from actorproc.workers.base import PoolEvent, WorkerBooted, WorkerDied, WorkerMessages
from actorproc.workers.pool.local_pool import LocalPool
from actorproc.workers.protocol.frames import Define, Ended, FromWorker, Heartbeat, LogLine, Run

BOUND = 20.0
"""Seconds after which a condition that should hold soon is given up."""
T = TypeVar("T")


class Listener:
    """A pool and everything it said, in order."""

    def __init__(self, pool: Any = None, **options: Any) -> None:
        self.pool = LocalPool(**options) if pool is None else pool
        self.events: queue.Queue[PoolEvent] = queue.Queue()
        self.heard: list[PoolEvent] = []
        self.inbox: dict[WorkerId, list[FromWorker]] = {}
        self._steps = 0
        self.pool.open(self.events.put)

    def boot(self, slot: int = 0, incarnation: int = 1) -> WorkerId:
        worker = WorkerId(slot, incarnation)
        self.pool.launch(worker)
        self.next_event(WorkerBooted, worker)
        return worker

    def next_event(self, kind: type[T], worker: WorkerId) -> T:
        deadline = time.monotonic() + BOUND
        while True:
            for index, event in enumerate(self.heard):
                if isinstance(event, kind) and event.worker == worker:
                    return self.heard.pop(index)  # type: ignore[return-value]
            event = self.events.get(timeout=max(0.0, deadline - time.monotonic()))
            if isinstance(event, WorkerMessages):
                self.inbox.setdefault(event.worker, []).extend(event.messages)
            self.heard.append(event)

    def next_message(self, kind: type[T], worker: WorkerId) -> T:
        while True:
            waiting = self.inbox.setdefault(worker, [])
            for index, message in enumerate(waiting):
                if isinstance(message, kind):
                    return waiting.pop(index)  # type: ignore[return-value]
            self.next_event(WorkerMessages, worker)

    def died(self, worker: WorkerId) -> WorkerDied:
        return self.next_event(WorkerDied, worker)

    def step(self, worker: WorkerId, procedure: Procedure, *, name: str = "p", number: int = 1, **more: Any) -> Run:
        """The messages of a step with its state, ready to send."""
        new = TypeRuntime.of_class(type(procedure)).describe(procedure, id=name)
        token = StepToken(1, worker, name, number, 1, more.pop("mode", Mode.EXECUTE))
        return Run(token, new.type_name, name, None, new.state, new.codec, new.version, **more)

    def start(self, worker: WorkerId, procedure: Procedure, **more: Any) -> Run:
        run = self.step(worker, procedure, **more)
        definition = definition_of(TypeRuntime.of_class(type(procedure)), 1)
        self.pool.send(worker, [Define(definition), run])
        return run

    def finish(self, worker: WorkerId, procedure: Procedure, **more: Any) -> Any:
        """Run a step to its answer and decode its output."""
        run = self.start(worker, procedure, **more)
        ended = self.next_message(Ended, worker)
        assert ended.token == run.token
        return TypeRuntime.of_class(type(procedure)).decode_output(ended.outcome.output)

    def pid(self, worker: WorkerId) -> int:
        return self.pool.facts()[worker].pid

    def heartbeat(self, worker: WorkerId) -> Heartbeat:
        return self.next_message(Heartbeat, worker)

    def log_line(self, worker: WorkerId) -> LogLine:
        return self.next_message(LogLine, worker)


def is_gone(pid: int) -> bool:
    """No such process, or a zombie that somebody else has to collect."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
