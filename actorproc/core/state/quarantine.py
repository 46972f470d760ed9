"""Damage found at a start: trees whose records are incomplete stay out of memory, and nothing of them is touched.

A parent, child or undo unit that cannot be read leaves open what a tree still has to do or to undo. The whole tree
is parked then; its locks stay granted, for it is not known what it left half done. The other trees run.

A grant that cannot be read is held for writing, the strongest it can have been. A poison record that cannot be read
still poisons its key: the key of the row says which one. An operator can take away a lock that is too strong, but not
add one that is missing.

A schedule that cannot be read does not fire, and is not declared anew: how far it had come is unknown, and whether it
was paused. An operator removes it first.
"""

from __future__ import annotations

from collections.abc import Iterable

from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.damage import DamageTable
from actorproc.core.state.tree import Tree
from actorproc.errors import StoreDamaged
from actorproc.model.policies import LockMode
from actorproc.model.rows.records import UNKNOWN_ROOT, PoisonRecord
from actorproc.model.rows.snapshot import Damage

__all__ = ["error_of", "error_of_schedule", "exclude", "exclude_damaged"]

_HELD_BY = " held by "
"""Separator of path and holder in the shown key of a lock; a holder's id has no spaces."""


def exclude_damaged(state: EngineState, damage: list[Damage], families: Iterable[str]) -> None:
    """Exclude every resident tree in which a record is missing; one that is not of `families` has a single record."""
    flaws: dict[str, str] = {}
    for found in damage:
        if found.table == "procedures":
            state.damage.procedures[found.key] = f"its record is damaged: {found.reason}"
        elif found.table == "undo":
            flaws[found.key.rpartition("/")[0]] = f"undo unit {found.key} is damaged: {found.reason}"
        elif found.table == "schedules":
            state.damage.schedules[found.key] = f"its row is damaged: {found.reason}"
        elif found.table == "locks":
            _keep_lock(state, found, flaws)
        elif found.table == "poison":
            _keep_poison(state, found)
        else:
            state.damage.flaws.append(f"{found.table} {found.key} is damaged: {found.reason}")
    for root in dict.fromkeys((*families, *flaws)):
        tree = state.residents.trees.get(root)
        if tree is not None:
            exclude(state, tree, flaws.get(root))


def _keep_lock(state: EngineState, found: Damage, flaws: dict[str, str]) -> None:
    path, _, name = found.key.rpartition(_HELD_BY)
    state.locks.table.hold(name, path, LockMode.WRITE)
    what = f"the lock of {path!r} held by {name} is damaged"
    state.damage.flaws.append(f"{what} and kept for writing: {found.reason}")
    holder = state.residents.procs.get(name)
    if holder is not None:
        flaws[holder.root] = f"{what}: {found.reason}"


def _keep_poison(state: EngineState, found: Damage) -> None:
    reason = f"its poison record is damaged: {found.reason}"
    state.locks.poisons[found.key] = PoisonRecord(found.key, "an unknown procedure", UNKNOWN_ROOT, 0.0, reason)
    state.damage.flaws.append(f"the poison record of {found.key!r} is damaged, so it stays poisoned: {found.reason}")


def exclude(state: EngineState, tree: Tree, reason: str | None = None) -> None:
    """Take a tree out of memory when a record of it is missing, or for the reason given."""
    reason = reason or _flaw_of(tree)
    if reason is not None:
        state.damage.procedures.update(dict.fromkeys(tree.members, f"its tree is incomplete: {reason}"))
        state.dismiss(tree)


def error_of(damage: DamageTable, procedure: str) -> StoreDamaged | None:
    """Error that forbids every action on a procedure; None when it is sound, or unknown."""
    reason = damage.procedures.get(procedure)
    if reason is None:
        return None
    return StoreDamaged(
        f"procedure {procedure} stands still: {reason}", table="procedures", key=procedure, reason=reason
    )


def error_of_schedule(damage: DamageTable, schedule: str) -> StoreDamaged | None:
    """Error that forbids every action on a schedule but its removal; None when it is sound, or unknown."""
    reason = damage.schedules.get(schedule)
    if reason is None:
        return None
    return StoreDamaged(
        f"schedule {schedule} does not fire: {reason}. Remove it (actorproc schedules {schedule} --remove) and declare "
        "it again; its instants then count from that declaration",
        table="schedules",
        key=schedule,
        reason=reason,
    )


def _flaw_of(tree: Tree) -> str | None:
    root = tree.members.get(tree.root)
    if root is None:
        return f"its root {tree.root} is missing"
    if len(tree.members) == 1 and not root.children and root.undo_next == 1:
        return None  # alone, as most are, and it has pushed no unit
    for record in tree.members.values():
        if record.parent is not None and record.parent not in tree.members:
            return f"the parent {record.parent} of {record.id} is missing"
        found = len(tree.children.get(record.id, ()))
        if found != record.children:
            return f"{record.children - found} of the {record.children} children of {record.id} are missing"
    for name in tree.units_of:
        if name not in tree.members:
            return f"{name}, which is to be undone, is missing"
    return None
