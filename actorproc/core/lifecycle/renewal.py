"""`Status.again`: the commit point of a procedure that never ends. Steps before it are never undone.

As continue-as-new in Temporal and eternal orchestrations in Azure Durable Functions. The procedure keeps its id, its
handles and its place among others; a new generation of it begins at the first step. Its undo units, notes, links and
ended children go: the former in the commit of the step, the children in slices in the decisions that follow.
"""

from __future__ import annotations

from itertools import islice

import msgspec

from actorproc.core.lifecycle.removal import remove_one
from actorproc.core.lifecycle.step_record import commit_step
from actorproc.core.lock_manager import acquire
from actorproc.core.queues.worker_table import InHand
from actorproc.core.scheduler.schedule import wake
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.residents import ResidentSet
from actorproc.core.state.tree import Tree
from actorproc.model.messages.outcomes import Renewed
from actorproc.model.policies import LockMode
from actorproc.model.rows.records import Past, ProcedureRecord
from actorproc.model.rows.writes import DeleteLinks, DeleteLock, DeleteUndo, TrimLog
from actorproc.model.states import TERMINAL
from actorproc.model.trace_context import begun_anew

__all__ = ["SLICE", "begin_again", "drop_stale", "problem_with", "shed"]

SLICE = 256
"""Ended children of earlier generations that are removed in one decision."""


def problem_with(residents: ResidentSet, record: ProcedureRecord) -> str | None:
    """The reason why a procedure cannot begin again now; None when it can."""
    tree = residents.tree_of(record)
    if record.parent is not None and residents.procs[record.parent].state not in TERMINAL:
        return (
            f"Status.again(…) is for roots, and for children whose parent has ended; {record.id} is a child of "
            f"{record.parent}, which has not. Return Status.executing() to go on, or Status.done(…)"
        )
    for member in tree.below(record.id):
        if member is not record and member.state not in TERMINAL:
            return (
                f"Status.again(…) ends a generation, and the child {member.id} of it has not ended; wait for it with "
                'Status.suspended([], wait="all") first, or abort it'
            )
    return None


def begin_again(state: EngineState, record: ProcedureRecord, item: InHand, outcome: Renewed) -> None:
    """Write the first record of the next generation, and let go of the last one."""
    commit_step(state, record, item, outcome.as_first_state(), "again", None)
    record.past = begun_anew(record, state.decision.now)
    record.generation += 1
    if record.begun < 0:  # of a fork
        record.past = msgspec.structs.replace(record.past or Past(), origin=record.begun)
    record.begun = record.step - 1
    record.last_unit = None
    record.stuck = record.tried = 0
    if record.parent is None:
        record.no_return = False
    _drop_units(state, record)
    # Notes of all steps so far; the records themselves go by `keep_steps`.
    state.decision.write(TrimLog(record.id, 1, 0, record.step))
    if record.children:
        state.decision.write(DeleteLinks(record.id))
        record.children = record.succeeded = record.failed = 0
        record.child_states = None if record.child_states is None else ()
        record.seen = record.group = record.width = record.started = 0
        record.past = msgspec.structs.replace(record.past or Past(), renewed=state.counters.next_seq)
        drop_stale(state, state.residents.tree_of(record))
    _exchange_locks(state, record, outcome)
    wake(state, record, to_the_back=True)


def _drop_units(state: EngineState, record: ProcedureRecord) -> None:
    tree = state.residents.tree_of(record)
    for member in tree.below(record.id):
        for unit in list(tree.units_of.get(member.id, ())):
            tree.pop(unit)
            state.decision.write(DeleteUndo(unit.root, unit.seq))
    if record.parent is None:
        record.undo_next = 1


def _exchange_locks(state: EngineState, record: ProcedureRecord, outcome: Renewed) -> None:
    """Keep the keys that both generations name, give up the others, and ask for those that are new."""
    wanted: dict[str, LockMode] = {}
    for key in outcome.locks:
        wanted[key.path] = max(key.mode, wanted.get(key.path, key.mode))
    held = dict(state.locks.table.keys_of(record.id))
    kept = {path: min(mode, wanted[path]) for path, mode in held.items() if path in wanted}
    state.locks.inherited.pop(record.id, None)
    record.locks = outcome.locks
    if held and (not kept or record.lock_scope == "step"):
        acquire.release(state, record)
        kept = {}
    elif kept != held:
        state.locks.table.reduce(record.id, kept)
    if kept:
        for path in held:
            if path not in kept:
                state.decision.write(DeleteLock(path, record.id))
            else:
                acquire.write_lock(state, record, path)
    record.locked = all(kept.get(path, 0) >= mode for path, mode in wanted.items())
    record.ticket = 0


# ---------------------------------------------------------------------- ended children
def drop_stale(state: EngineState, tree: Tree) -> None:
    """Take ended members of earlier generations out of memory; `shed` removes them from the store."""
    stale = _stale_members(tree)
    if not stale:
        return
    for member in stale:
        tree.forget(member.id)
        state.forget(member.id)
        if member.id not in state.ended.removed:
            state.ended.shedding[member.id] = member
    gone = {member.id for member in stale}
    for parent, names in list(tree.children.items()):
        left = [name for name in names if name not in gone]
        if left and parent not in gone:
            tree.children[parent] = left
        else:
            del tree.children[parent]


def _stale_members(tree: Tree) -> list[ProcedureRecord]:
    return [
        member
        for record in list(tree.members.values())
        if record.renewed
        for member in tree.below(record.id)
        if member is not record and member.seq < record.renewed
    ]


def shed(state: EngineState) -> None:
    """Remove the next slice of members of earlier generations, children before their parents."""
    for name in list(islice(reversed(state.ended.shedding), SLICE)):
        remove_one(state, state.ended.shedding[name])
