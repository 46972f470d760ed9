"""Undo units that a rollback skips: those of members that cannot be undone, or for which a parent compensates."""

from __future__ import annotations

from collections.abc import Sequence, Set as AbstractSet

from actorproc.core.state.parts.residents import ResidentSet
from actorproc.core.state.tree import Tree
from actorproc.model.rows.records import ProcedureRecord, UndoRecord
from actorproc.model.states import ProcedureState

__all__ = ["ended_with", "is_left_alone", "is_poisoned", "left_to_undo", "next_to_undo"]


def next_to_undo(residents: ResidentSet, tree: Tree, top_id: str) -> UndoRecord | None:
    """The next unit of a failing scope below its root that is to run, None when none is."""
    return tree.newest_unit(top_id, lambda member: is_left_alone(residents, member, top_id))


def is_poisoned(member: ProcedureRecord) -> bool:
    """It left something half done, and says so."""
    return member.error is not None and member.error.kind == "poisoned"


def is_left_alone(
    residents: ResidentSet, member: ProcedureRecord, top_id: str, opened: AbstractSet[str] = frozenset()
) -> bool:
    """True if a unit does not run: of a poisoned or given up member, or of a finished one its parent compensates.

    `opened`: members that a retry would open again.
    """
    if (member.state is ProcedureState.FAILED and member.id not in opened) or is_poisoned(member):
        return True
    if member.bypassing:
        return True
    place = member
    while place.id != top_id and place.parent is not None:
        parent = residents.procs[place.parent]
        if place.state is ProcedureState.SUCCESS and not parent.undo_children:
            return True
        place = parent
    return False


def ended_with(tree: Tree, root: ProcedureRecord) -> list[ProcedureRecord]:
    """The root, and the members that ended with its failure."""
    return [member for member in tree.members.values() if member is root or member.ended_in == root.run]


def left_to_undo(residents: ResidentSet, tree: Tree, members: Sequence[ProcedureRecord]) -> UndoRecord | None:
    """The unit at which the rollback of a failed root stopped; None when nothing of the tree is left to undo.

    `members`: those that ended with it.
    """
    if tree.is_bare:
        return None
    opened = {member.id for member in members}
    return next(
        (
            unit
            for unit in reversed(tree.units.values())
            if not is_left_alone(residents, residents.procs[unit.procedure], tree.root, opened)
        ),
        None,
    )
