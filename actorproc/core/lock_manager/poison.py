"""Poison keys: what may be half done is refused to others until it is known to be sound (Greptime's poison keys).

Several procedures may have poisoned one key: it is free when the last of them took it back, or when an operator
clears it. The first of them is the one people are told of; the others are listed with it, durably.
"""

from __future__ import annotations

from msgspec.structs import replace

from actorproc.core.lock_manager import acquire
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.tree import Tree
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.events import PoisonCleared
from actorproc.model.rows.records import UNKNOWN_ROOT, PoisonRecord, ProcedureRecord
from actorproc.model.rows.writes import DeletePoison, PutPoison

__all__ = ["clear", "declare", "disown", "free_tree", "poison", "take_back_all", "update_poisons"]

_DECLARED = "set by poison_keys() before a risky step"


def poison(state: EngineState, path: str, by: ProcedureRecord, reason: str) -> None:
    """Poison a key; who waits for it already fails."""
    known = state.locks.poisons.get(path)
    owners = () if known is None else known.owners
    others = tuple(owner for owner in owners if owner != (by.id, by.root))
    _put(state, PoisonRecord(path, by.id, by.root, state.decision.now, reason, others))
    _refuse_waiters(state)


def declare(state: EngineState, record: ProcedureRecord, keys: tuple[str, ...]) -> None:
    """Poison the keys that a procedure names in `poison_keys()`, also those that another one has poisoned before."""
    for path in keys:
        known = state.locks.poisons.get(path)
        if known is None:
            poison(state, path, record, _DECLARED)
        elif (record.id, record.root) not in known.owners:
            _put(state, replace(known, others=(*known.others, (record.id, record.root))))


def update_poisons(state: EngineState, record: ProcedureRecord, keys: tuple[str, ...]) -> None:
    """Take what `poison_keys()` names now: the difference to what it named before goes into this decision."""
    for path in record.poisons:
        if path not in keys:
            _take_back(state, record, path)
    declare(state, record, keys)
    record.poisons = keys


def take_back_all(state: EngineState, record: ProcedureRecord) -> None:
    """A retried procedure came to a clean end: whatever it poisoned on the way is sound again."""
    for path in list(state.locks.poisons):
        _take_back(state, record, path)


def free_tree(state: EngineState, tree: Tree) -> None:
    """An operator answers for what a tree left half done: none of its poison stays."""
    for record in tree.members.values():
        take_back_all(state, record)


def disown(state: EngineState, root: str) -> None:
    """Keep what a removed tree poisoned. A procedure that gets one of its ids is not exempt, and frees nothing."""
    for known in list(state.locks.poisons.values()):
        if root in known.roots:
            others = tuple((name, UNKNOWN_ROOT if theirs == root else theirs) for name, theirs in known.others)
            _put(state, replace(known, root=UNKNOWN_ROOT if known.root == root else known.root, others=others))


def _take_back(state: EngineState, record: ProcedureRecord, path: str) -> None:
    known = state.locks.poisons.get(path)
    own = (record.id, record.root)
    if known is None or own not in known.owners:
        return
    left = tuple(other for other in known.others if other != own)
    if (known.by, known.root) != own:
        _put(state, replace(known, others=left))
        _refuse_waiters(state)
    elif left:
        # The key stays poisoned for those who are between setting it and a known-clean outcome, or never got there.
        by, root = left[0]
        _put(state, PoisonRecord(path, by, root, known.at, _DECLARED, left[1:]))
        _refuse_waiters(state)
    else:
        del state.locks.poisons[path]
        state.decision.write(DeletePoison(path))


def _refuse_waiters(state: EngineState) -> None:
    """Fail the waiters for a poisoned key: of all trees but those that poison it themselves, or not any more."""
    for name in list(state.locks.table.waiting()):
        waiting = state.residents.procs[name]
        path = None if waiting.undoing else acquire.poisoned_key(state, waiting)
        if path is not None:
            state.follow_ups.refused[name] = path


def _put(state: EngineState, record: PoisonRecord) -> None:
    state.locks.poisons[record.path] = record
    state.decision.write(PutPoison(record))


def clear(state: EngineState, event: PoisonCleared) -> None:
    """An operator found the object behind a key to be sound; False means that the key is not poisoned.

    Procedures that needed the key were refused, so none is woken. A poisoner that still runs goes on, and may
    poison the key again with a later step.
    """
    is_poisoned = state.locks.poisons.pop(event.path, None) is not None
    if is_poisoned:
        state.decision.write(DeletePoison(event.path))
        state.audit(None, "clear-poison", event, event.path)
    state.decision.command(Reply(event.reply, value=is_poisoned))
