"""What a member asks for when it asks for locks, and whose locks are no obstacle to it."""

from __future__ import annotations

from collections.abc import Iterable

from actorproc.core.book import Book
from actorproc.core.lock_table import Request
from actorproc.core.tree import Tree
from actorproc.model.records import ProcedureRecord

__all__ = ["could_undo_now", "put_off", "request_of"]


def request_of(tree: Tree, record: ProcedureRecord, *, is_undo: bool) -> Request:
    """What a member asks for now: all its keys, or for a retried root all that its tree held."""
    line = tree.lineage(record.id)
    return _request(tree, record, _with_still(tree, line) if is_undo else line, is_undo=is_undo)


def could_undo_now(book: Book, record: ProcedureRecord) -> bool:
    """Whether the locks for the undo of a step are there already, or would be granted at once."""
    if record.lock_scope != "step" or not record.locks:
        return True
    return book.locks.is_free(request_of(book.tree_of(record), record, is_undo=True))


def put_off(book: Book, tree: Tree) -> dict[str, Request]:
    """Undos that let another go first because they cannot have their locks, with what they would ask for."""
    tops = [top for top in tree.scopes if top in book.stalled]
    if not tops or tree.undoing not in tree.waiting:
        return {}
    still = _with_still(tree, ())
    found = {}
    for unit in [unit for top in tops if (unit := tree.newest_unit(top)) is not None]:
        record = tree.members[unit.procedure]
        request = _request(tree, record, still.union(tree.lineage(record.id)), is_undo=True)
        if record.lock_scope == "step" and not book.locks.is_free(request):
            found[record.id] = request
    return found


def _with_still(tree: Tree, line: tuple[str, ...]) -> set[str]:
    """Whose locks are no obstacle to an undo: of its ancestors, and of the failing scopes that stand still."""
    still = [top for top in tree.scopes if top in line or not tree.runs_below(top)]
    return {*line, *(member.id for top in still for member in tree.below(top))}


def _request(tree: Tree, record: ProcedureRecord, kin: Iterable[str], *, is_undo: bool) -> Request:
    return Request(
        record.id,
        record.root,
        record.retaking or record.locks,
        frozenset(kin),
        record.ticket,
        privileged=bool(tree.holders),
        ahead=is_undo,
        parent=record.parent,
    )
