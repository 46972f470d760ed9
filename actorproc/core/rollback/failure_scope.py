"""Failure scopes: stop everything below the top, then undo its units newest first, one at a time.

A failure takes its ancestors along up to the nearest one with ``on_child_failure = "resume"``; the branch below that
one is the *scope*, and its highest procedure the *top*. Members that wait stop at once. Steps inside a worker are told
(`Context.aborting`) and end first, or are killed (`cancellation`). Then the undo units of the scope are popped newest
first; a unit is given up only after its rollback was recorded. When none is left the members end, descendants first.
"""

from __future__ import annotations

from msgspec.structs import replace

from actorproc.core.lifecycle.finish import close_unsuccessfully, forget_listening, settle_bypass
from actorproc.core.lock_manager import acquire
from actorproc.core.lock_manager.poison import poison
from actorproc.core.lock_manager.requests import could_undo_now
from actorproc.core.scheduler.cancellation import cancel_step
from actorproc.core.scheduler.schedule import wake
from actorproc.core.state import head
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.follow_ups import FollowUps
from actorproc.core.state.parts.residents import ResidentSet
from actorproc.core.state.skipped_undo import list_no_rollback
from actorproc.core.state.transitions import Trigger, move
from actorproc.core.state.tree import Tree
from actorproc.core.state.undo_order import is_left_alone, is_poisoned, next_to_undo
from actorproc.model.rows.records import ErrorInfo, Interrupted, ProcedureRecord, UndoRecord
from actorproc.model.rows.writes import DeleteUndo
from actorproc.model.states import TERMINAL, ProcedureState

__all__ = [
    "aborted_error",
    "advance",
    "drop_unit",
    "fail",
    "give_up",
    "look_again",
    "next_scope",
]

_UNDONE = "It was to be undone because of this:\n"


def fail(state: EngineState, record: ProcedureRecord, error: ErrorInfo) -> None:
    """A procedure failed for good: stop its scope and begin to undo it.

    Within a scope that is failing already only the member's own error is noted, and that it is not to be undone.
    """
    tree = state.residents.tree_of(record)
    if record.error is None or not record.rolling or error.kind == "poisoned":
        head.fail_with(record, error)
    state.decision.touch(record)
    top = _top_of(state.residents, tree, record)
    if not top.failing:
        _begin(state, tree, top, record, error)
    state.follow_ups.scopes_to_advance[top.id] = None


def aborted_error(record: ProcedureRecord) -> ErrorInfo:
    """Error with which an aborted procedure fails."""
    return ErrorInfo(
        "aborted",
        "ProcedureAborted",
        "aborted on request",
        procedure=record.id,
        step=record.step,
        step_name=record.step_name or "",
    )


def _top_of(residents: ResidentSet, tree: Tree, record: ProcedureRecord) -> ProcedureRecord:
    if (scope := tree.scope_of(record.id)) is not None:
        return tree.members[scope]  # also where an ancestor in between is to be bypassed, or left this one behind
    top = record
    while top.parent is not None:
        parent = residents.procs[top.parent]
        takes_it = parent.bypassing or (parent.on_child_failure == "resume" and not parent.rolling)
        if takes_it or parent.state in TERMINAL:
            return top
        top = parent
    return top


def _begin(state: EngineState, tree: Tree, top: ProcedureRecord, culprit: ProcedureRecord, error: ErrorInfo) -> None:
    top.failing = True
    if top is not culprit:
        message = f"{culprit.id} ({culprit.type_name}) failed in {error.step_in_words}: {error.message}"
        # All but kind and words stay: its class, its crash report and the exception itself are told at the root, too.
        head.fail_with(top, replace(error, kind="child", message=message))
    state.decision.touch(top)
    members = tree.below(top.id)
    inside = {member.id for member in members}
    for inner in sorted(tree.scopes.keys() & inside):
        # A wider failure takes over the undoing that went on below it.
        del tree.scopes[inner]
        top.reverted = top.reverted or state.residents.procs[inner].reverted
        state.residents.procs[inner].failing = False
        state.decision.touch(state.residents.procs[inner])
        state.follow_ups.scopes_to_advance.pop(inner, None)
    tree.scopes[top.id] = None
    for member in members:
        if member.state not in TERMINAL:
            _stop(state, tree, member, is_named=member is culprit or member is top)
        elif member.undoing and member.id not in tree.running:
            _set_aside(state, member)


