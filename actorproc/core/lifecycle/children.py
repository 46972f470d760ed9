"""Sub-procedures of a suspended step: checked before the step is recorded, created with it in one decision."""

from __future__ import annotations

from collections import OrderedDict

from msgspec.structs import replace

from actorproc.core.lifecycle.removal import remove_one
from actorproc.core.lifecycle.submit import admit, refusal
from actorproc.core.scheduler.pick import on_suspended
from actorproc.core.scheduler.schedule import wake
from actorproc.core.state import head
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.transitions import Trigger, move
from actorproc.core.state.tree import Tree
from actorproc.model.messages.outcomes import Answered, Outcome, Suspended
from actorproc.model.rows.records import ChildRecord, Interrupted, ProcedureRecord
from actorproc.model.rows.writes import PutChild
from actorproc.model.states import ProcedureState
from actorproc.model.trace_context import child_trace

__all__ = ["finished", "is_due", "join_group", "leave_held", "make_children", "problem_with", "release", "suspend"]


def problem_with(state: EngineState, record: ProcedureRecord, outcome: Outcome) -> str | None:
    """Reason why the engine cannot do what a step asked for; None when it can. Then the step counts as failed."""
    if isinstance(outcome, Answered):
        return "an answer to abort() came where a step's outcome was due"
    if not isinstance(outcome, Suspended):
        return None
    quotas, count = state.settings.quotas, len(outcome.children)
    if count and record.depth + 1 > quotas.depth:
        return f"sub-procedures are nested deeper than {quotas.depth} (Config.max_depth); nest fewer, or allow more"
    if record.children + count > quotas.children:
        count += record.children
        allowed = f"the {quotas.children} one procedure may have (Config.max_children)"
        return f"{count} children are more than {allowed}; let some of them start the others, or allow more"
    if len(state.residents.tree_of(record).members) + count > quotas.tree:
        allowed = f"{quotas.tree} procedures (Config.max_tree)"
        return f"the tree of {record.root} would have more than {allowed}; start fewer, or allow more"
    seen = set() if outcome.requests is None else {new.id for new in outcome.requests.roots}
    for new in outcome.children:
        if new.id in seen or new.id in state.residents.procs:
            return f"child id {new.id} is in use already; every child needs an id of its own"
        seen.add(new.id)
        error = refusal(state, new, record.root)
        if error is not None:
            return f"child {new.id}: {error}"
    return None


def suspend(state: EngineState, record: ProcedureRecord, outcome: Suspended) -> None:
    """Create the children and wait: for all outstanding ones, or for the next one that finishes.

    Children that an earlier step left outstanding (``wait="any"`` or ``"each"``) belong to the same group, also when
    they have ended meanwhile. Nothing outstanding, or an end that the parent has not seen yet, resumes it at once.
    """
    children = join_group(state, record, outcome)
    if children:
        held = state.residents.tree_of(record).held.setdefault(record.id, OrderedDict())
        held.update(dict.fromkeys(child.id for child in children))
    if is_due(record):
        record.seen = finished(record)
        release(state, record)
        wake(state, record)
        return
    move(record, Trigger.SUSPENDED)
    release(state, record)
    on_suspended(state, record)


def join_group(state: EngineState, record: ProcedureRecord, outcome: Suspended) -> list[ProcedureRecord]:
    """Create the children; those of earlier steps that are outstanding, or whose end was not seen, join their group."""
    if not record.pending and finished(record) == record.seen:
        record.group = record.step - 1
        record.width = record.started = 0
    children = make_children(state, record, outcome)
    record.awaiting = record.group
    record.wait, record.max_parallel, record.on_parent_end = outcome.wait, outcome.max_parallel, outcome.on_parent_end
    record.pending += len(children)
    record.width += len(children)
    return children


def finished(record: ProcedureRecord) -> int:
    """Number of a procedure's children that have finished, over all its steps."""
    return record.succeeded + record.failed


def is_due(record: ProcedureRecord) -> bool:
    """True if the children that a suspended parent waits for have ended."""
    if record.wait == "all":
        return not record.pending
    return not record.pending or finished(record) > record.seen


def release(state: EngineState, record: ProcedureRecord) -> None:
    """Let children that are kept back run, as many as `max_parallel` leaves room for."""
    tree = state.residents.trees[record.root]
    held = tree.held.get(record.id)
    if held is None:
        return
    freed = []
    while held and (record.max_parallel is None or record.pending - len(held) < record.max_parallel):
        name = held.popitem(last=False)[0]
        freed.append(name)
        record.started = _place_of(tree, record, name) + 1
    if not held:
        del tree.held[record.id]
    if freed:
        state.decision.touch(record)
    for name in freed:
        wake(state, state.residents.procs[name])


def _place_of(tree: Tree, record: ProcedureRecord, name: str) -> int:
    """Place of a child in the present group. Those between it and the last one released ended while they were held."""
    children = tree.children[record.id]
    first = len(children) - record.width
    place = record.started
    while children[first + place] != name:
        place += 1
    return place


def leave_held(tree: Tree, record: ProcedureRecord) -> None:
    """A child has ended that `max_parallel` may have kept back."""
    held = tree.held.get(record.parent) if record.parent is not None else None
    if held is not None and held.pop(record.id, 0) is None and not held:
        del tree.held[record.parent or ""]


def _never_start(child: ProcedureRecord) -> None:
    """Its parent's tree fails already. The keys it was to have it never asked for: only a retry needs them."""
    child.rolling = True
    if child.locks and child.lock_scope == "procedure":
        head.interrupt(child, Interrupted(ProcedureState.RUNNABLE, keys=child.locks))
        child.locks, child.locked = (), True


def make_children(state: EngineState, record: ProcedureRecord, outcome: Suspended) -> list[ProcedureRecord]:
    """Create the children of the step just recorded. Those of a failing parent are recorded and never start."""
    children = []
    is_traced = record.past is not None and record.past.trace is not None
    for index, new in enumerate(outcome.children):
        if new.id in state.ended.shedding:
            remove_one(state, state.ended.shedding[new.id])  # a child of an earlier generation had this id
        trace = child_trace(record, new.id, left=outcome.on_parent_end == "leave") if is_traced else None
        child = admit(state, new if trace is None else replace(new, trace=trace), record)
        state.decision.write(PutChild(ChildRecord(record.id, record.step - 1, index, child.id)))
        if record.rolling:
            _never_start(child)
        children.append(child)
    record.children += len(children)
    return children
