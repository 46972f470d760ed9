"""A failed root once more, and an unfinished one back: what an operator may ask of a whole tree.

A root ends ``FAILED`` in one of three ways, and each has one way on. Its rollback gave up: the undoing goes on at the
unit where it stopped, with a fresh budget. Nothing could be undone: the failed step runs again, and every member goes
on with what it was about to do when the tree failed. Something was undone and nothing is left to undo: there is no
way on, because forward after an undo would build on what is not there any more.

The locks that the tree held when it failed were released. Keys locked for writing were poisoned meanwhile, which never
stops their owner. The root takes all of these locks again, at once, before anything of the tree runs.
"""

from __future__ import annotations

from actorproc.core.lifecycle.children import finished, is_due, release
from actorproc.core.lifecycle.signals import take_buffered
from actorproc.core.lock_manager import acquire
from actorproc.core.lock_manager.poison import declare
from actorproc.core.queues.timers import TimerQueue
from actorproc.core.recovery import hold_back
from actorproc.core.rollback.failure_scope import fail
from actorproc.core.scheduler.schedule import go_on
from actorproc.core.state import head
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.damage import DamageTable
from actorproc.core.state.parts.locks import LockState
from actorproc.core.state.parts.residents import ResidentSet
from actorproc.core.state.quarantine import error_of
from actorproc.core.state.transitions import Trigger, move
from actorproc.core.state.tree import Tree
from actorproc.core.state.undo_order import ended_with, left_to_undo
from actorproc.errors import ActorprocError, KeyPoisoned, NotAllowed, UnknownProcedure
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.events import RetryRequested, RollbackRequested
from actorproc.model.policies import LockKey, LockMode
from actorproc.model.rows.records import ErrorInfo, Interrupted, ProcedureRecord, UndoRecord
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.model.trace_context import opened_again

__all__ = ["request_retry", "request_rollback"]

_REASONS: dict[ProcedureState, str] = {
    ProcedureState.SUCCESS: "has succeeded; there is nothing to retry",
    ProcedureState.ROLLEDBACK: (
        "was undone completely; submit it again with on_existing='restart-failed', or under another id"
    ),
}


# ---------------------------------------------------------------------- retry
def request_retry(state: EngineState, event: RetryRequested) -> None:
    """Open a new run of a failed root."""
    root = state.residents.procs.get(event.id)
    error = _unknown(state.damage, event.id) if root is None else _refusal(root)
    if root is None or error is not None:
        state.decision.command(Reply(event.reply, error=error))
        return
    tree = state.residents.tree_of(root)
    members = ended_with(tree, root)
    stopped_at = left_to_undo(state.residents, tree, members)
    keys = _keys_of(state.residents, tree, members)
    if stopped_at is None and (error := _no_way_forward(state.locks, root, members, keys)) is not None:
        state.decision.command(Reply(event.reply, error=error))
        return
    state.forget_acknowledgement(root.id)
    state.schedules.note_open(root.id)
    run = root.run + 1
    # First of all: nothing of the tree may ask for locks before it.
    root.retaking = keys
    tree.note_still(root)
    for member in members:
        _open_again(state, tree, member, run, rolling=stopped_at is not None)
    if stopped_at is not None:
        _take_up_undoing(state, tree, root, stopped_at)
    else:
        root.reverted = False
        _take_up_forward(state, tree, members)
    if state.queues.admission.capacity is not None:
        # At once, as its tree may hold locks that others wait for; and it may be long until the root itself runs.
        state.queues.admission.admit(root)
    state.audit(root, "retry", event, "the rollback goes on" if stopped_at is not None else "the failed step")
    if not keys:
        go_on(state, tree, root.id)
    elif acquire.has_retaken(state, tree):
        assert root.id in state.follow_ups.retaken
    state.decision.command(Reply(event.reply, value=True))


def _unknown(damage: DamageTable, id: str) -> ActorprocError:
    return error_of(damage, id) or UnknownProcedure(f"no procedure has the id {id!r}")


def _refusal(root: ProcedureRecord) -> ActorprocError | None:
    if root.parent is not None:
        return NotAllowed(f"{root.id} belongs to {root.root}; only a root can be retried, with all that ran under it")
    if root.state is ProcedureState.FAILED:
        return None
    reason = _REASONS.get(root.state, "has not failed; wait for its end, or abort it")
    return NotAllowed(f"{root.id} cannot be retried: it {reason}")


