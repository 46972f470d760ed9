"""Batch of decisions made since the last batch was closed: one batch is one commit."""

from __future__ import annotations

from actorproc.model.messages.commands import Command, Decision
from actorproc.model.messages.events import Event
from actorproc.model.policies import Scheduling
from actorproc.model.rows.records import StepRecord
from actorproc.model.rows.writes import PutProcedure, PutStep, Write

__all__ = ["CommitBatch"]


class CommitBatch:
    """Writes for the store, commands for after the commit, and the events, kept to be handled again if it fails."""

    __slots__ = (
        "_heads",
        "_steps",
        "commands",
        "events",
        "fence",
        "is_routine",
        "number",
        "scheduling",
        "sealed",
        "started",
        "writes",
    )

    def __init__(self) -> None:
        self.number = 0
        """Number of this commit in the store."""
        self.fence = 0
        """Fence of the attempts that it hands out (`Context.fence`)."""
        self.sealed = 0
        """Number of this batch in the core."""
        self.events: list[Event] = []
        self.writes: list[Write] = []
        self.commands: list[Command] = []
        self.is_routine = True
        """It comes of answers alone that bring no children: nothing in it is a first record, or removed."""
        self.scheduling: Scheduling | None = None
        """Scheduling of the workers from this batch on; None: unchanged."""
        self.started = False
        """It was asked to be closed: at once, or by the marker in the inbox."""
        self._heads: dict[str, PutProcedure] | None = None
        self._steps: dict[tuple[str, int], StepRecord] | None = None

    def add(self, decision: Decision) -> None:
        """Append what something else than a step's answer led to."""
        self.is_routine = False
        self.writes += decision.writes
        self.commands += decision.commands

    @property
    def empty(self) -> bool:
        """Nothing happened since it was opened."""
        return not (self.events or self.writes or self.commands)

    def step(self, procedure: str, number: int) -> StepRecord | None:
        """A step record this batch wrote; saves reading back what was just committed."""
        if self._steps is None:
            self._steps = {
                (write.record.procedure, write.record.number): write.record
                for write in self.writes
                if type(write) is PutStep
            }
        return self._steps.get((procedure, number))

    def head(self, procedure: str) -> PutProcedure | None:
        """The last write of this head in the batch."""
        if self._heads is None:
            self._heads = {write.record.id: write for write in self.writes if type(write) is PutProcedure}
        return self._heads.get(procedure)
