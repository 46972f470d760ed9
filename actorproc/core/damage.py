"""Trees whose records are incomplete: they stay out of memory, so nothing of them runs and nothing is written over.

A parent, child or undo unit that cannot be read leaves open what a tree still has to do or to undo. The whole tree
is parked then; its locks stay granted, for nobody knows what it left half done. The other trees run.
"""

from __future__ import annotations

from actorproc.core.book import Book
from actorproc.core.tree import Tree
from actorproc.errors import StoreDamaged
from actorproc.model.snapshot import Damage

__all__ = ["error_of", "exclude", "exclude_damaged"]


def exclude_damaged(book: Book, damage: list[Damage]) -> None:
    """Exclude every resident tree in which a record is missing."""
    units = {}
    for found in damage:
        if found.table == "procedures":
            book.damaged[found.key] = f"its record is damaged: {found.reason}"
        elif found.table == "undo":
            units[found.key.rpartition("/")[0]] = f"undo unit {found.key} is damaged: {found.reason}"
    for tree in list(book.trees.values()):
        exclude(book, tree, units.get(tree.root))


def exclude(book: Book, tree: Tree, reason: str | None = None) -> None:
    """Take a tree out of memory when a record of it is missing, or for the reason given."""
    reason = reason or _flaw_of(tree)
    if reason is not None:
        book.damaged.update(dict.fromkeys(tree.members, f"its tree is incomplete: {reason}"))
        book.dismiss(tree)


def error_of(book: Book, procedure: str) -> StoreDamaged | None:
    """Why nothing can be done with a procedure; None when it is sound, or unknown."""
    reason = book.damaged.get(procedure)
    if reason is None:
        return None
    return StoreDamaged(
        f"procedure {procedure} stands still: {reason}", table="procedures", key=procedure, reason=reason
    )


def _flaw_of(tree: Tree) -> str | None:
    if tree.root not in tree.members:
        return f"its root {tree.root} is missing"
    for record in tree.members.values():
        if record.parent is not None and record.parent not in tree.members:
            return f"the parent {record.parent} of {record.id} is missing"
        found = len(tree.children.get(record.id, ()))
        if found != record.children:
            return f"{record.children - found} of the {record.children} children of {record.id} are missing"
    for name in tree.units_of:
        if name not in tree.members:
            return f"{name}, which is to be undone, is missing"
    return None
