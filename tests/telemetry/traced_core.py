"""The core with a recorder behind it, on one thread and by a virtual clock."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from actorproc.core.coordinator import Coordinator
from actorproc.model.ids import WorkerId
from actorproc.model.messages.commands import Decision
from actorproc.model.messages.events import Event, WorkerReady
from actorproc.model.policies import TypeMeta
from actorproc.model.rows.records import NewProcedure, Trace
from actorproc.telemetry.recorder import traced_part
from actorproc.telemetry.spans import SpanFacts
from actorproc.telemetry.timeline import SpanTimeline
from tests.core.harness import CoreHarness, image_of

__all__ = ["ABOVE", "TracedCore"]

ABOVE = b"t" * 16 + b"a" * 8 + b"\x01"
"""Context of a submitter whose trace is recorded."""


class TracedCore(CoreHarness):
    """Records spans of what is decided; `new` makes traced procedures."""

    def __init__(self, workers: int = 1, **traits: Any) -> None:
        self.timeline = SpanTimeline()
        self.spans: list[SpanFacts] = []
        super().__init__(workers, **traits)

    def handle(self, event: Event) -> Decision:
        decision = super().handle(event)
        self._record(decision, event)
        return decision

    def _record(self, decision: Decision, *events: Event) -> None:
        part = traced_part(decision.writes, decision.commands, events, routine=False)
        if part is not None:
            self.spans += self.timeline.committed(part)

    def new(self, id: str, type_name: str = "T", **fields: Any) -> NewProcedure:
        made = super().new(id, type_name)
        return replace(made, **({"trace": Trace(ABOVE)} | fields))

    def wait(self, seconds: float) -> None:
        """Let time pass; due times are not acted on."""
        self.now += seconds

    def named(self, start: str) -> list[SpanFacts]:
        """The spans recorded so far whose name begins so."""
        return [span for span in self.spans if span.name.startswith(start)]

    def one(self, start: str) -> SpanFacts:
        """The only one of them."""
        (span,) = self.named(start)
        return span

    def restarted(self, after: float = 0.0) -> TracedCore:
        """A manager that starts on what this one has stored; it has one worker."""
        again = TracedCore(0)
        again.now = self.now + after
        snapshot = image_of(self).snapshot()
        again.timeline.recovered(snapshot.procedures)
        again.core, decision = Coordinator.restore(snapshot, again.now, types=(TypeMeta(type_name="T"),))
        again.writes = [*self.writes, *decision.writes]
        again._record(again._noted(decision))
        again.handle(WorkerReady(WorkerId(0, 1)))
        return again
