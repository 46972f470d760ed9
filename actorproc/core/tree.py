"""A tree: a root and everything that ever ran under it. The unit of residency, of lock ownership and of undo."""

from __future__ import annotations

from collections import deque

from actorproc.model.records import ProcedureRecord, UndoRecord
from actorproc.model.states import TERMINAL, ProcedureState

__all__ = ["Tree"]

_COLD = frozenset({ProcedureState.WAITING, ProcedureState.WAITING_TIMEOUT})


class Tree:
    """Resident members of one tree, finished ones included, with the undo units pushed so far.

    A tree is *cold* when every member that has not finished waits for a timer, an event or children: then
    nothing but a timer entry has to stay in memory.
    """

    __slots__ = (
        "batch",
        "held",
        "holders",
        "members",
        "open",
        "root",
        "running",
        "scopes",
        "undoing",
        "unit_counts",
        "units",
        "waiting",
    )

    def __init__(self, root: str) -> None:
        self.root = root
        self.members: dict[str, ProcedureRecord] = {}
        self.open = 0
        """Members that have not finished."""
        self.units: dict[int, UndoRecord] = {}
        """Undo units by sequence, oldest first."""
        self.unit_counts: dict[str, int] = {}
        """Units per member: a finished member is undone when its last unit is."""
        self.scopes: set[str] = set()
        """Tops of failure scopes that are being undone."""
        self.running: set[str] = set()
        """Members with a step in a worker's hands."""
        self.undoing: str | None = None
        """The member that is being undone: one at a time in a tree, whatever the number of failing scopes."""
        self.waiting: set[str] = set()
        """Members that wait for locks."""
        self.holders: set[str] = set()
        """Members that hold locks."""
        self.held: dict[str, deque[str]] = {}
        """Children kept back by `max_parallel`, by parent, in order."""
        self.batch = 0
        """The last batch that changed the tree."""

    def add(self, record: ProcedureRecord) -> None:
        """A new or loaded member."""
        self.members[record.id] = record
        if record.state not in TERMINAL:
            self.open += 1

    def push(self, unit: UndoRecord) -> None:
        """A new undo unit on top."""
        self.units[unit.seq] = unit
        self.unit_counts[unit.procedure] = self.unit_counts.get(unit.procedure, 0) + 1

    def pop(self, unit: UndoRecord) -> bool:
        """A unit is done; whether it was the last of its procedure."""
        del self.units[unit.seq]
        left = self.unit_counts[unit.procedure] - 1
        if left:
            self.unit_counts[unit.procedure] = left
        else:
            del self.unit_counts[unit.procedure]
        return not left

    def lineage(self, procedure: str) -> tuple[str, ...]:
        """A member and its ancestors, nearest first."""
        chain = []
        place: str | None = procedure
        while place is not None:
            chain.append(place)
            place = self.members[place].parent
        return tuple(chain)

    def runs_below(self, top: str) -> bool:
        """Whether a step of `top` or of its descendants is in a worker's hands."""
        return any(self.is_below(name, top) for name in self.running)

    def is_below(self, procedure: str, top: str) -> bool:
        """Whether a member is `top` or descends from it."""
        place: str | None = procedure
        while place is not None:
            if place == top:
                return True
            place = self.members[place].parent
        return False

    def below(self, top: str) -> list[ProcedureRecord]:
        """`top` and its descendants, in submit order (parents before their children)."""
        if top == self.root:
            return list(self.members.values())
        inside = {top}
        found = []
        for record in self.members.values():
            if record.id == top or record.parent in inside:
                inside.add(record.id)
                found.append(record)
        return found

    @property
    def is_finished(self) -> bool:
        """The root has ended (all others ended before it)."""
        return not self.open

    @property
    def is_cold(self) -> bool:
        """Nothing but a timer, an event or a finished child can move it."""
        if self.running or self.waiting or self.scopes or self.held:
            return False
        # A member that is to be asked whether it may be aborted must be there to be asked.
        return all(
            record.state in _COLD and not record.aborting
            for record in self.members.values()
            if record.state not in TERMINAL
        )
