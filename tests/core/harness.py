"""A harness for one coordinator: it submits, answers what was handed out, and keeps what was decided."""

from __future__ import annotations

from collections.abc import Iterable

from actorproc.core.coordinator import Coordinator
from actorproc.model.ids import Mode, WorkerId
from actorproc.model.messages.commands import Command, Decision, KillWorker, Reply, Resolve, RunStep
from actorproc.model.messages.events import (
    CrashReport,
    Event,
    StepEnded,
    Submitted,
    TypeRegistered,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.messages.outcomes import (
    Advanced,
    Failed,
    Finished,
    Outcome,
    Renewed,
    Slept,
    StepRequests,
    Suspended,
    Waited,
)
from actorproc.model.policies import TypeMeta
from actorproc.model.rows.records import ErrorInfo, NewProcedure, ProcedureRecord
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.rows.writes import PutProcedure, Write
from actorproc.model.states import ProcedureState
from actorproc.testing.histories.image import Image
from tests.simulator.core_sim.restored import compare_with_restored

__all__ = ["OUTCOMES", "CoreHarness", "boom", "difference", "heads_of", "image_of", "later", "outcome_of", "restarted"]

OUTCOMES = [Advanced, Slept, Waited, Finished, Suspended, Renewed]
"""Outcomes of steps that ended well, and may have requests."""


def boom(message: str = "boom", *, retryable: bool = False, after: float | None = None) -> Failed:
    return Failed(error=ErrorInfo("error", "ValueError", message), retryable=retryable, after=after)


def later(message: str = "busy", after: float | None = None) -> Failed:
    return boom(message, retryable=True, after=after)


class CoreHarness:
    """One coordinator with `workers` ready workers and the type ``T`` (traits as given)."""

    def __init__(self, workers: int = 1, **traits: object) -> None:
        snapshot = RecoverySnapshot(1, 1, 1, [], [], [], [], [], [])
        self.core, _ = Coordinator.restore(snapshot, 0.0)
        self.now = 0.0
        self.writes: list[Write] = []
        self.commands: list[Command] = []
        self.inbox: dict[str, RunStep] = {}
        self.order: list[tuple[str, int, str]] = []
        self.register("T", **traits)
        for slot in range(workers):
            self.handle(WorkerReady(WorkerId(slot, 1)))

    def register(self, name: str, **traits: object) -> None:
        self.handle(TypeRegistered(TypeMeta(type_name=name, **traits)))  # type: ignore[arg-type]

    def handle(self, event: Event) -> Decision:
        return self._noted(self.core.handle(event, self.now))

    def answer_all(self, events: Iterable[StepEnded]) -> Decision:
        """Answers that come together, as the commit pipeline has them decided; what was decided last."""
        decision, is_open = Decision([], []), False
        for event in events:
            is_open = self.core.take(event, self.now)
            if not is_open:
                decision = self.handle(event)
        return self._noted(self.core.decide()) if is_open else decision

    def _noted(self, decision: Decision) -> Decision:
        self.writes += decision.writes
        self.commands += decision.commands
        for command in decision.commands:
            if isinstance(command, RunStep):
                self.inbox[command.token.procedure] = command
                self.order.append((command.token.procedure, command.token.step, command.token.mode.name))
        return decision

    def new(self, id: str, type_name: str = "T", **fields: object) -> NewProcedure:
        return NewProcedure(id=id, fresh=True, type_name=type_name, state=b"0", digest=b"d", **fields)  # type: ignore[arg-type]

    def submit(self, *procedures: NewProcedure) -> Reply:
        decision = self.handle(Submitted(procedures, reply=1))
        return next(command for command in decision.commands if isinstance(command, Reply))

    def answer(self, id: str, outcome: Outcome) -> Decision:
        return self.handle(StepEnded(self.inbox.pop(id).token, outcome))

    def kill(self, slot: int, incarnation: int = 1) -> Decision:
        report = CrashReport(kind="signal", message="killed by signal 9 (SIGKILL)", code=-9, signal="SIGKILL")
        return self.handle(WorkerLost(WorkerId(slot, incarnation), report))

    def state(self, id: str) -> ProcedureState:
        record = self.core.view(id)
        assert record is not None
        return record.state

    def undo_all(self) -> list[str]:
        """Answer every rollback as done; the procedures undone, in order."""
        undone = []
        while runs := [run for run in self.inbox.values() if run.token.mode is Mode.ROLLBACK]:
            undone.append(f"{runs[0].token.procedure}:{runs[0].unit}")
            self.answer(runs[0].token.procedure, Finished(state=b"u"))
        return undone

    def resolved(self) -> dict[str, ProcedureState]:
        return {command.id: command.state for command in self.commands if isinstance(command, Resolve)}

    def kills(self) -> list[KillWorker]:
        return [command for command in self.commands if isinstance(command, KillWorker)]


def outcome_of(kind: type[Outcome], harness: CoreHarness, requests: StepRequests | None) -> Outcome:
    """An outcome of this kind, one of `OUTCOMES`."""
    options = {
        Slept: {"seconds": 5.0},
        Waited: {"event": "e"},
        Suspended: {"children": (harness.new("c"),)},
        Renewed: {"fresh": b"0"},
    }.get(kind, {})
    return kind(state=b"1", requests=requests, **options)  # type: ignore[call-arg]


def restarted(harness: CoreHarness, *types: TypeMeta, after: float = 0.0, **options: object) -> CoreHarness:
    """A manager that starts on what this one has stored, `after` seconds later; it has no workers yet."""
    again = CoreHarness(0)
    again.now = harness.now + after
    again.core, decision = Coordinator.restore(image_of(harness).snapshot(), again.now, types=types, **options)  # type: ignore[arg-type]
    again.writes = [*harness.writes, *decision.writes]
    return again


def image_of(harness: CoreHarness) -> Image:
    """What the store would hold."""
    image = Image(RecoverySnapshot(1, 1, 1, [], [], [], [], [], []))
    image.apply(harness.writes)
    return image


def heads_of(harness: CoreHarness) -> dict[str, ProcedureRecord]:
    """The head of each procedure, as written last."""
    return {write.record.id: write.record for write in harness.writes if isinstance(write, PutProcedure)}


def difference(harness: CoreHarness) -> str | None:
    """How memory differs from what a restart would give."""
    return compare_with_restored(harness.core, image_of(harness))
