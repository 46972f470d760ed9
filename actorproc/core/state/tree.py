"""A tree: a root and everything that ever ran under it. The unit of residency, of lock ownership and of undo."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from actorproc.model.rows.cold_trees import COLD_STATES
from actorproc.model.rows.records import ProcedureRecord, UndoRecord
from actorproc.model.states import TERMINAL

__all__ = ["Tree"]

_MADE_LATER: dict[str, Callable[[], Any]] = {
    "children": dict,
    "held": dict,
    "holders": set,
    "running": set,
    "scopes": dict,
    "units": dict,
    "units_of": dict,
    "waiting": set,
}


class Tree:
    """Resident members of one tree, finished ones included, with the undo units pushed so far.

    A tree is *cold* when every member that has not finished waits for a timer, an event or children: then
    nothing but a timer entry has to stay in memory.
    """

    __slots__ = (
        "batch",
        "children",
        "held",
        "holders",
        "is_bare",
        "lent",
        "members",
        "open",
        "privileged",
        "root",
        "running",
        "scopes",
        "still",
        "undoing",
        "units",
        "units_of",
        "waiting",
    )

    children: dict[str, list[str]]
    """Members by parent, in submit order."""
    units: dict[int, UndoRecord]
    """Undo units by sequence, oldest first."""
    units_of: dict[str, list[UndoRecord]]
    """Units by member, oldest first: a finished member is undone when its last unit is."""
    scopes: dict[str, None]
    """Tops of failure scopes that are being undone, in the order they failed."""
    running: set[str]
    """Members with a step in a worker's hands."""
    waiting: set[str]
    """Members that wait for locks."""
    holders: set[str]
    """Members that hold locks."""
    held: dict[str, OrderedDict[str, None]]
    """Children kept back by `max_parallel`, by parent, in order."""

    def __init__(self, root: str, only: ProcedureRecord | None = None) -> None:
        self.root = root
        self.members: dict[str, ProcedureRecord] = {} if only is None else {only.id: only}
        self.open = 0 if only is None else 1
        """Members that have not finished."""
        self.still: frozenset[str] = frozenset()
        """Members that are not handed out, nor their descendants: paused, or a root that takes its locks again."""
        self.undoing: str | None = None
        """The member that is being undone: one at a time in a tree, whatever the number of failing scopes."""
        self.privileged = False
        """It holds locks, or did when this decision began: its waiters go before those of trees that hold none."""
        self.lent: int | None = None
        """Priority of a procedure that waits for locks of this tree, above that of its root; None: none does."""
        self.batch = 0
        """The last batch that changed the tree."""
        self.is_bare = True
        """Nothing of it was ever asked for but its members and who runs: no children, locks, undo units or scopes."""

    def __getattr__(self, name: str) -> Any:
        # There may be hundreds of thousands that wait for their first step and need none of these: each is made when
        # it is first asked for, and read like any other attribute from then on.
        if name not in _MADE_LATER:
            raise AttributeError(name)
        made = _MADE_LATER[name]()
        setattr(self, name, made)
        self.is_bare = self.is_bare and name == "running"
        return made

    def add(self, record: ProcedureRecord) -> None:
        """A new or loaded member."""
        self.members[record.id] = record
        if record.parent is not None:
            self.children.setdefault(record.parent, []).append(record.id)
        if record.state not in TERMINAL:
            self.open += 1

    def forget(self, procedure: str) -> None:
        """A member that has ended leaves; its place in `children` is the caller's to change."""
        del self.members[procedure]
        self.running.discard(procedure)
        self.holders.discard(procedure)
        self.units_of.pop(procedure, None)
        self.held.pop(procedure, None)

    def hold(self, procedure: str) -> bool:
        """A member holds locks now; True when the tree held none before."""
        self.holders.add(procedure)
        was_privileged, self.privileged = self.privileged, True
        return not was_privileged

    def push(self, unit: UndoRecord) -> None:
        """A new undo unit on top."""
        self.units[unit.seq] = unit
        self.units_of.setdefault(unit.procedure, []).append(unit)

    def exchange_newest(self, unit: UndoRecord) -> None:
        """Another text of the newest unit of its procedure; it keeps its place."""
        self.units[unit.seq] = self.units_of[unit.procedure][-1] = unit

    def pop(self, unit: UndoRecord) -> bool:
        """A unit is done; whether it was the last of its procedure."""
        del self.units[unit.seq]
        left = self.units_of[unit.procedure]
        left.remove(unit)
        if not left:
            del self.units_of[unit.procedure]
        return not left

    def newest_unit(self, top: str, is_skipped: Callable[[ProcedureRecord], bool] | None = None) -> UndoRecord | None:
        """The unit of `top` or its descendants to be undone first, without those of members that are skipped."""
        if top not in self.children:
            units = self.units_of.get(top, ())
            return units[-1] if units and not (is_skipped and is_skipped(self.members[top])) else None
        return next(
            (
                unit
                for unit in reversed(self.units.values())
                if self.is_below(unit.procedure, top) and not (is_skipped and is_skipped(self.members[unit.procedure]))
            ),
            None,
        )

    def next_scope(self) -> str | None:
        """The failing scope whose turn it is: the oldest that stands still, as one member is undone at a time."""
        return next((top for top in self.scopes if not self.runs_below(top)), None)

    def lineage(self, procedure: str) -> tuple[str, ...]:
        """A member and its ancestors, nearest first."""
        chain = []
        place: str | None = procedure
        while place is not None:
            chain.append(place)
            place = self.members[place].parent
        return tuple(chain)

    def scope_of(self, procedure: str) -> str | None:
        """The top of the failing scope a member is in, None when it is in none."""
        return next((name for name in self.lineage(procedure) if name in self.scopes), None)

    def note_still(self, record: ProcedureRecord) -> None:
        """A head that may keep itself and its descendants from running is new, or changed in this respect."""
        if record.paused is not None or record.retaking:
            self.still |= {record.id}
        elif self.still:
            self.still -= {record.id}

    def is_still(self, procedure: str) -> bool:
        """True if a member is not to be handed out."""
        return bool(self.still) and not self.still.isdisjoint(self.lineage(procedure))

    def runs_below(self, top: str) -> bool:
        """True if a step of `top` or of its descendants is in a worker's hands."""
        return any(self.is_below(name, top) for name in self.running)

    def is_below(self, procedure: str, top: str) -> bool:
        """True if a member is `top` or descends from it."""
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
        found = [top]
        for name in found:  # it grows while it is read
            found += self.children.get(name, ())
        return sorted((self.members[name] for name in found), key=lambda record: record.seq)

    @property
    def is_finished(self) -> bool:
        """The root has ended (all others ended before it)."""
        return not self.open

    @property
    def is_cold(self) -> bool:
        """Nothing but a timer, an event or a finished child can move it."""
        if len(self.members) == 1 and not self._sleeps():
            return False  # most that were submitted a moment ago: they need no set of who runs yet
        return not self.running and self._sleeps()

    @property
    def is_cold_when_answered(self) -> bool:
        """As `is_cold`, once a worker has answered for members that ended while it was asked about their abort."""
        return all(self.members[name].state in TERMINAL for name in self.running) and self._sleeps()

    def _sleeps(self) -> bool:
        # A member that is to be asked whether it may be aborted must be there to be asked.
        for record in self.members.values():
            if record.state not in TERMINAL and (record.state not in COLD_STATES or record.aborting):
                return False
        return self.is_bare or not (self.waiting or self.scopes or self.held)
