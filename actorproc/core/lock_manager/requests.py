"""Lock requests of a member, and the owners whose locks are no obstacle to it."""

from __future__ import annotations

from collections.abc import Iterable

from actorproc.core.locks.request import LockRequest
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.locks import LockState
from actorproc.core.state.tree import Tree
from actorproc.core.state.undo_order import next_to_undo
from actorproc.model.rows.records import ProcedureRecord

__all__ = ["could_undo_now", "put_off", "request_of"]


def request_of(tree: Tree, record: ProcedureRecord, *, is_undo: bool) -> LockRequest:
    """Request of a member for now: all its keys, or for a retried root all that its tree held."""
    line = tree.lineage(record.id)
    if not is_undo:
        return _request(tree, record, line, is_undo=False)
    # Its ancestors, and the failing scopes that stand still, whatever these come to hold while it waits.
    still = [top for top in tree.scopes if top in line or not tree.runs_below(top)]
    return _request(tree, record, {*line, *(member.id for top in still for member in tree.below(top))}, is_undo=True)


def could_undo_now(state: EngineState, record: ProcedureRecord) -> bool:
    """True if the locks for the undo of a step are there already, or would be granted at once."""
    tree = state.residents.tree_of(record)
    return _ungranted(state.locks, tree, record, _holders_that_stand_still(tree)) is None


def put_off(state: EngineState, root: str) -> dict[str, LockRequest]:
    """Undos of a tree that let another go first because they cannot have their locks, with what they would ask for.

    Of siblings that hold nothing and need the same there is one: they wait for the same.
    """
    tree = state.residents.trees.get(root)
    if tree is None or tree.undoing not in tree.waiting:
        return {}
    still = _holders_that_stand_still(tree)
    found, seen = {}, set()
    for top in tree.scopes:
        unit = next_to_undo(state.residents, tree, top) if top in state.follow_ups.stalled else None
        if unit is None:
            continue
        record = tree.members[unit.procedure]
        kin = record.id if top in tree.children or record.id in tree.holders else record.parent
        likeness = (kin, record.lock_scope, record.locks)
        if likeness in seen:
            continue
        seen.add(likeness)
        request = _ungranted(state.locks, tree, record, still)
        if request is not None:
            found[record.id] = request
    return found


def _ungranted(locks: LockState, tree: Tree, record: ProcedureRecord, still: set[str]) -> LockRequest | None:
    """Locks that an undo would ask for now and would have to wait for."""
    if record.lock_scope != "step" or not record.locks:
        return None
    request = _request(tree, record, {*tree.lineage(record.id), *still}, is_undo=True)
    return None if locks.table.is_free(request) else request


def _holders_that_stand_still(tree: Tree) -> set[str]:
    """Holders of locks in failing scopes without a running step: they are no obstacle to an undo."""
    tops = {name: tree.scope_of(name) for name in tree.holders} if tree.scopes else {}
    still = {top: not tree.runs_below(top) for top in tops.values() if top is not None}
    return {name for name, top in tops.items() if top is not None and still[top]}


def _request(tree: Tree, record: ProcedureRecord, kin: Iterable[str], *, is_undo: bool) -> LockRequest:
    return LockRequest(
        record.id,
        record.root,
        record.retaking or record.locks,
        frozenset(kin),
        record.ticket,
        privileged=tree.privileged or is_undo,
        ahead=is_undo,
        parent=record.parent,
    )