def _no_way_forward(
    locks: LockState, root: ProcedureRecord, members: list[ProcedureRecord], keys: tuple[LockKey, ...]
) -> ActorprocError | None:
    if root.reverted:
        return NotAllowed(
            f"{root.id} cannot be retried: part of it was undone and nothing is left to undo, so there is no way "
            f"back and none forward. Repair the rest by hand, then bypass({root.id!r}), or submit it again with "
            "on_existing='restart-failed', or under another id"
        )
    for member in members:
        stopped = member.interrupted
        if stopped is not None and stopped.state is ProcedureState.SUCCESS and not stopped.step:
            return NotAllowed(
                f"{root.id} cannot be retried: {member.id} had finished all its steps and only waited for its children "
                f"to end when the tree failed. Submit {root.id} again with on_existing='restart-failed', or under "
                "another id"
            )
    path = acquire.covers_poison(locks, keys, root.id)
    if path is not None:
        return KeyPoisoned(f"{root.id} cannot be retried: it needs a poisoned key: {locks.poison_notice(path)}")
    return None


def _keys_of(residents: ResidentSet, tree: Tree, members: list[ProcedureRecord]) -> tuple[LockKey, ...]:
    """Keys that the tree held when its root failed: of members that had not ended, and left by finished ones."""
    held: dict[str, LockMode] = {}
    left = [member for member in tree.members.values() if _left_locks(residents, tree, member)]
    for member in (*members, *left):
        if member.lock_scope == "procedure":
            for key in member.locks:
                held[key.path] = max(key.mode, held.get(key.path, key.mode))
    return tuple(LockKey(path, mode) for path, mode in held.items())


def _left_locks(residents: ResidentSet, tree: Tree, member: ProcedureRecord) -> bool:
    """True if a finished member passed its locks on, and they came as far as the root's end."""
    if member.state is not ProcedureState.SUCCESS or member.parent is None:
        return False
    parent: ProcedureRecord | None = tree.members[member.parent]
    while parent is not None and parent.state is ProcedureState.SUCCESS and parent.undo_children:
        parent = residents.procs[parent.parent] if parent.parent is not None else None
    return parent is not None and parent.undo_children and parent.ended_in == tree.members[tree.root].run


# ---------------------------------------------------------------------- opening again
def _open_again(state: EngineState, tree: Tree, member: ProcedureRecord, run: int, *, rolling: bool) -> None:
    move(member, Trigger.RETRIED)
    tree.open += 1
    member.past = opened_again(member, state.decision.now)
    member.run = run
    member.rolling = rolling
    # The attempts go on counting: the step, or its undo, may have half run. So both keep their numbers as well.
    if rolling:
        member.undo_step = member.undo_step or member.records
    head.reset_errors(member)
    member.stuck = member.ended_in = member.ticket = 0
    member.finished_at = None
    member.aborting = member.forced = False
    member.cancelled_at = None
    member.locked = member.lock_scope == "procedure" or not member.locks
    parent = tree.members[member.parent] if member.parent is not None else None
    if parent is not None and parent.state not in TERMINAL:  # else it had left this one behind
        parent.pending += 1
        parent.failed -= member.ended_as > 0  # else its parent had ended before it, and has not counted it
        state.decision.touch(parent)
    member.ended_as = 0
    if member.deadline is not None and member.deadline <= state.decision.now:
        member.deadline = None  # it failed over it, or would at once
    if member.deadline is not None:
        state.timers.add(member.deadline, member.id)
    state.decision.touch(member)


def _take_up_undoing(state: EngineState, tree: Tree, root: ProcedureRecord, unit: UndoRecord) -> None:
    """The rollback goes on where it stopped."""
    root.failing = True
    tree.scopes[root.id] = None
    state.follow_ups.scopes_to_advance[root.id] = None
    member = state.residents.procs[unit.procedure]
    if member.state not in TERMINAL:
        member.undoing = unit.seq
        member.undo_name = unit.label
        tree.undoing = member.id
        head.take_up_unit(member, unit.seq)  # it may have given up before it began


