"""Base of the rules: a journal entry, and a small model of what is durable.

The model is made from the commits of the journal alone and knows nothing of the engine's memory.
"""

from __future__ import annotations

from typing import Any

from actorproc.model.rows.records import ProcedureRecord, StepRecord, UndoRecord
from actorproc.testing.histories.evidence import StoreDump, Violation

__all__ = ["Entry", "Facts", "Judge"]

Entry = tuple[Any, ...]
"""One line of a journal: a kind and its fields."""


class Facts:
    """Durable facts at one place of a journal. Kept up by the pass, read by all judges."""

    def __init__(self) -> None:
        self.heads: dict[str, ProcedureRecord] = {}
        self.records: dict[tuple[str, int], StepRecord] = {}
        self.links: dict[str, dict[tuple[int, int], str]] = {}
        """Children by parent, then by (step, index)."""
        self.units: dict[tuple[str, int], UndoRecord] = {}
        """Undo units by (root, sequence)."""
        self.disturbed = 0
        """Deaths and failed commits so far: a repeated execution must have one between."""
        self.exits: dict[str, set[bytes]] = {}
        """States that complete executions of a procedure gave."""
        self.stale: list[UndoRecord] = []

    def forget(self, id: str) -> None:
        """A finished procedure was removed: its id may be used anew."""
        head = self.heads.pop(id, None)
        self.exits.pop(id, None)
        self.links.pop(id, None)
        for number in range(1, head.records + 1 if head is not None else 1):
            self.records.pop((id, number), None)
        self.stale += [unit for unit in self.units.values() if unit.procedure == id]

    def drop_stale(self) -> None:
        """The commit is read: undo units that went with their procedures go now, as nothing in it names them."""
        for unit in self.stale:
            if self.units.get((unit.root, unit.seq)) is unit:
                del self.units[unit.root, unit.seq]
        self.stale.clear()

    def line(self, id: str) -> list[str]:
        """A procedure and its ancestors, nearest first."""
        line = []
        place: str | None = id
        while place is not None and place in self.heads:
            line.append(place)
            place = self.heads[place].parent
        return line

    def are_related(self, one: str, other: str) -> bool:
        """True if one of two procedures is the other's ancestor, or the other itself."""
        return one in self.line(other) or other in self.line(one)


class Judge:
    """One group of promises. Methods ``on_<kind>`` get the fields of each journal entry of that kind.

    Parts of a commit come one by one, in order: ``head`` (new, one before it), ``record``, ``link``, ``unit``, then
    ``unit_gone``; ``lock``, ``lock_gone``, ``poison``, ``poison_gone``, ``signal_kept``, ``signal_taken`` between
    them; at last ``committed``. The facts are those after that part.
    """

    def __init__(self, facts: Facts, found: list[Violation]) -> None:
        self.facts = facts
        self.found = found

    def say(self, number: int, text: str) -> None:
        """Note a broken promise."""
        self.found.append(Violation(number, text))

    def check_end(self, dump: StoreDump) -> None:
        """The history is over; the store holds this."""
