"""Removal of finished trees: when they have been kept long enough, or at a caller's request.

A tree leaves as a whole, in one decision. One with more members than `CHUNK` is first marked as removed, which hides
all of it. Then it leaves in parts, the latest members first and the root last; the mark goes with the root. So no
reader sees half a tree, whenever a crash comes, and no commit is long.

Only trees that are not in memory are removed by the clock, for what is stored of them is what they are. The sweeper
reads the store and brings the trees here. Their removal is decided here, against the present engine state.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy

from actorproc.core.lock_manager.poison import disown
from actorproc.core.state import signal_ids
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.damage import DamageTable
from actorproc.core.state.parts.ended import EndedTrees
from actorproc.core.state.parts.locks import LockState
from actorproc.core.state.quarantine import error_of
from actorproc.errors import ActorprocError, NotAllowed
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.events import (
    Acknowledged,
    DeleteRequested,
    RemovalContinued,
    ResultsTaken,
    TreesExpired,
)
from actorproc.model.rows.records import AcknowledgementRecord, ProcedureRecord, RemovalRecord
from actorproc.model.rows.snapshot import FinishedTree
from actorproc.model.rows.writes import DeleteLock, DeleteProcedure, DeleteRemoval, PutAcknowledgement, PutRemoval
from actorproc.model.states import TERMINAL, ProcedureState

__all__ = ["CHUNK", "acknowledge", "continue_removal", "delete", "expire", "is_leaving", "remove_one", "take"]

CHUNK = 256
"""Procedures removed in one commit."""


# ---------------------------------------------------------------------- acknowledge
def acknowledge(state: EngineState, event: Acknowledged) -> None:
    """The result was taken: the tree goes after `Retention.acknowledged_seconds` (HBase's removeResult)."""
    record = _known(state, event.id, event.head)
    if record is None or (refused := _refusal(state.damage, record, "acknowledged")) is not None:
        state.decision.command(Reply(event.reply, value=False) if record is None else Reply(event.reply, error=refused))
        return
    if record.id not in state.ended.acknowledged:
        state.ended.acknowledged[record.id] = state.decision.now
        state.decision.write(PutAcknowledgement(AcknowledgementRecord(record.id, state.decision.now)))
        if event.reason is not None or event.by is not None:
            state.audit(None, "acknowledge", event, record.id, record.id)
    state.decision.command(Reply(event.reply, value=True))


# ---------------------------------------------------------------------- delete
def delete(state: EngineState, event: DeleteRequested) -> None:
    """Remove a finished root at once; False when there is none of this id."""
    stored = event.tree.members[0] if event.tree is not None else None
    record = _known(state, event.id, stored)
    if record is None:
        error = error_of(state.damage, event.id)
        state.decision.command(Reply(event.reply, value=False) if error is None else Reply(event.reply, error=error))
        return
    refused = _refusal(state.damage, record, "deleted") or _unsound(state.locks, record, force=event.force)
    if refused is not None:
        state.decision.command(Reply(event.reply, error=refused))
        return
    state.audit(None, "delete", event, record.id, record.id)
    _remove(state, event.tree or FinishedTree((record,)))
    state.decision.command(Reply(event.reply, value=True))


def _known(state: EngineState, id: str, stored: ProcedureRecord | None) -> ProcedureRecord | None:
    record = state.residents.procs.get(id)
    if record is not None or stored is None or id in state.ended.removed or stored.root in state.ended.removals:
        return record
    return stored


def _refusal(damage: DamageTable, record: ProcedureRecord, verb: str) -> ActorprocError | None:
    if (damaged := error_of(damage, record.id)) is not None:
        return damaged
    if record.parent is not None:
        return NotAllowed(f"{record.id} is a child and goes with its root {record.root}, which can be {verb}")
    if record.state not in TERMINAL:
        ends = f"abort({record.id!r}) ends it"
        return NotAllowed(f"{record.id} is {record.state}; only what has finished can be {verb} ({ends})")
    if record.left_open and verb == "deleted":
        return NotAllowed(f"{record.id} left children behind that have not finished; it can be {verb} when they have")
    return None


def _unsound(locks: LockState, record: ProcedureRecord, *, force: bool) -> NotAllowed | None:
    keys = [path for path, owners in _poisoners(locks) if record.id in owners]
    if not keys or force:
        return None
    return NotAllowed(
        f"{record.id} owns the poisoned key {keys[0]!r}{f' and {len(keys) - 1} more' if keys[1:] else ''}: its record "
        f"says what went wrong. Clear it with manager.clear_poison({keys[0]!r}), or delete with force=True; "
        "the key stays poisoned then"
    )


def _poisoners(locks: LockState) -> Iterable[tuple[str, frozenset[str]]]:
    """Every poisoned key with the roots of all who poisoned it."""
    for path, poison in locks.poisons.items():
        yield path, poison.roots


# ---------------------------------------------------------------------- the clock
def take(state: EngineState, event: ResultsTaken) -> None:
    """Remove calls whose results were taken; the reply names those that are not at rest yet."""
    left = []
    for tree in event.trees:
        root = tree.members[0]
        if root.id in state.residents.trees or root.state not in TERMINAL:
            left.append(root.id)
        elif not _is_in_use(state, root.id):
            _remove(state, tree)
    state.decision.command(Reply(event.reply, value=tuple(left)))


def _is_in_use(state: EngineState, root: str) -> bool:
    return (
        is_leaving(state.ended, root)
        or root in state.residents.trees
        or root in state.queues.run_queue.cold
        or root in state.damage.procedures
    )


def expire(state: EngineState, event: TreesExpired) -> None:
    """Remove those of the trees that have been kept long enough and need no operator."""
    unsound = {root for _, owners in _poisoners(state.locks) for root in owners}
    for tree in event.trees:
        root = tree.members[0]
        if _is_in_use(state, root.id):
            continue
        is_over = not root.left_open and all(member.state in TERMINAL for member in tree.members)
        if is_over and _is_due(state, tree, event.at, needs_operator=_needs_operator(tree, unsound)):
            _remove(state, tree)


def is_leaving(ended: EndedTrees, root: str) -> bool:
    """The root was removed by a decision that may not be stored yet, or is half removed."""
    return root in ended.removed or root in ended.removals


def _needs_operator(tree: FinishedTree, unsound: set[str]) -> bool:
    root = tree.members[0]
    return root.id in unsound or (root.state is ProcedureState.FAILED and tree.units and root.rollback_supported)


def _is_due(state: EngineState, tree: FinishedTree, at: float, *, needs_operator: bool) -> bool:
    policy = state.settings.retention
    root = tree.members[0]
    age = at - (root.finished_at if root.finished_at is not None else at)
    if needs_operator:
        return policy.failed_seconds is not None and age >= policy.failed_seconds
    taken = state.ended.acknowledged.get(root.id)
    if taken is not None and at - taken >= policy.acknowledged_seconds:
        return True
    return tree.surplus or (policy.seconds is not None and age >= policy.seconds)


# ---------------------------------------------------------------------- removing
def _remove(state: EngineState, tree: FinishedTree) -> None:
    root = tree.members[0].id
    if state.locks.poisons:
        disown(state, root)
    resident = state.residents.trees.get(root)
    if resident is not None:
        # Not stored yet as it is, so it cannot be read back in parts: it goes at once. Hardly ever so.
        members: Sequence[ProcedureRecord] = [copy(member) for member in resident.members.values()]
        state.dismiss(resident)
        state.residents.unsettled.pop(root, None)
    elif tree.more or len(tree.members) > CHUNK:
        mark = state.ended.removals[root] = RemovalRecord(root, state.decision.now)
        state.decision.write(PutRemoval(mark))
        state.ended.removed[root] = state.counters.batch
        return
    else:
        members = tree.members
    for member in reversed(members):
        remove_one(state, member)


def remove_one(state: EngineState, member: ProcedureRecord) -> None:
    """Remove one procedure that has ended, with all that is kept of it."""
    state.ended.shedding.pop(member.id, None)
    if state.schedules.by_firing and member.id in state.schedules.by_firing:
        state.note_firing_over(member.id)
    for path in state.locks.table.release(member.id):  # none, unless the store was changed from outside
        state.decision.write(DeleteLock(path, member.id))
    state.locks.inherited.pop(member.id, None)
    state.signals.buffered.pop(member.id, None)
    signal_ids.drop(state.signals, member.id)
    state.ended.acknowledged.pop(member.id, None)
    state.ended.removed[member.id] = state.counters.batch
    state.decision.write(DeleteProcedure(member))


def continue_removal(state: EngineState, event: RemovalContinued) -> None:
    """Remove the next part of a tree that is marked as removed."""
    if event.root not in state.ended.removals:
        return
    for member in event.members:
        # One that was removed a moment ago may be read once more, and its id may belong to another procedure already.
        if member.id not in state.ended.removed or member.id == event.root:
            remove_one(state, member)
    if not event.more:
        del state.ended.removals[event.root]
        state.decision.write(DeleteRemoval(event.root))
