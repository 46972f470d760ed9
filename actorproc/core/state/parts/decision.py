"""The decision that is being made: the time of its event, its writes and commands, and the heads that it changed."""

from __future__ import annotations

from actorproc.model.messages.commands import Command, Decision
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.rows.writes import Write

__all__ = ["PendingDecision"]


class PendingDecision:
    """Part of the `EngineState`: empty between two decisions, but for the time."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now
        """Time of the event, in epoch seconds."""
        self.writes: list[Write] = []
        self.commands: list[Command] = []
        self.touched: dict[str, ProcedureRecord] = {}
        """Heads that changed, by procedure: they are written when the decision is closed."""
        self.predecessors: dict[str, ProcedureRecord] = {}
        """Heads of ended roots whose ids are given to new generations, until these have heads of their own."""

    def begin(self, now: float) -> None:
        """Note that an event is decided on at this time."""
        self.now = now

    def touch(self, record: ProcedureRecord) -> None:
        """Note that a head changed: it is written with this decision."""
        self.touched[record.id] = record

    def write(self, write: Write) -> None:
        """Add a write to the decision."""
        self.writes.append(write)

    def command(self, command: Command) -> None:
        """Add a command, to be carried out once the writes are durable."""
        self.commands.append(command)

    def take(self) -> Decision:
        """The decision as it is now; the next one begins with nothing."""
        decision = Decision(self.writes, self.commands)
        self.writes, self.commands = [], []
        self.touched.clear()
        return decision
