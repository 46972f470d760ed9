"""Trees as plain data, out of one store and into another: the form of a bug report.

Every record becomes an object of its fields; bytes are base64. Numbers that only mean something within a store (the
place in the order of submits, lock tickets, the life of the manager) are given anew when a tree comes in.
"""

from __future__ import annotations

import struct
import typing
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from actorproc.errors import InternalError, NotAllowed, StoreDamaged, UnknownProcedure, UsageError
from actorproc.model.policies import is_nested
from actorproc.model.rows.asks import ReplyRecord, is_sound, rewritten
from actorproc.model.rows.records import (
    AttemptRecord,
    AuditRecord,
    ChildRecord,
    EventRecord,
    ExposedRecord,
    LockRecord,
    NoteRecord,
    PoisonRecord,
    ProcedureRecord,
    StepRecord,
    UndoRecord,
)
from actorproc.model.rows.snapshot import Damage
from actorproc.model.rows.writes import (
    PutAttempt,
    PutAudit,
    PutChild,
    PutEvent,
    PutExposed,
    PutLock,
    PutNote,
    PutPoison,
    PutProcedure,
    PutReply,
    PutStep,
    PutUndo,
    Write,
)
from actorproc.model.states import TERMINAL
from actorproc.store.base import RecordStore
from actorproc.store.memory import MemoryStore
from actorproc.store.rows.tables import Table
from actorproc.store.verify.cross_check import cross_check

__all__ = ["bring_in", "judged", "take_out"]

_KINDS: dict[str, type[msgspec.Struct]] = {
    "procedures": ProcedureRecord,
    "steps": StepRecord,
    "children": ChildRecord,
    "undo": UndoRecord,
    "locks": LockRecord,
    "poisons": PoisonRecord,
    "events": EventRecord,
    "notes": NoteRecord,
    "attempts": AttemptRecord,
    "exposed": ExposedRecord,
    "replies": ReplyRecord,
    "audit": AuditRecord,
}
_VALUES: dict[type, tuple[str, ...]] = {
    ProcedureRecord: ("payload",),
    StepRecord: ("state", "output", "event"),
    EventRecord: ("payload",),
    NoteRecord: ("value",),
    ExposedRecord: ("value",),
    ReplyRecord: ("value",),
}
"""Values of a user, as bytes."""
_MEMBERS: dict[str, tuple[str, ...]] = {
    "procedures": ("root", "parent"),
    "steps": ("procedure",),
    "children": ("parent", "child"),
    "undo": ("procedure",),
    "locks": ("holder",),
    "events": ("target",),
    "notes": ("procedure",),
    "attempts": ("procedure",),
    "exposed": ("procedure",),
    "replies": ("procedure",),
    "audit": ("target",),
}
"""Fields that name members of the tree; None: none."""
_WRITES: dict[str, Any] = {
    "steps": PutStep,
    "children": PutChild,
    "undo": PutUndo,
    "locks": PutLock,
    "poisons": PutPoison,
    "events": PutEvent,
    "notes": PutNote,
    "attempts": PutAttempt,
    "exposed": PutExposed,
    "replies": PutReply,
    "audit": PutAudit,
}


def take_out(store: RecordStore, root: str, hide: Callable[[bytes], bytes] | None = None) -> dict[str, Any]:
    """A tree with all that belongs to it. Raises `UnknownProcedure` and `StoreDamaged`.

    `hide`: what is to become of each stored value of a user.
    """
    heads, units = store.tree(root)
    if not heads:
        msg = f"no procedure has the id {root!r}"
        raise UnknownProcedure(msg)
    heads = _present(heads)
    rows: dict[str, list[Any]] = {name: [] for name in _KINDS}
    rows["procedures"] += heads
    rows["undo"] += units
    if heads[0].state not in TERMINAL or heads[0].left_open:
        rows["locks"] += [lock for lock in store.locks() if lock.root == root]
    rows["poisons"] += [own for poison in store.poisons() if (own := _own_part(poison, root)) is not None]
    for head in heads:
        rows["steps"] += store.steps(head.id)
        rows["children"] += store.children(head.id)
        rows["events"] += store.events(head.id)
        rows["audit"] += store.audit(head.id)
        rows["notes"] += store.notes(head.id)
        rows["attempts"] += store.attempts(head.id)
        rows["exposed"] += store.exposed((head.id,)).get(head.id, ())
        rows["replies"] += store.replies(head.id)
    _check_whole(root, rows)
    return {"root": root} | {name: [_plain(row, hide) for row in found] for name, found in rows.items()}