def _stop(state: EngineState, tree: Tree, member: ProcedureRecord, *, is_named: bool) -> None:
    if not is_named and not member.rolling:
        # An error it was still retrying is not why it ends.
        error = ErrorInfo(
            "cancelled",
            "Cancelled",
            "stopped because its tree failed",
            procedure=member.id,
            step=member.step,
            step_name=member.step_name or "",
        )
        head.fail_with(member, error)
    if not member.rolling:
        head.interrupt(member, _interrupted(member))
    member.rolling = True
    tree.held.pop(member.id, None)
    if member.state is ProcedureState.RUNNABLE and state.workers.table.runs_a_step(member.id):
        state.decision.touch(member)
        cancel_step(state, member)
        return
    # What waits stops at once, even while a worker is asking its `abort`.
    forget_listening(state.signals, member)
    if member.locked and member.locks and not member.attempt and not member.undoing:
        _give_back(state, member)
    _set_aside(state, member)
    if member.state is not ProcedureState.RUNNABLE:
        move(member, Trigger.STOPPED)


def _interrupted(member: ProcedureRecord) -> Interrupted | None:
    """Intended next step of a member, for a retry that goes forward."""
    if member.event is not None:
        # One that calls `on_timeout` now waits again, without a limit: how long it was to be is not known any more.
        state = ProcedureState.WAITING if member.due_at is None else ProcedureState.WAITING_TIMEOUT
        return Interrupted(state, member.event, member.due_at)
    if member.state is not ProcedureState.RUNNABLE:
        return Interrupted(member.state, None, member.due_at)
    return None


def _set_aside(state: EngineState, member: ProcedureRecord) -> None:
    """Take a member out of every queue; its undoing, if it was begun, is taken up again in its turn."""
    head.wait_no_longer(member)
    _end_undoing(state.follow_ups, state.residents.tree_of(member), member)
    state.queues.run_queue.discard(member.id)
    state.follow_ups.asking.pop(member.id, None)
    acquire.withdraw(state, member)
    if not member.locked and member.lock_scope == "procedure":
        # It undoes with the keys it holds; those it was still waiting for are needed by a retry at most.
        kept = member.interrupted or Interrupted(ProcedureState.RUNNABLE)
        head.interrupt(member, replace(kept, keys=member.locks))
        acquire.keep_granted(state, member)
    state.decision.touch(member)


def _give_back(state: EngineState, member: ProcedureRecord) -> None:
    """Nothing was done under the keys of a step that never began: they do not wait for the undo of the tree."""
    if member.lock_scope == "step":
        place = member.ticket
        acquire.end_of_step(state, member)
        member.ticket = place  # it may be new, and no number is given twice
    elif member.step == 1 and member.id not in state.residents.tree_of(member).units_of:
        acquire.release(state, member)
        member.locked = False


def look_again(state: EngineState, record: ProcedureRecord) -> None:
    """Something happened to a member: its failing scope, if it is in one, may go on."""
    top = state.residents.tree_of(record).scope_of(record.id)
    if top is not None:
        state.follow_ups.scopes_to_advance[top] = None