def _take_up_forward(state: EngineState, tree: Tree, members: list[ProcedureRecord]) -> None:
    """Every member goes on with what it was about to do; the failed ones with the step they failed in."""
    for member in members:
        stopped = head.take_interrupted(member)
        head.forget_error(member)
        member.leftovers = ()
        if member.id not in tree.units_of:
            member.last_unit = None
        if member.poisons and (member.step > 1 or member.attempt):
            declare(state, member, member.poisons)  # else it is done when its first step is handed out
        if stopped is not None:
            _take_up(state, member, stopped)
        if member is not state.residents.procs[member.root]:
            # The root holds the keys of all of them; among themselves they ask as they did before.
            member.locked = not member.locks
            member.ticket = 0
    # Last, when it is known which children are outstanding again.
    for member in members:
        if member.pending and member.started < member.width:
            hold_back(tree, member)
        if member.state is ProcedureState.WAITING and member.event is None and is_due(member):
            member.seen = finished(member)
            move(member, Trigger.CHILDREN_DONE)
        # Whatever it does itself: a child that was bypassed meanwhile has left room.
        release(state, member)


def _take_up(state: EngineState, member: ProcedureRecord, stopped: Interrupted) -> None:
    if stopped.keys:
        member.locks, member.locked, member.ticket = stopped.keys, False, 0
    if stopped.step:
        # Its last step ended too late to count: it runs again.
        member.step, member.state_at = stopped.step, stopped.record
        member.step_name = stopped.step_name
        head.note_searchable(member, stopped.searchable)
    if stopped.event is not None:
        payload = take_buffered(state, member, stopped.event)
        if payload is not None:
            member.payload = payload
            return
        member.event = stopped.event
        state.signals.subscribers.add(stopped.event, member.id)
        _wait(state.timers, member, stopped.due_at, Trigger.WAITED_LIMITED)
    elif stopped.state is ProcedureState.WAITING_TIMEOUT:
        if stopped.due_at is not None:
            _wait(state.timers, member, stopped.due_at, Trigger.SLEPT)
    elif stopped.state is ProcedureState.WAITING:
        move(member, Trigger.SUSPENDED)


def _wait(timers: TimerQueue, member: ProcedureRecord, due_at: float | None, trigger: Trigger) -> None:
    head.wait_until(member, due_at)
    if due_at is None:
        move(member, Trigger.WAITED)
    else:
        timers.add(due_at, member.id)
        move(member, trigger)


# ---------------------------------------------------------------------- rollback on demand
def request_rollback(state: EngineState, event: RollbackRequested) -> None:
    """Undo an unfinished root; running steps end first. False: it was undone already."""
    root = state.residents.procs.get(event.id)
    error = _unknown(state.damage, event.id) if root is None else _no_rollback(state.residents, root)
    if root is None or error is not None:
        state.decision.command(Reply(event.reply, error=error))
        return
    is_to_end = root.state not in TERMINAL
    if is_to_end:
        state.audit(root, "rollback", event)
    if is_to_end and not root.rolling:
        message = f"rolled back on request{f': {event.reason}' if event.reason else ''}"
        fail(
            state,
            root,
            ErrorInfo(
                "aborted",
                "ProcedureAborted",
                message,
                procedure=root.id,
                step=root.step,
                step_name=root.step_name or "",
            ),
        )
    state.decision.command(Reply(event.reply, value=is_to_end))


def _no_rollback(residents: ResidentSet, root: ProcedureRecord) -> ActorprocError | None:
    if root.parent is not None:
        return NotAllowed(f"{root.id} belongs to {root.root}; only a root can be rolled back, with its whole tree")
    if root.state is ProcedureState.SUCCESS:
        return NotAllowed(f"{root.id} has succeeded; what is needed to undo it is not kept after that")
    if root.state is ProcedureState.FAILED:
        return NotAllowed(f"{root.id} has failed; retry({root.id!r}) goes on with a rollback that gave up")
    if root.bypassing:
        return NotAllowed(f"{root.id} is being bypassed: it ends as if it had succeeded, and nothing of it is undone")
    if root.state is ProcedureState.ROLLEDBACK or root.rolling:
        return None
    if residents.has_no_return(root):
        return NotAllowed(f"{root.id} is past its point of no return; it can only go forward")
    if _was_executed(root) and not root.rollback_supported and not residents.tree_of(root).units:
        return NotAllowed(f"{root.id} ({root.type_name}) has no rollback; abort({root.id!r}, force=True) stops it")
    return None


def _was_executed(record: ProcedureRecord) -> bool:
    return record.step > 1 or record.attempt > 0
