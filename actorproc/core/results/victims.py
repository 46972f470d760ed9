"""Procedures that fail because of others: left by a parent that ended, in need of a poisoned key, in a deadlock."""

from __future__ import annotations

from actorproc.core.lock_manager import deadlocks
from actorproc.core.results.abort import press_abort
from actorproc.core.rollback.failure_scope import fail, give_up
from actorproc.core.state.engine_state import EngineState
from actorproc.model.rows.records import ErrorInfo, ProcedureRecord
from actorproc.model.states import TERMINAL

__all__ = ["fail_next", "search_stalled"]


def fail_next(state: EngineState) -> None:
    """Fail those of one kind that the decision has named."""
    if state.follow_ups.refused:
        _fail_refused(state)
    elif state.follow_ups.orphaned:
        _abort_orphans(state)
    elif state.follow_ups.outlived:
        press_abort(state, state.residents.procs[state.follow_ups.outlived.popitem()[0]])
    else:
        _fail_victims(state)


def _abort_orphans(state: EngineState) -> None:
    """Cancel the outstanding children of procedures that have ended: each is undone behind its parent, by itself.

    While the root cannot turn back they cannot either: the abort is recorded, and carried out when the root has ended.
    """
    while state.follow_ups.orphaned:
        parent = state.follow_ups.orphaned.popitem()[0]
        tree = state.residents.tree_of(state.residents.procs[parent])
        for name in tree.children.get(parent, ()):
            child = state.residents.procs[name]
            if child.state in TERMINAL or child.rolling:
                continue
            if state.residents.has_no_return(child):
                child.aborting = True
                state.decision.touch(child)
            else:
                message = f"its parent {parent} has ended without it"
                fail(
                    state,
                    child,
                    ErrorInfo(
                        "aborted",
                        "ProcedureAborted",
                        message,
                        procedure=name,
                        step=child.step,
                        step_name=child.step_name or "",
                    ),
                )


def _fail_victims(state: EngineState) -> None:
    """Break cycles of lock waiting: at best without a failure, else by that of the youngest tree that goes forward.

    Where all undo already, each may need again for a step the locks that another one keeps. Then the keeper fails if it
    still goes forward, else the youngest undo gives up: to go on without its locks could be silently wrong.
    """
    while state.follow_ups.victims:
        root, cycle = state.follow_ups.victims.popitem()
        if deadlocks.is_closed(state, cycle) and not deadlocks.let_pass(state, cycle):
            _break(state, root, cycle)
        # Those that are left may wait for each other in a shorter circle, or in another one that was not looked at.
        for name in dict.fromkeys(state.residents.procs[other].root for other in cycle):
            deadlocks.look_for_cycles(state, state.residents.trees[name])


def search_stalled(state: EngineState) -> None:
    """All scopes of these trees were looked at; some stalled or were bypassed: is the undo that waits in a cycle?"""
    for tree in [state.residents.trees[root] for root in state.follow_ups.searches if root in state.residents.trees]:
        if tree.undoing is not None and state.locks.table.is_waiting(tree.undoing):
            deadlocks.look_for_cycle(state, state.residents.procs[tree.undoing])
    state.follow_ups.searches.clear()


def _break(state: EngineState, root: str, cycle: list[str]) -> None:
    """Fail the member of a cycle that belongs to the chosen tree."""
    ours = [name for name in cycle if state.residents.procs[name].root == root]
    # A member that is being undone cannot fail once more; another one of the cycle gives way, or the one in its way.
    member = next((record for name in ours if deadlocks.goes_forward(record := state.residents.procs[name])), None)
    member = member or deadlocks.keeper_in(state, cycle)
    if member is not None:
        fail(state, member, _deadlock(member, root, cycle))
        return
    undone = state.residents.procs[next((name for name in ours if state.locks.table.is_waiting(name)), ours[0])]
    give_up(state, undone, _deadlock(undone, root, cycle))
    state.follow_ups.scopes_to_advance.update(state.residents.tree_of(undone).scopes)


def _deadlock(member: ProcedureRecord, root: str, cycle: list[str]) -> ErrorInfo:
    names = " -> ".join([*cycle, cycle[0]])
    message = f"a cycle of lock waiting ({names}); {root} is the youngest tree in it"
    return ErrorInfo(
        "deadlock", "DeadlockDetected", message, procedure=member.id, step=member.step, step_name=member.step_name or ""
    )


def _fail_refused(state: EngineState) -> None:
    """Fail the procedures that need a poisoned key and go forward still."""
    while state.follow_ups.refused:
        name, path = state.follow_ups.refused.popitem()
        record = state.residents.procs[name]
        if record.rolling or record.state in TERMINAL:
            continue
        if state.residents.has_no_return(record):
            # A relative was handed the step in the same moment as the key was poisoned: it waits on, and gets it.
            continue
        message = f"it needs a poisoned key: {state.locks.poison_notice(path)}"
        fail(
            state,
            record,
            ErrorInfo(
                "usage", "KeyPoisoned", message, procedure=name, step=record.step, step_name=record.step_name or ""
            ),
        )
