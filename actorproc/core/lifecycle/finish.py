"""End of a procedure: its closing record, its locks, its parent's latch, its handles."""

from __future__ import annotations

from collections.abc import Iterable

from actorproc.core.lifecycle.children import finished, is_due, leave_held, release
from actorproc.core.lock_manager import acquire
from actorproc.core.lock_manager.poison import take_back_all, update_poisons
from actorproc.core.scheduler.pick import keep_nothing, leave_limits
from actorproc.core.scheduler.schedule import go_on, wake
from actorproc.core.state import head, signal_ids
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.follow_ups import FollowUps
from actorproc.core.state.parts.signals import SignalBuffer
from actorproc.core.state.rollback_record import write_rollback
from actorproc.core.state.skipped_undo import has_own
from actorproc.core.state.transitions import Trigger, move
from actorproc.core.state.tree import Tree
from actorproc.model.messages.commands import Resolve
from actorproc.model.rows.records import ProcedureRecord, StepKind, StepRecord
from actorproc.model.rows.writes import DeleteUndo, PutStep
from actorproc.model.states import TERMINAL, ProcedureState

__all__ = [
    "close_bypassed",
    "close_tree",
    "close_unsuccessfully",
    "end",
    "forget_listening",
    "has_given_up",
    "is_open",
    "settle_bypass",
    "tell_parent",
]

# Looked up once: CPython 3.11 runs Python code for every member that is taken from its enum.
_SUCCESS, _FAILED, _WAITING = ProcedureState.SUCCESS, ProcedureState.FAILED, ProcedureState.WAITING
_CHILDREN_DONE = Trigger.CHILDREN_DONE


def end(state: EngineState, record: ProcedureRecord, trigger: Trigger) -> None:
    """Move a procedure to a terminal state and settle what hangs on it, in this one decision.

    The closing record must have been written by the caller in the same decision.
    """
    tree = state.residents.tree_of(record)
    was_open = record.state not in TERMINAL
    move(record, trigger)
    record.finished_at = state.decision.now
    head.wait_no_longer(record)
    record.parked = None
    record.failing = False
    record.undoing = 0
    if record.state is _SUCCESS or not (record.ended_in or record.state is _FAILED):
        # Else a retry of the root goes on with the signal that was taken, and hears no other of the same id.
        record.payload = None
        signal_ids.forget(state, record.id)
    record.pending = 0
    record.ending = False
    record.bypassing = False
    record.paused = None
    record.retaking = ()
    was_still = record.id in tree.still
    tree.note_still(record)
    forget_listening(state.signals, record)
    state.queues.run_queue.discard(record.id)
    state.workers.warm.pop(record.id, None)
    state.follow_ups.asking.pop(record.id, None)
    state.workers.suspects.discard(record.id)
    left_behind = () if tree.is_bare else _leave_scopes(state.follow_ups, tree, record)
    state.decision.touch(record)
    if was_open:
        tree.open -= 1
    _note_left_open(state, tree, record)
    acquire.withdraw(state, record)
    if record.admitted:
        leave_limits(state, record)
    # Its poison before its locks: who may not have a key any more must not be given it.
    if record.state is not _FAILED and not has_own(record):
        _take_back_poison(state, record)
    _pass_on_locks(state, record)
    state.decision.command(Resolve(record.id, record.state))
    if record.parent is not None and was_open:
        tell_parent(state, record)
    for name in left_behind:
        wake(state, state.residents.procs[name])
    if was_still:
        go_on(state, tree, record.id)  # what it leaves behind was paused with it
    if state.schedules.by_firing and record.id in state.schedules.by_firing:
        state.note_firing_over(record.id, is_stuck=has_given_up(tree, record))
    if not tree.open:
        close_tree(state, tree)


def has_given_up(tree: Tree, root: ProcedureRecord) -> bool:
    """True if a root has failed and something of its tree is still to be undone."""
    return root.state is _FAILED and root.rollback_supported and not tree.is_bare and bool(tree.units)


def _leave_scopes(follow_ups: FollowUps, tree: Tree, record: ProcedureRecord) -> Iterable[str]:
    """It is not undone any more, and keeps no child back; the children that it did."""
    tree.scopes.pop(record.id, None)
    if tree.undoing == record.id:
        tree.undoing = None
    if tree.undoing is None and (top := tree.next_scope()) is not None:
        follow_ups.scopes_to_advance[top] = None
    left_behind = tree.held.pop(record.id, ())
    leave_held(tree, record)
    return left_behind


def _take_back_poison(state: EngineState, record: ProcedureRecord) -> None:
    named = record.poisons
    update_poisons(state, record, ())
    if record.ended_in:
        record.poisons = named  # a retry of its root may take up the step again that they were named for
    if record.run > 1 or record.stuck:
        take_back_all(state, record)


def _note_left_open(state: EngineState, tree: Tree, record: ProcedureRecord) -> None:
    """A root may leave others behind. Past its point of no return nothing ended them: what was to does now."""
    record.left_open = record.parent is None and tree.open > 0
    if not record.left_open or not record.no_return:
        return
    for member in tree.members.values():
        if member.state in TERMINAL:
            continue
        if member.deadline is not None:
            state.timers.add(member.deadline, member.id)
        if member.aborting:
            state.follow_ups.outlived[member.id] = None
        if state.locks.table.is_waiting(member.id) and (path := acquire.poisoned_key(state, member)) is not None:
            state.follow_ups.refused[member.id] = path
        if member.state is ProcedureState.WAITING_TIMEOUT and member.due_at is None and member.event is not None:
            # Its wait was over in vain while there was no way back: it is over now.
            head.wait_until(member, state.decision.now)
            state.timers.add(state.decision.now, member.id)
            state.decision.touch(member)


