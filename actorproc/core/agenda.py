"""The decision that is being made: what is left to do for it, and what it stores and sets off."""

from __future__ import annotations

from actorproc.model.commands import Command
from actorproc.model.records import ProcedureRecord
from actorproc.model.writes import Write

__all__ = ["Agenda"]


class Agenda:
    """Part of the `Book`: empty between two decisions, but for `asking` and `stalled`."""

    def __init__(self) -> None:
        self.scopes_to_advance: dict[str, None] = {}
        """Tops of failure scopes to look at again."""
        self.retaken: dict[str, None] = {}
        """Retried roots whose trees hold again what they held: their members go on."""
        self.bereft: dict[str, None] = {}
        """Trees that gave up the last lock they held."""
        self.victims: dict[str, list[str]] = {}
        """Roots to fail for a cycle of lock waiting, with the cycle."""
        self.refused: dict[str, str] = {}
        """Procedures that asked for a poisoned key, with that key."""
        self.orphaned: dict[str, None] = {}
        """Procedures that end and whose outstanding children are to be aborted."""
        self.outlived: dict[str, None] = {}
        """Procedures that go on without their root, and were asked to abort when there was no way back for it."""
        self.overdue: dict[str, None] = {}
        """Procedures that were to be handed out after their deadline."""
        self.stalled: dict[str, frozenset[str]] = {}
        """Tops of failure scopes whose turn waits for locks that others hold, while another undo waits as well; with
        the scopes of the tree that stood still then."""
        self.searches: dict[str, None] = {}
        """Trees in which the undo under way may have come into a cycle of waiting: a scope stalled, or was bypassed."""
        self.asking: dict[str, None] = {}
        """Procedures to be asked whether they may be aborted."""
        self.writes: list[Write] = []
        self.commands: list[Command] = []
        self._touched: dict[str, ProcedureRecord] = {}

    def touch(self, record: ProcedureRecord) -> None:
        """The head changed: it will be written with this decision."""
        self._touched[record.id] = record

    def write(self, write: Write) -> None:
        """Add a write to the decision."""
        self.writes.append(write)

    def command(self, command: Command) -> None:
        """Add a command, to be carried out once the writes are durable."""
        self.commands.append(command)
