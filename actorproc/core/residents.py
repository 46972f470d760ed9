"""Procedures in memory, with what is known of their classes."""

from __future__ import annotations

from actorproc.core.known_limits import KnownLimits
from actorproc.core.tree import Tree
from actorproc.model.policies import TypeMeta
from actorproc.model.records import ProcedureRecord
from actorproc.model.states import TERMINAL

__all__ = ["Residents"]


class Residents:
    """Part of the `Book`: heads, trees and types."""

    def __init__(self) -> None:
        self.procs: dict[str, ProcedureRecord] = {}
        self.trees: dict[str, Tree] = {}
        self.types: dict[str, TypeMeta] = {}
        self.blanks: dict[str, ProcedureRecord] = {}
        """Heads of no procedure by type. New ones are copies of them: half of what it takes to make them by name."""
        self.limits: dict[str, KnownLimits] = {}
        """What each registered class says of the resources of a step."""
        self.parked: dict[str, dict[str, None]] = {}
        """Resident procedures by type that cannot run until the type is registered."""
        self.parkings = 0
        """How often a procedure was parked: who looks after them sees that there is something new."""
        self.open_roots = 0
        """Roots that have not ended, in memory or not."""
        self.damaged: dict[str, str] = {}
        """Procedures that cannot be trusted, with the reason; they are not resident."""
        self.flaws: list[str] = []
        """Damaged records that belong to no procedure, and what is made of them; one sentence each."""
        self.unsettled: dict[str, None] = {}
        """Roots of trees that may leave memory: looked at when what changed them is stored."""

    def tree_of(self, record: ProcedureRecord) -> Tree:
        """The tree of a resident procedure."""
        return self.trees[record.root]

    def meta(self, record: ProcedureRecord) -> TypeMeta | None:
        """What is known of the procedure's class, None while it is not registered."""
        return self.types.get(record.type_name)

    def has_no_return(self, record: ProcedureRecord) -> bool:
        """Whether the tree is past its point of no return. What outlives its root is on its own again."""
        root = self.procs[record.root]
        return root.no_return and root.state not in TERMINAL

    def shows_abort(self, record: ProcedureRecord) -> bool:
        """`Context.aborting` of a step that goes out now: True when an abort was asked and may have an effect."""
        return record.aborting and not record.rolling and not self.has_no_return(record)

    def open_members(self, tree: Tree) -> list[ProcedureRecord]:
        """Members of a tree that have not finished."""
        return [record for record in tree.members.values() if record.state not in TERMINAL]