def advance(state: EngineState, top_id: str) -> None:
    """Take the next thing to do of a failing scope: wait for running steps, undo a unit, or finish it."""
    top = state.residents.procs.get(top_id)
    if top is None or not top.failing:
        return
    tree = state.residents.tree_of(top)
    if tree.runs_below(top_id):
        return
    if tree.undoing is not None and not tree.is_below(tree.undoing, top_id):
        _ask_again(state, tree, state.residents.procs[tree.undoing])
        _look_at_stalled(state.follow_ups, tree, top_id)
        if not _takes_the_turn(state, tree, top_id):
            return
    if tree.undoing is not None and tree.undoing in tree.waiting:
        return
    # The units of poisoned members of a root stay: should it be retried, a later failure undoes them.
    is_skipped = is_poisoned if top_id == tree.root else None
    while (unit := tree.newest_unit(top_id, is_skipped)) is not None:
        member = state.residents.procs[unit.procedure]
        if not is_left_alone(state.residents, member, top_id):
            if not acquire.has_retaken(state, tree):
                return
            if tree.is_still(member.id) and tree.undoing != member.id:
                _pass_on_the_turn(state.follow_ups, tree, top_id)
                return
            if tree.undoing is not None and tree.undoing != member.id:
                # It was being undone when a wider failure took over, and would go on: newer units are first now.
                _set_aside(state, state.residents.procs[tree.undoing])
            _undo(state, member, unit)
            if member.id in tree.waiting:
                # What it waits for may hang on another failing scope.
                state.follow_ups.scopes_to_advance.update(dict.fromkeys(name for name in tree.scopes if name != top_id))
            return
        drop_unit(state, tree, unit)
    _finish(state, tree, top)


def _ask_again(state: EngineState, tree: Tree, member: ProcedureRecord) -> None:
    """Another scope of the tree stands still now: its locks are no obstacle to the undo under way any more."""
    if member.id in tree.waiting:
        acquire.withdraw(state, member)
        wake(state, member)


def _pass_on_the_turn(follow_ups: FollowUps, tree: Tree, top_id: str) -> None:
    """Its next undo is paused: scopes that failed after it may go on meanwhile."""
    scopes = list(tree.scopes)
    follow_ups.scopes_to_advance.update(dict.fromkeys(scopes[scopes.index(top_id) + 1 :]))


def _look_at_stalled(follow_ups: FollowUps, tree: Tree, top_id: str) -> None:
    """This scope stands still; those that stalled while it ran a step may have their locks now."""
    if not follow_ups.stalled or not any(tree.is_below(name, top_id) for name in tree.holders):
        return
    for name in [name for name in tree.scopes if top_id not in follow_ups.stalled.get(name, (top_id,))]:
        del follow_ups.stalled[name]
        follow_ups.scopes_to_advance[name] = None


def next_scope(state: EngineState) -> str | None:
    """A failing scope to look at, None when none may have something to do."""
    if state.follow_ups.stalled and state.locks.table.has_released:
        # Locks were given up: perhaps they are those that a scope needs to take its turn.
        state.locks.table.has_released = False
        state.follow_ups.scopes_to_advance.update(dict.fromkeys(state.follow_ups.stalled))
        state.follow_ups.stalled.clear()
    return state.follow_ups.scopes_to_advance.popitem()[0] if state.follow_ups.scopes_to_advance else None


def _takes_the_turn(state: EngineState, tree: Tree, top_id: str) -> bool:
    """True if this scope goes first, because the undo whose turn it is waits for locks and its own next need not.

    The locks waited for may be held above this very scope, by one that goes on only when it has been undone.
    """
    assert tree.undoing is not None
    waiting = state.residents.procs[tree.undoing]
    if waiting.id not in tree.waiting:
        return False
    unit = next_to_undo(state.residents, tree, top_id)
    if unit is not None:
        if tree.is_still(unit.procedure):
            return False
        if not could_undo_now(state, state.residents.procs[unit.procedure]):
            state.follow_ups.stalled[top_id] = frozenset(name for name in tree.scopes if not tree.runs_below(name))
            state.follow_ups.searches[tree.root] = None  # that one may wait for what this very scope keeps from ending
            return False
    acquire.withdraw(state, waiting)
    waiting.undoing = 0
    tree.undoing = None
    state.decision.touch(waiting)
    return True


def _end_undoing(follow_ups: FollowUps, tree: Tree, member: ProcedureRecord) -> None:
    """The member is not being undone any more; another failing scope of the tree may go on."""
    member.undoing = 0
    if tree.undoing == member.id:
        tree.undoing = None
        if (top := tree.next_scope()) is not None:
            follow_ups.scopes_to_advance[top] = None


