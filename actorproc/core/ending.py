"""How a procedure ends: its closing record, its locks, its parent's latch, its handles."""

from __future__ import annotations

from actorproc.core import locking
from actorproc.core.book import Book
from actorproc.core.children import finished, is_due, release
from actorproc.core.lifecycle import Trigger, move
from actorproc.core.queueing import wake
from actorproc.core.tree import Tree
from actorproc.model.commands import Resolve
from actorproc.model.records import ProcedureRecord, StepKind, StepRecord
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.model.writes import DeletePoison, DeleteUndo, PutStep

__all__ = ["close_unsuccessfully", "end", "end_when_children_have", "forget_listening", "update_poisons"]


def end(book: Book, record: ProcedureRecord, trigger: Trigger) -> None:
    """Move a procedure to a terminal state and settle what hangs on it, in this one decision.

    The closing record must have been written by the caller in the same decision.
    """
    tree = book.tree_of(record)
    was_open = record.state not in TERMINAL
    move(record, trigger)
    record.finished_at = book.now
    record.due_at = None
    record.parked = None
    record.failing = False
    record.undoing = 0
    record.payload = None
    record.pending = 0
    record.ending = False
    forget_listening(book, record)
    book.ready.discard(record.id)
    book.warm.pop(record.id, None)
    book.asking.pop(record.id, None)
    tree.scopes.pop(record.id, None)
    if tree.undoing == record.id:
        tree.undoing = None
    if tree.undoing is None and (top := tree.next_scope()) is not None:
        book.scopes_to_advance[top] = None
    left_behind = tree.held.pop(record.id, ())
    book.touch(record)
    if was_open:
        tree.open -= 1
    locking.withdraw(book, record)
    _pass_on_locks(book, record)
    if record.state is not ProcedureState.FAILED:
        update_poisons(book, record, ())
    book.command(Resolve(record.id, record.state))
    if record.parent is not None and was_open:
        _tell_parent(book, record)
    for name in left_behind:
        wake(book, book.procs[name])
    if not tree.open:
        _close_tree(book, tree)


def close_unsuccessfully(book: Book, record: ProcedureRecord, trigger: Trigger) -> None:
    """Write the closing ``.rollback`` record with the error, then end."""
    record.records += 1
    outcome = "rolledback" if trigger is Trigger.UNDONE else "failed"
    book.write(
        PutStep(
            StepRecord(
                procedure=record.id,
                number=record.records,
                kind=StepKind.ROLLBACK,
                at=book.now,
                version=record.version,
                outcome=outcome,
                error=record.error,
            )
        )
    )
    end(book, record, trigger)


def forget_listening(book: Book, record: ProcedureRecord) -> None:
    """The procedure waits for no event any more."""
    if record.event is not None:
        waiting = book.listeners.get(record.event)
        if waiting is not None:
            waiting.pop(record.id, None)
            if not waiting:
                del book.listeners[record.event]
        record.event = None


def update_poisons(book: Book, record: ProcedureRecord, keys: tuple[str, ...]) -> None:
    """Poison keys a procedure sets around risky steps: the difference goes into this decision."""
    from actorproc.core.failing import poison  # noqa: PLC0415 - failing builds on ending

    for path in record.poisons:
        if path not in keys and (known := book.poisons.get(path)) is not None and known.by == record.id:
            del book.poisons[path]
            book.write(DeletePoison(path))
    for path in keys:
        if path not in book.poisons:
            poison(book, path, record, "set by poison_keys() before a risky step")
    record.poisons = keys


def _pass_on_locks(book: Book, record: ProcedureRecord) -> None:
    parent = book.procs[record.parent] if record.parent is not None else None
    keeps = parent is not None and record.state is ProcedureState.SUCCESS and parent.undo_children
    while parent is not None and parent.state in TERMINAL:  # it left this one behind when it ended
        parent = book.procs[parent.parent] if parent.parent is not None else None
    if keeps and parent is not None:
        locking.inherit(book, record, parent)
    else:
        locking.release(book, record)


def _close_tree(book: Book, tree: Tree) -> None:
    """Undo units of a tree that has ended are of no use; those of a failed root serve `retry`."""
    if book.procs[tree.root].state is ProcedureState.FAILED:
        return
    for seq in tree.units:
        book.write(DeleteUndo(tree.root, seq))
    tree.units.clear()
    tree.units_of.clear()


def _tell_parent(book: Book, child: ProcedureRecord) -> None:
    """Count the child off at its parent; who waits for it is woken (HBase's latch)."""
    assert child.parent is not None
    parent = book.procs[child.parent]
    if parent.state in TERMINAL:
        return
    parent.pending -= 1
    if child.state is ProcedureState.SUCCESS:
        parent.succeeded += 1
    else:
        parent.failed += 1
    child.ended_as = finished(parent)
    book.touch(parent)
    if parent.rolling:
        return
    release(book, parent)
    if parent.state is not ProcedureState.WAITING or parent.event is not None:
        return
    if parent.ending:
        if not parent.pending:
            move(parent, Trigger.CHILDREN_DONE)
            end(book, parent, Trigger.FINISHED)
    elif is_due(parent):
        parent.seen = finished(parent)
        move(parent, Trigger.CHILDREN_DONE)
        wake(book, parent)


def end_when_children_have(book: Book, record: ProcedureRecord) -> None:
    """It said done while children are outstanding, and takes them along: abort them, and end with the last."""
    record.ending = True
    move(record, Trigger.SUSPENDED)
    book.touch(record)
    book.orphaned[record.id] = None
