"""Reads of procedures and their trees, which are part of each store's reading half."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from actorproc.model.rows.asks import AskKey, ReplyRecord
from actorproc.model.rows.records import (
    AttemptRecord,
    AuditRecord,
    ChildRecord,
    ExposedRecord,
    NoteRecord,
    ProcedureRecord,
    StepRecord,
    UndoRecord,
)
from actorproc.model.rows.snapshot import FinishedTree

__all__ = ["ProcedureReads"]


class ProcedureReads(Protocol):
    """Methods that read single procedures and whole trees. `RecordStore` says what holds for each of them."""

    def procedure(self, id: str, *, removed: bool = False) -> ProcedureRecord | None:
        """The head of a procedure.

        Args:
            id: The procedure.
            removed: Find also a member of a tree that is half removed. Default: False.

        Returns:
            The head; None when it is unknown.

        Raises:
            StoreDamaged: The record cannot be trusted.
        """
        ...

    def procedures(self, ids: Sequence[str]) -> list[ProcedureRecord]:
        """The heads of several procedures, as `procedure` gives one.

        Args:
            ids: The procedures.

        Returns:
            The heads of those that are known, in the order of the ids.

        Raises:
            StoreDamaged: A record cannot be trusted.
        """
        ...

    def tree(self, root: str) -> tuple[list[ProcedureRecord], list[UndoRecord]]:
        """A tree, with what undoes it.

        Args:
            root: The root.

        Returns:
            All heads in submit order, the root first, and the undo units, oldest first.

        Raises:
            StoreDamaged: A record cannot be trusted.
        """
        ...

    def newest_debounced(self, key: str) -> str | None:
        """The newest run of a debounce key, as `NewProcedure.debounce` says.

        Args:
            key: The key.

        Returns:
            The id of the root of this key that was submitted last; None when there is none whose head is sound.
        """
        ...

    def step(self, id: str, number: int) -> StepRecord | None:
        """One record of the step log.

        Args:
            id: The procedure.
            number: Number of the step.

        Returns:
            The record; None when there is none.

        Raises:
            StoreDamaged: The record cannot be trusted.
        """
        ...

    def states(self, wanted: Sequence[tuple[str, int]]) -> dict[tuple[str, int], StepRecord]:
        """Several records of step logs, as `step` gives one, read at once.

        Args:
            wanted: Ids of procedures, each with the number of a step.

        Returns:
            The records by id and number. Those that are missing or damaged are left out; `step` says which it is.
        """
        ...

    def ending(self, id: str) -> tuple[ProcedureRecord, StepRecord | None] | None:
        """The end of a procedure.

        Args:
            id: The procedure.

        Returns:
            The head and the closing record; None when it has not ended, or is unknown.

        Raises:
            StoreDamaged: A record cannot be trusted.
        """
        ...

    def steps(self, id: str) -> list[StepRecord]:
        """The step log of a procedure.

        Args:
            id: The procedure.

        Returns:
            The records in order of number.

        Raises:
            StoreDamaged: A record cannot be trusted.
        """
        ...

    def children(self, parent: str, step: int | None = None) -> list[ChildRecord]:
        """Links to the children of a procedure.

        Args:
            parent: The procedure.
            step: Number of a step; only its children. Default: None, those of all.

        Returns:
            The links in order of step and index.

        Raises:
            StoreDamaged: A record cannot be trusted.
        """
        ...

    def notes(self, id: str, step: int | None = None) -> list[NoteRecord]:
        """Write-ahead notes of a procedure (`Context.remember`).

        Args:
            id: The procedure.
            step: Number of a step; only its notes. Default: None, those of all.

        Returns:
            The notes.

        Raises:
            StoreDamaged: A record cannot be trusted.
        """
        ...

    def attempts(self, id: str, step: int | None = None) -> list[AttemptRecord]:
        """Failed attempts of a procedure.

        Args:
            id: The procedure.
            step: Number of a step; only its attempts. Default: None, those of all.

        Returns:
            The attempts in order of time, the newest `ATTEMPTS_KEPT` of each step.

        Raises:
            StoreDamaged: A record cannot be trusted.
        """
        ...

    def exposed(self, ids: Sequence[str]) -> dict[str, list[ExposedRecord]]:
        """Values that procedures have shown (`Context.expose`), in one snapshot. Damaged ones are left out.

        Args:
            ids: The procedures.

        Returns:
            The values in order of their keys; procedures without any are left out.
        """
        ...

    def replies(self, id: str, ask: AskKey | None = None) -> list[ReplyRecord]:
        """Replies of a procedure to asks (`Context.reply`).

        Args:
            id: The procedure.
            ask: Only the reply to this one. Default: None, all.

        Returns:
            The replies in order of their keys.
        """
        ...

    def audit(self, target: str) -> list[AuditRecord]:
        """Requests of operators.

        Args:
            target: The procedure; "": the manager.

        Returns:
            The requests, oldest first.

        Raises:
            StoreDamaged: A record cannot be trusted.
        """
        ...

    def finished(
        self,
        *,
        before: float | None = None,
        limit: int | None = None,
        after: tuple[str, float] | None = None,
        reverse: bool = False,
    ) -> list[tuple[str, float]]:
        """Finished roots and the times of their ends: the rows that retention looks at.

        Trees that are half removed are not listed.

        Args:
            before: Epoch seconds; leave out roots that finished then or later. Default: None.
            limit: Greatest number of roots. Default: None, all.
            after: A root and its time; go on behind it. Default: None.
            reverse: The last finished come first, in place of the longest finished. Default: False.

        Returns:
            Id and epoch seconds of each.
        """
        ...

    def finished_tree(self, root: str, limit: int) -> FinishedTree | None:
        """A tree as its removal needs it.

        Args:
            root: The root.
            limit: Greatest number of members.

        Returns:
            The tree; None when there is no such root.

        Raises:
            StoreDamaged: A record cannot be trusted.
        """
        ...

    def finished_trees(self, roots: Sequence[str], limit: int) -> list[FinishedTree | None]:
        """Several trees, as `finished_tree` gives one, read at once.

        Args:
            roots: The roots.
            limit: Greatest number of members of one tree. With this many in all, no further tree is read.

        Returns:
            The trees in the order of the roots, at least one; None for a root that is not there.

        Raises:
            StoreDamaged: A record of the first tree cannot be trusted. A later damaged tree ends the list before it.
        """
        ...

    def removed_members(self, root: str, limit: int | None) -> tuple[list[ProcedureRecord], bool]:
        """Remaining members of a half removed tree, the latest ones.

        Args:
            root: The root.
            limit: Greatest number of members; None: all.

        Returns:
            The heads, and True if there are more.

        Raises:
            StoreDamaged: A record cannot be trusted.
        """
        ...

    def place_of(self, id: str, number: int) -> str | None:
        """The file that holds the long field of a record of the step log, from its beginning.

        Another process of this user may map it as long as the record is there.

        Args:
            id: The procedure.
            number: Number of the step.

        Returns:
            Path of the file; None when there is none.
        """
        ...