def _undo(state: EngineState, member: ProcedureRecord, unit: UndoRecord) -> None:
    if member.undoing != unit.seq:
        member.undoing = unit.seq
        member.undo_name = unit.label
        state.residents.tree_of(member).undoing = member.id
        head.begin_unit(member, unit.seq)
        if member.lock_scope == "step" and member.locks:
            # Ahead of newcomers: the ticket is as old as the procedure.
            # What it keeps for its finished children is not enough.
            held = state.locks.table.keys_of(member.id)
            member.locked = all(held.get(key.path, 0) >= key.mode for key in member.locks)
        state.decision.touch(member)
    wake(state, member)


def drop_unit(state: EngineState, tree: Tree, unit: UndoRecord) -> None:
    """A unit is undone, or was not to be: remove it; a finished member without units left becomes ROLLEDBACK."""
    state.decision.write(DeleteUndo(unit.root, unit.seq))
    member = state.residents.procs[unit.procedure]
    was_undone = member.undoing == unit.seq
    if was_undone:
        _end_undoing(state.follow_ups, tree, member)
        state.decision.touch(member)
    if tree.pop(unit) and was_undone and member.state is ProcedureState.SUCCESS:
        close_unsuccessfully(state, member, Trigger.UNDONE)


def _finish(state: EngineState, tree: Tree, top: ProcedureRecord) -> None:
    """Nothing is left to undo: end the members, descendants before their parents, the top last."""
    for member in reversed(tree.below(top.id)):
        if member.bypassing:
            settle_bypass(state, member)
        elif member.state not in TERMINAL:
            verdict = _verdict(member)
            if verdict is Trigger.GAVE_UP and not member.rollback_supported:
                list_no_rollback(state.decision, member, top)
            member.ended_in = top.run if top.parent is None else 0
            close_unsuccessfully(state, member, verdict)


def _verdict(member: ProcedureRecord) -> Trigger:
    was_executed = member.step > 1 or member.attempt > 0 or member.last_unit is not None
    if is_poisoned(member) or (was_executed and not member.rollback_supported):
        return Trigger.GAVE_UP
    return Trigger.UNDONE


def give_up(state: EngineState, member: ProcedureRecord, error: ErrorInfo) -> None:
    """A supported rollback is exhausted: the scope ends FAILED and its write locks become poison keys."""
    tree = state.residents.tree_of(member)
    top_id = tree.scope_of(member.id)
    assert top_id is not None, member.id
    head.fail_with(member, _with_cause(error, member.error))
    member.undo_error = None
    for inside in reversed(tree.below(top_id)):
        for path, mode in list(state.locks.table.keys_of(inside.id).items()):
            if mode.poisons:
                poison(state, path, member, f"rollback of {member.id} gave up: {error.message}")
    run = state.residents.procs[top_id].run if top_id == tree.root else 0
    if member.state is ProcedureState.SUCCESS:
        _count_as_failed(state, member)
        member.ended_in = run
        close_unsuccessfully(state, member, Trigger.GAVE_UP)
    for inside in reversed(tree.below(top_id)):
        if inside.bypassing:
            settle_bypass(state, inside)
        elif inside.state not in TERMINAL:
            inside.ended_in = run
            close_unsuccessfully(state, inside, Trigger.GAVE_UP)


def _with_cause(error: ErrorInfo, cause: ErrorInfo | None) -> ErrorInfo:
    """The error of an undo, whose traceback also tells why there was something to undo."""
    if cause is None or cause == error:
        return error
    _, _, told = cause.traceback.partition(_UNDONE)
    text = told or cause.traceback.strip() or f"{cause.type_name.rpartition('.')[2]}: {cause.message}"
    return replace(error, traceback=f"{error.traceback.rstrip()}\n\n{_UNDONE}{text}".strip())


def _count_as_failed(state: EngineState, child: ProcedureRecord) -> None:
    """A finished child turns out a failure."""
    parent = state.residents.procs[child.parent] if child.parent is not None else None
    if parent is not None and child.ended_as:  # else it outlived its parent, which has not counted it
        parent.succeeded -= 1
        parent.failed += 1
        state.decision.touch(parent)
