"""Procedures that cannot end because one of their tree is parked, and which one that is.

A parked procedure keeps others from ending: a parent that waits for it, and a tree whose next undo it is. It also
blocks siblings that wait behind it for a lock or for `max_parallel`. Nothing is decided here: callers are told.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from itertools import islice
from typing import NamedTuple

from actorproc.core.locks.view import LockView
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.types import KnownTypes
from actorproc.core.state.tree import Tree
from actorproc.model.names import no_class_registered
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import TERMINAL, ProcedureState

__all__ = ["Parked", "obstacle_of", "obstacle_of_stored", "parked_residents"]

_BLOCKERS = 50
"""Procedures in the way of a lock that are looked at."""


class Parked(NamedTuple):
    """A procedure that is parked."""

    record: ProcedureRecord
    reason: str
    is_unknown: bool
    """Its class is not registered; else the class was not able to take its state, or no worker to run it."""


def parked_residents(state: EngineState) -> Iterator[Parked]:
    """Procedures in memory that are parked."""
    for name in {name: None for names in state.types.parked.values() for name in names}:  # some stand under two types
        record = state.residents.procs.get(name)
        found = _parked(record, state.types.metas) if record is not None else None
        if found is not None:
            yield found


def obstacle_of(state: EngineState, procedure: str) -> Parked | None:
    """The parked procedure that keeps a resident one from ending; None when nothing of its tree does."""
    record = state.residents.procs.get(procedure)
    if record is None:
        return None
    return _Search(state.residents.trees[record.root], state.types.metas, state.locks.table).of(record)


def obstacle_of_stored(types: KnownTypes, procedure: str, members: Iterable[ProcedureRecord]) -> Parked | None:
    """The same for a tree that is not in memory, as the store has it."""
    found = {record.id: record for record in members}
    if procedure not in found:
        return None
    tree = Tree(found[procedure].root)
    for record in found.values():
        tree.add(record)
    return _Search(tree, types.metas, None).of(found[procedure])


def _parked(record: ProcedureRecord, types: Collection[str]) -> Parked | None:
    """The procedure, if it is parked itself."""
    if record.state in TERMINAL and not record.undoing:
        return None
    is_unknown = record.type_name not in types
    if record.parked is not None:
        return Parked(record, record.parked, is_unknown)
    return Parked(record, no_class_registered(record.type_name, types), is_unknown) if is_unknown else None


class _Search:
    """One look at a tree; each member is looked at once."""

    def __init__(self, tree: Tree, types: Collection[str], locks: LockView | None) -> None:
        self._tree = tree
        self._types = types
        self._locks = locks
        # A tree is told apart from one that has more than a single member by what was never asked of it.
        self._below: Mapping[str, list[str]] = {} if tree.is_bare else tree.children
        self._held: Mapping[str, Collection[str]] = {} if tree.is_bare else tree.held
        self._seen: dict[str, Parked | None] = {}

    def of(self, record: ProcedureRecord) -> Parked | None:
        """The parked member that keeps this one from ending."""
        if record.id not in self._seen:
            self._seen[record.id] = None  # what waits for itself in a circle is no matter of this
            self._seen[record.id] = self._found(record)
        return self._seen[record.id]

    def _found(self, record: ProcedureRecord) -> Parked | None:
        if record.state in TERMINAL and not record.undoing:
            return None
        if record.rolling or record.undoing:
            # One member of a tree is undone at a time: all others wait for that one.
            undone = self._tree.undoing
            return None if undone is None else _parked(self._tree.members[undone], self._types)
        if (own := _parked(record, self._types)) is not None:
            return own
        if record.bypassing or record.ending:
            return self._first(self._children(record))
        if record.state is ProcedureState.WAITING and record.event is None:
            return self._awaited(record)
        if record.state is not ProcedureState.RUNNABLE or not self._below:
            return None
        return self._kept_back(record) or self._locked_out(record)

    def _awaited(self, record: ProcedureRecord) -> Parked | None:
        """It waits for all its children, or for the first of them that ends."""
        children = self._children(record)
        if record.wait == "all":
            return self._first(children)
        held = self._held.get(record.id, ())
        begun = [child for child in children if child.id not in held]
        return self._first(begun) if begun and all(self.of(child) for child in begun) else None

    def _kept_back(self, record: ProcedureRecord) -> Parked | None:
        """`max_parallel` of its parent keeps it back until one of its siblings ends."""
        if record.parent is None:
            return None
        held = self._held.get(record.parent, ())
        if record.id not in held:
            return None
        siblings = self._children(self._tree.members[record.parent])
        begun = [child for child in siblings if child.id not in held]
        return self._first(begun) if begun and all(self.of(child) for child in begun) else None

    def _locked_out(self, record: ProcedureRecord) -> Parked | None:
        """A relative has a lock that it waits for."""
        if self._locks is None or not self._locks.is_waiting(record.id):
            return None
        members = self._tree.members
        blockers = islice(self._locks.blockers(record.id), _BLOCKERS)
        return self._first([members[name] for name in blockers if name in members])

    def _children(self, record: ProcedureRecord) -> list[ProcedureRecord]:
        """Members that have not ended."""
        members = (self._tree.members[name] for name in self._below.get(record.id, ()))
        return [child for child in members if child.state not in TERMINAL]

    def _first(self, records: Iterable[ProcedureRecord]) -> Parked | None:
        return next(filter(None, map(self.of, records)), None)
