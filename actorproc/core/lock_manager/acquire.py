"""Asking for, inheriting and giving up locks, with their records."""

from __future__ import annotations

from actorproc.core.lock_manager.deadlocks import look_for_cycle, look_for_cycles
from actorproc.core.lock_manager.inheritance import inherit_priority, lend_priority
from actorproc.core.lock_manager.requests import request_of
from actorproc.core.state import head
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.locks import LockState
from actorproc.core.state.step_limits import limits_of
from actorproc.core.state.tree import Tree
from actorproc.model.policies import LockKey, LockMode
from actorproc.model.rows.records import LockRecord, ProcedureRecord
from actorproc.model.rows.writes import DeleteLock, PutLock

__all__ = [
    "ask",
    "covers_poison",
    "demote",
    "end_of_step",
    "has_retaken",
    "inherit",
    "keep_granted",
    "note_grants",
    "note_holder",
    "poisoned_key",
    "release",
    "withdraw",
    "write_lock",
]


def ask(state: EngineState, record: ProcedureRecord) -> bool:
    """Ask for all keys of a procedure; True when it holds them now.

    A procedure that waits already keeps its place.
    """
    if state.locks.table.is_waiting(record.id):
        return False
    tree = state.residents.tree_of(record)
    if not record.ticket:
        # Drawn when it asks and not before: a restart asks in the order of tickets and so makes the same queue.
        record.ticket = state.counters.take_ticket()
        state.decision.touch(record)
    if record.priority:
        state.locks.note_ranked()
    if state.locks.table.request(request_of(tree, record, is_undo=bool(record.undoing))):
        _write_grant(state, record)
        return True
    tree.waiting.add(record.id)
    if not (record.undoing or record.rolling or record.retaking):
        _limit_wait(state, record)
    priority = record.priority if tree.lent is None else max(record.priority, tree.lent)
    state.locks.note_waiter(record.id, priority)
    if state.locks.is_ranked:
        lend_priority(state, record, priority)
    look_for_cycle(state, record)
    return False


def _limit_wait(state: EngineState, record: ProcedureRecord) -> None:
    """Note how long it may wait for its locks; a restart goes on with the same time."""
    limit = limits_of(state.types, record).lock_wait
    if limit is None:
        return
    if not record.lock_due:
        head.limit_lock_wait(record, state.decision.now + limit)
        state.decision.touch(record)
    state.timers.add(record.lock_due, record.id)


def note_holder(state: EngineState, record: ProcedureRecord) -> None:
    """A procedure that holds locks comes into memory: it may be less urgent than others that wait for them."""
    if record.priority:
        state.locks.note_ranked()
    if state.locks.waiters and state.locks.is_ranked:
        inherit_priority(state, state.residents.tree_of(record))


def has_retaken(state: EngineState, tree: Tree) -> bool:
    """True if a tree that was retried holds again what it held; asks for it when it does not wait already."""
    root = state.residents.procs[tree.root]
    if not root.retaking:
        return True
    if root.paused is not None:
        return False
    if state.locks.poisons and not root.rolling and not state.locks.table.is_waiting(root.id):
        # A key that was poisoned while it was paused. Who undoes may have it.
        path = poisoned_key(state, root)
        if path is not None:
            state.follow_ups.refused[root.id] = path
            return False
    return ask(state, root)


def note_grants(state: EngineState) -> list[ProcedureRecord]:
    """Write down what releases made possible; return the procedures that go on."""
    granted = []
    while names := state.locks.table.drain():
        for name in names:
            record = state.residents.procs[name]
            state.residents.tree_of(record).waiting.discard(name)
            state.locks.forget_waiter(name)
            _write_grant(state, record)
            granted.append(record)
    return granted


def release(state: EngineState, record: ProcedureRecord) -> None:
    """Give up every key a procedure holds. Idempotent."""
    tree = state.residents.tree_of(record)
    if tree.is_bare:
        return  # nothing in it ever held a key
    state.locks.inherited.pop(record.id, None)
    tree.holders.discard(record.id)
    if not tree.holders:
        tree.lent = None
        if tree.privileged:
            state.follow_ups.bereft[tree.root] = None
    freed = state.locks.table.release(record.id)
    for path in freed:
        state.decision.write(DeleteLock(path, record.id))
    has_descendants = freed and tree.waiting and record.id in tree.children
    if has_descendants and any(member.id in tree.waiting for member in tree.below(record.id)):
        # It covered what they wait for, so they went before others; now they wait behind them, perhaps in a circle.
        look_for_cycles(state, tree)


def demote(state: EngineState) -> None:
    """Trees that hold no locks any more have no privilege; those that wait in them queue like newcomers."""
    for tree in [state.residents.trees[root] for root in state.follow_ups.bereft if root in state.residents.trees]:
        if not tree.holders:
            tree.privileged = False
            for name in sorted(tree.waiting, key=lambda name: state.residents.procs[name].ticket):
                if not state.residents.procs[name].undoing:
                    state.locks.table.demote(name)
    state.follow_ups.bereft.clear()