def close_unsuccessfully(state: EngineState, record: ProcedureRecord, trigger: Trigger) -> None:
    """Write the closing ``.rollback`` record with the error, then end."""
    write_rollback(state, record, "rolledback" if trigger is Trigger.UNDONE else "failed", error=record.error)
    end(state, record, trigger)


def settle_bypass(state: EngineState, record: ProcedureRecord) -> None:
    """End a procedure that is to be bypassed, once no worker has its step and nothing below it is open."""
    tree = state.residents.tree_of(record)
    if not record.bypassing or record.id in state.workers.table.in_hand:
        return
    if record.undoing and record.state not in TERMINAL:
        record.undoing = 0
        if tree.undoing == record.id:
            tree.undoing = None
        state.decision.touch(record)
    if (top := tree.scope_of(record.id)) is not None:
        state.follow_ups.scopes_to_advance[top] = None
    if record.pending or any(is_open(member) for member in tree.below(record.id) if member is not record):
        keep_nothing(state, record)
        return
    for unit in list(tree.units_of.get(record.id, ())):
        tree.pop(unit)
        state.decision.write(DeleteUndo(unit.root, unit.seq))
    if tree.scopes:
        # What it held goes on with its parent, and may be in the way of an undo that it was not in the way of.
        state.follow_ups.searches[tree.root] = None
    close_bypassed(state, record)
    if tree.undoing is None and (top := tree.next_scope()) is not None:
        state.follow_ups.scopes_to_advance[top] = None


def is_open(record: ProcedureRecord) -> bool:
    """It has not ended, or it has and is being undone."""
    return record.state not in TERMINAL or record.undoing > 0


def close_bypassed(state: EngineState, record: ProcedureRecord) -> None:
    """Write a closing ``.commit`` record without an output, which keeps the last error; end as if it had succeeded."""
    record.records += 1
    state.decision.write(
        PutStep(
            StepRecord(
                procedure=record.id,
                number=record.records,
                kind=StepKind.COMMIT,
                at=state.decision.now,
                version=record.version,
                outcome="bypassed",
                attempts=record.attempt,
                error=record.error,
            )
        )
    )
    record.bypassed = True
    head.forget_error(record)
    head.interrupt(record, None)
    record.rolling = False
    if record.state is not _SUCCESS:
        end(state, record, Trigger.BYPASSED)
        return
    # A finished child that was being undone: it is not any more, and stays what it was.
    tree = state.residents.tree_of(record)
    record.undoing = 0
    record.bypassing = False
    head.wait_no_longer(record)
    if tree.undoing == record.id:
        tree.undoing = None
    state.queues.run_queue.discard(record.id)
    acquire.withdraw(state, record)
    acquire.release(state, record)  # with ``lock_scope = "step"`` it took them again for its undo
    leave_limits(state, record)
    for name in tree.lineage(record.id)[1:]:
        settle_bypass(state, tree.members[name])


def forget_listening(signals: SignalBuffer, record: ProcedureRecord) -> None:
    """The procedure waits for no event any more."""
    if record.event is not None:
        signals.subscribers.discard(record.event, record.id)
        record.event = None


def _pass_on_locks(state: EngineState, record: ProcedureRecord) -> None:
    parent = state.residents.procs[record.parent] if record.parent is not None else None
    keeps = parent is not None and record.state is _SUCCESS and parent.undo_children
    while parent is not None and parent.state in TERMINAL:  # it left this one behind when it ended
        parent = state.residents.procs[parent.parent] if parent.parent is not None else None
        keeps = keeps and parent is not None and parent.undo_children
    if keeps and parent is not None:
        acquire.inherit(state, record, parent)
    else:
        acquire.release(state, record)


def close_tree(state: EngineState, tree: Tree) -> None:
    """Undo units of a tree that has ended are of no use; those of a failed root serve `retry`."""
    root = state.residents.procs[tree.root]
    if root.left_open:
        root.left_open = False
        state.decision.touch(root)
    if root.state is _FAILED:
        return
    if state.signals.taken or state.signals.buffered:
        for name in tree.members:
            signal_ids.forget(state, name)
    if tree.is_bare:
        return
    for seq in tree.units:
        state.decision.write(DeleteUndo(tree.root, seq))
    tree.units.clear()
    tree.units_of.clear()


def tell_parent(state: EngineState, child: ProcedureRecord) -> None:
    """Count the child off at its parent; who waits for it is woken (HBase's latch)."""
    assert child.parent is not None
    parent = state.residents.procs[child.parent]
    if parent.state in TERMINAL:
        # It outlived its parent; one further up may be waiting for it to end, so as to be bypassed.
        tree = state.residents.tree_of(child)
        for name in tree.lineage(parent.id)[1:]:
            settle_bypass(state, tree.members[name])
        return
    parent.pending -= 1
    if child.state is _SUCCESS:
        parent.succeeded += 1
    else:
        parent.failed += 1
    child.ended_as = finished(parent)
    state.decision.touch(parent)
    if parent.bypassing:
        if not parent.rolling:
            release(state, parent)
        settle_bypass(state, parent)
        return
    if parent.rolling:
        return
    release(state, parent)
    if parent.state is not _WAITING or parent.event is not None:
        return
    if is_due(parent):
        parent.seen = finished(parent)
        move(parent, _CHILDREN_DONE)
        wake(state, parent)