def _present(heads: list[ProcedureRecord]) -> list[ProcedureRecord]:
    """The members of a tree without those of earlier generations, which are being removed."""
    if not any(head.renewed for head in heads):
        return heads
    since: dict[str, int] = {}
    present = []
    for head in heads:  # parents come before their children
        least = 0 if head.parent is None else since.get(head.parent, 0)
        since[head.id] = max(least, head.renewed)
        if head.seq >= least:
            present.append(head)
    return present


def _own_part(poison: PoisonRecord, root: str) -> PoisonRecord | None:
    """Own part of a key's poison that others may have poisoned too; None when the tree did not."""
    own = [owner for owner in poison.owners if owner[1] == root]
    if not own:
        return None
    return msgspec.structs.replace(poison, by=own[0][0], root=root, others=tuple(own[1:]))


def _check_whole(root: str, rows: dict[str, list[Any]]) -> None:
    """Raise `StoreDamaged` when a record of the tree is missing that its heads count."""
    known = {head.id: head for head in rows["procedures"]}
    steps: Counter[str] = Counter()
    for step in rows["steps"]:
        steps[step.procedure] += step.steps
    links = Counter(link.parent for link in rows["children"])
    missing = {link.parent for link in rows["children"] if link.child not in known}
    for head in known.values():
        in_log = steps[head.id] + max(0, head.trimmed - 1)
        is_lacking = in_log != head.records or links[head.id] != head.children or head.id in missing
        if is_lacking or root not in known:
            msg = f"the tree {root} is not whole: records of {head.id} are missing"
            raise StoreDamaged(msg, table="procedures", key=head.id, reason="records are missing")


def bring_in(
    store: RecordStore, trees: Iterable[dict[str, Any]], commit: Callable[[list[Write]], None] | None
) -> list[str]:
    """Put trees into a store that is owned; one `commit` for each. The roots that came in.

    Raises `NotAllowed` when an id is in use or a lock is held by another tree, and `UsageError` for data that is no
    export, before the first commit. `commit` None: only look whether it would work; that needs no owner.
    """
    brought = [judged(tree) for tree in trees]
    for name, count in Counter(head.id for rows in brought for head in rows["procedures"]).items():
        if count > 1:
            raise UsageError(f"this is no export of actorproc: {name} is in it {count} times")
    for rows in brought:
        _check(store, rows["procedures"], rows["locks"])
    snapshot = store.load()
    seq, ticket = snapshot.next_seq, snapshot.next_ticket
    poisons = {poison.path: poison for poison in snapshot.poisons}
    found = []
    for rows in brought:
        heads: list[Any] = sorted(rows["procedures"], key=lambda head: head.seq)
        for head in heads:
            head.seq, seq = seq, seq + 1
        for head in sorted(heads, key=lambda head: head.ticket):
            if head.ticket:
                head.ticket, ticket = ticket, ticket + 1
        rows["poisons"] = _merged(poisons, rows["poisons"])
        rows["events"] = [_behind(store, event) for event in rows["events"]]
        if commit is not None:
            commit(_writes(rows))
        found.append(str(heads[0].root))
    return found


def _writes(rows: dict[str, list[Any]]) -> list[Write]:
    return [
        *(PutProcedure(head, None) for head in rows["procedures"]),
        *(make(row) for name, make in _WRITES.items() for row in rows[name]),
    ]