def end_of_step(state: EngineState, record: ProcedureRecord) -> None:
    """A step ended: locks of ``lock_scope = "step"`` are given up, to be asked for again before the next.

    Locks that the procedure keeps for its finished children stay: they belong to the tree until the root ends.
    """
    if record.lock_scope != "step" or not record.locks:
        return
    record.locked = False
    record.ticket = 0
    kept = state.locks.inherited.get(record.id)
    if kept is None:
        release(state, record)
        return
    before = dict(state.locks.table.keys_of(record.id))
    state.locks.table.reduce(record.id, kept)
    for path, mode in before.items():
        if path not in kept:
            state.decision.write(DeleteLock(path, record.id))
        elif mode != kept[path]:
            write_lock(state, record, path)


def inherit(state: EngineState, child: ProcedureRecord, parent: ProcedureRecord) -> None:
    """A finished child's keys pass to its parent: relatives may take them, strangers wait (Moss 1985)."""
    held = dict(state.locks.table.keys_of(child.id))
    if not held:
        return
    state.residents.tree_of(parent).hold(parent.id)
    for path, mode in held.items():
        state.locks.table.hold(parent.id, path, mode)
        if parent.lock_scope == "step":
            kept = state.locks.inherited.setdefault(parent.id, {})
            kept[path] = max(mode, kept.get(path, mode))
        write_lock(state, parent, path)
    release(state, child)
    if state.locks.table.is_waiting(parent.id):
        # It may wait behind a request for what it holds only now.
        look_for_cycle(state, parent)


def write_lock(state: EngineState, holder: ProcedureRecord, path: str) -> None:
    """Write down a key that a procedure holds, in the mode it has it."""
    mode = LockMode(state.locks.table.keys_of(holder.id)[path])
    kept = state.locks.inherited.get(holder.id, {}).get(path, 0)
    state.decision.write(PutLock(LockRecord(path, mode, holder.id, holder.root, state.decision.now, int(kept))))


def keep_granted(state: EngineState, record: ProcedureRecord) -> None:
    """It asks for no more keys: its keys are those it holds, or held when its tree failed and is to have again."""
    held = state.locks.table.keys_of(record.id)
    again = {key.path: key.mode for key in state.residents.procs[record.root].retaking}
    to_have = (key for key in record.locks if key.path not in held and again.get(key.path, 0) >= key.mode)
    record.locks = (*(LockKey(path, mode) for path, mode in held.items()), *to_have)
    record.locked = True


def withdraw(state: EngineState, record: ProcedureRecord) -> None:
    """Stop waiting for locks. Idempotent."""
    tree = state.residents.tree_of(record)
    if not tree.is_bare:
        state.locks.table.withdraw(record.id)
        tree.waiting.discard(record.id)
        head.limit_lock_wait(record, 0.0)
        state.locks.forget_waiter(record.id)


def covers_poison(locks: LockState, keys: tuple[LockKey, ...], root: str) -> str | None:
    """The poisoned key that refuses these keys to a tree, None when there is none.

    A poison key conflicts like a write lock of its owner, never with the tree of one who poisoned it.
    """
    for path, poison in locks.poisons.items():
        if root in poison.roots:
            continue
        for key in keys:
            if key.path == path or key.path.startswith(path + "/") or path.startswith(key.path + "/"):
                return path
    return None


def poisoned_key(state: EngineState, record: ProcedureRecord) -> str | None:
    """The poisoned key that keeps a procedure from the keys it does not hold yet.

    Past the point of no return there is only the way forward, poisoned or not.
    """
    if state.residents.has_no_return(record):
        return None
    held = state.locks.table.keys_of(record.id)
    wanted = tuple(key for key in record.retaking or record.locks if held.get(key.path, 0) < key.mode)
    return covers_poison(state.locks, wanted, record.root)


def _write_grant(state: EngineState, record: ProcedureRecord) -> None:
    tree = state.residents.tree_of(record)
    is_first = tree.hold(record.id)
    head.limit_lock_wait(record, 0.0)
    keys = record.retaking or record.locks
    if record.retaking:
        _note_retaken(state, tree, record)
    else:
        record.locked = True
    for path in dict.fromkeys(key.path for key in keys):
        write_lock(state, record, path)
    state.decision.touch(record)
    if is_first:
        # The tree holds locks now, so its other waiters go before those of trees that hold none.
        for name in sorted(tree.waiting, key=lambda name: state.residents.procs[name].ticket):
            state.locks.table.promote(name)
    if record.id in tree.children:
        # Those below it may have waited behind it.
        below = [name for name in tree.waiting if tree.is_below(name, record.id)]
        for name in sorted(below, key=lambda name: state.residents.procs[name].ticket):
            state.locks.table.look_again(name)
    if is_first or state.locks.table.is_in_the_way(keys):
        look_for_cycles(state, tree)
    if state.locks.waiters and state.locks.is_ranked:
        inherit_priority(state, tree)


def _note_retaken(state: EngineState, tree: Tree, root: ProcedureRecord) -> None:
    """The tree holds again what it held when its root failed: it goes on."""
    if root.lock_scope == "step":
        # Not for its next step, but for its tree until it ends.
        state.locks.inherited[root.id] = {key.path: key.mode for key in root.retaking}
    root.retaking = ()
    tree.note_still(root)
    state.follow_ups.retaken[root.id] = None
