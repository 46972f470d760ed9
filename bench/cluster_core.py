"""Decisions of the core alone with many hosts, without processes and without a store."""

from __future__ import annotations

import time

from actorproc.core.coordinator import Coordinator
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.commands import Decision, RunStep
from actorproc.model.messages.events import HostAdded, StepEnded, Submitted, TypeRegistered, WorkerReady
from actorproc.model.messages.outcomes import Finished
from actorproc.model.policies import TypeMeta
from actorproc.model.rows.records import NewProcedure
from actorproc.model.rows.snapshot import RecoverySnapshot

_EACH = 8
"""Workers of a host."""
_STEP = 0.1
"""Seconds that a step is said to have taken."""


class Decider:
    """A core with hosts, and the steps that it has handed out."""

    def __init__(self, hosts: int, *, is_placed: bool) -> None:
        self.core, _ = Coordinator.restore(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []), 0.0)
        self.now, self.submitted = 1.0, 0
        self.handed: list[StepToken] = []
        asked = {"on": ("gpu",), "resources": {"gpu": 1.0}} if is_placed else {}
        self.core.handle(TypeRegistered(TypeMeta(type_name="T", **asked)), 0.0)  # type: ignore[arg-type]
        for host in range(hosts):
            self.core.handle(HostAdded(f"h{host}", ("gpu",), {"gpu": float(_EACH)}), 0.0)
            for slot in range(_EACH):
                self.core.handle(WorkerReady(WorkerId(host * 1000 + slot, 1), host=f"h{host}"), 0.0)

    def submit(self, count: int) -> None:
        first, self.submitted = self.submitted, self.submitted + count
        names = (f"p{first + number}" for number in range(count))
        new = tuple(NewProcedure(id=id, type_name="T", state=b"0", digest=b"d", fresh=True) for id in names)
        self._take(self.core.handle(Submitted(new, self.submitted), self.now))

    def end_first(self) -> None:
        self.now += 1e-5
        self._take(self.core.handle(StepEnded(self.handed.pop(0), Finished(state=b"", elapsed=_STEP)), self.now))
        self.core.settle(self.core.seal())
        self.core.next_deadline()

    def _take(self, decision: Decision) -> None:
        self.handed += [command.token for command in decision.commands if isinstance(command, RunStep)]


def decide(hosts: int, load: float, *, is_placed: bool, count: int) -> float:
    """Processor microseconds of the core for a procedure."""
    decider = Decider(hosts, is_placed=is_placed)
    decider.submit(max(1, int(hosts * _EACH * load)))
    begun = time.process_time()
    for _ in range(count):
        decider.end_first()
        decider.submit(1)
    return (time.process_time() - begun) / count * 1e6