def judged(tree: object) -> dict[str, list[Any]]:
    """The records of a tree, from an untrusted file. Raises `UsageError` unless it is one tree and whole."""
    if not isinstance(tree, dict) or not all(isinstance(tree.get(name, []), list) for name in _KINDS):
        raise UsageError("this is no export of actorproc: a tree is an object of lists of records")
    rows = {name: [_record(kind, row) for row in tree.get(name, ())] for name, kind in _KINDS.items()}
    if not rows["procedures"]:
        raise UsageError("this is no export of actorproc: a tree has no procedures")
    root = rows["procedures"][0].root
    members = {None, *(head.id for head in rows["procedures"])}
    for head in rows["procedures"]:
        head.epoch = 0
    for name, fields in _MEMBERS.items():
        for row in rows[name]:
            strangers = [getattr(row, field) for field in fields if getattr(row, field) not in members]
            if strangers or getattr(row, "root", root) != root:
                raise UsageError(f"this is no export of actorproc: {name} of others are in the tree {root!r:.80}")
    if any(poison.roots != {root} for poison in rows["poisons"]):
        raise UsageError(f"this is no export of actorproc: poisons of others are in the tree {root!r:.80}")
    _check_sound(rows)
    return rows


def _check_sound(rows: dict[str, list[Any]]) -> None:
    """Raise `UsageError` unless these would be all there is in a sound store."""
    alone = MemoryStore()
    try:
        alone.commit(_writes(rows), alone.own())
    except (InternalError, struct.error, UnicodeError) as error:  # numbers and texts that no store can hold
        raise UsageError(f"this is no export of actorproc: {error}") from None
    payloads = [head.payload for head in rows["procedures"]] + [event.payload for event in rows["events"]]
    if not all(is_sound(payload) for payload in (*payloads, *(step.event for step in rows["steps"])) if payload):
        raise UsageError("this is no export of actorproc: the name and the id of an ask are cut short")
    found = cross_check(alone._view())
    flaws: list[Damage | StoreDamaged] = [*found.damage.values(), *found.gaps]
    for flaw in flaws:
        if flaw.table == Table.AUDIT.label:
            continue  # nothing hangs on what operators asked for
        raise UsageError(f"this is no export of actorproc: {flaw.table} {flaw.key}: {flaw.reason}")


def _check(store: RecordStore, heads: list[Any], locks: list[Any]) -> None:
    for head in heads:
        if store.procedure(head.id, removed=True) is not None:
            raise NotAllowed(f"the id {head.id!r} is in use in this store; import into another one")
    for lock in locks:
        for held in store.locks():
            if is_nested(lock.path, held.path) and lock.mode.against & held.mode.own:
                raise NotAllowed(
                    f"{lock.root} holds a lock on {lock.path!r}, which {held.holder} has on {held.path!r} here; import "
                    "into another store"
                )


def _merged(known: dict[str, PoisonRecord], added: Iterable[PoisonRecord]) -> list[PoisonRecord]:
    """Keys that come in poisoned; one that is so here already stays poisoned for those as well."""
    found = []
    for poison in added:
        here = known.get(poison.path)
        if here is not None:
            owners = dict.fromkeys((*here.others, *poison.owners))
            owners.pop((here.by, here.root), None)
            poison = msgspec.structs.replace(here, others=tuple(owners))  # noqa: PLW2901
        known[poison.path] = poison
        found.append(poison)
    return found


def _behind(store: RecordStore, event: EventRecord) -> EventRecord:
    """A signal that comes in, numbered after those that were kept here for this id before it was in use."""
    kept = store.events(event.target)
    return msgspec.structs.replace(event, seq=event.seq + kept[-1].seq) if kept else event


def _plain(row: msgspec.Struct, hide: Callable[[bytes], bytes] | None) -> dict[str, Any]:
    values = {name: getattr(row, name) for name in row.__struct_fields__}
    if hide is not None:
        values |= {name: rewritten(values[name], hide) for name in _VALUES.get(type(row), ())}
    return {name: msgspec.to_builtins(value) for name, value in values.items()}


def _record(kind: type[msgspec.Struct], row: object) -> Any:
    if not isinstance(row, dict):
        raise UsageError(f"this is no export of actorproc: a {kind.__name__} is an object, not {row!r:.60}")
    hints = typing.get_type_hints(kind)
    try:
        # What a newer version added is left out, as records on disk are read.
        return kind(**{name: msgspec.convert(value, hints[name]) for name, value in row.items() if name in hints})
    except (msgspec.ValidationError, TypeError) as error:
        raise UsageError(f"this is no export of actorproc: a {kind.__name__} cannot be read: {error}") from None
