"""New procedures: from a caller, or as children of a suspended step."""

from __future__ import annotations

from actorproc.core import locking
from actorproc.core.book import Book
from actorproc.core.damage import error_of
from actorproc.core.lifecycle import Trigger, move
from actorproc.core.queueing import wake
from actorproc.core.staff import BULKY
from actorproc.errors import ActorprocError, DuplicateProcedure, KeyPoisoned, ManagerBusy, UnknownType
from actorproc.model.commands import Reply
from actorproc.model.events import Submitted
from actorproc.model.records import NewProcedure, ProcedureRecord, StepKind, StepRecord
from actorproc.model.states import ProcedureState
from actorproc.model.writes import PutStep

__all__ = ["admit", "refusal", "submit"]

# Looked up once: CPython 3.11 runs Python code for every member that is taken from its enum.
_INITIALIZING, _SUBMITTED, _STEP = ProcedureState.INITIALIZING, Trigger.SUBMITTED, StepKind.STEP


def submit(book: Book, event: Submitted) -> None:
    """Accept all procedures of a call or none; one that exists already with the same start is no new one."""
    accepted: list[NewProcedure] = []
    named: dict[str, NewProcedure] = {}
    for new in event.procedures:
        twin = named.get(new.id)
        error = _clash(new, twin.type_name, twin.version, twin.digest) if twin is not None else refusal(book, new)
        if error is not None:
            book.command(Reply(event.reply, error=error))
            return
        if twin is None:
            named[new.id] = new
            if new.id not in book.procs:
                accepted.append(new)
    if accepted and (busy := _too_many(book, len(accepted))) is not None:
        book.command(Reply(event.reply, error=busy))
        return
    for new in accepted:
        wake(book, admit(book, new, parent=None))
    book.command(Reply(event.reply, tuple(new.id for new in event.procedures)))


def _too_many(book: Book, count: int) -> ManagerBusy | None:
    """The limit on unfinished roots. Children, retries and what recovery finds are never refused for it."""
    limits = book.scheduling
    room = limits.max_queued + (limits.max_running or 0)
    if book.open_roots + count <= room:
        return None
    allowed = f"{limits.max_queued} may be queued (Config.max_queued)"
    if limits.max_running is not None:
        allowed = f"{limits.max_running} may run (Config.max_running) and {allowed}"
    return ManagerBusy(
        f"{book.open_roots} submitted procedures are unfinished and {count} more were refused: {allowed}; "
        "submit again when some have ended, or allow more"
    )


def refusal(book: Book, new: NewProcedure, root: str = "") -> ActorprocError | None:
    """Why a procedure cannot be accepted; None when it can, or when it is the same submit again."""
    if new.id in book.damaged:
        return error_of(book, new.id)
    known = book.procs.get(new.id)
    if known is not None:
        return _clash(new, known.type_name, known.version, known.digest)
    if new.type_name not in book.types:
        return UnknownType(f"no class is registered as {new.type_name!r}; register it before submitting {new.id}")
    if book.poisons:
        path = locking.covers_poison(book, new.locks, root)
        if path is not None:
            return KeyPoisoned(f"{new.id} needs a poisoned key: {book.poison_notice(path)}")
    return None


def _clash(new: NewProcedure, type_name: str, version: int, digest: bytes) -> ActorprocError | None:
    if type_name != new.type_name:
        return DuplicateProcedure(
            f"procedure {new.id} exists as {type_name}; it cannot be submitted as {new.type_name}"
        )
    # What versions of a class dump of the same state differs: between two of them nothing can be compared.
    if version == new.version and digest and digest != new.digest:
        return DuplicateProcedure(
            f"procedure {new.id} ({type_name}) exists with another initial state; use another id, or the same state"
        )
    return None


def admit(book: Book, new: NewProcedure, parent: ProcedureRecord | None) -> ProcedureRecord:
    """Make the head and the first step record of a procedure; the caller wakes it."""
    meta = book.types[new.type_name]
    record = ProcedureRecord(
        id=new.id,
        type_name=new.type_name,
        version=new.version,
        root=parent.root if parent is not None else new.id,
        parent=parent.id if parent is not None else None,
        seq=book.next_seq,
        state=_INITIALIZING,
        depth=parent.depth + 1 if parent is not None else 0,
        unit=new.unit,
        unit_no_return=new.no_return,
        rollback_supported=meta.rollback_supported,
        on_child_failure=meta.on_child_failure,
        undo_children=meta.undo_children,
        lock_scope=meta.lock_scope,
        due_at=new.due_at,
        deadline=_earlier(new.deadline, parent.deadline if parent is not None else None),
        locks=new.locks,
        poisons=new.poisons,
        owner=new.owner if new.owner is not None or parent is None else parent.owner,
        tags=new.tags,
        priority=max(new.priority, parent.priority) if parent is not None else new.priority,
        limit_keys=new.limit_keys,
        created_at=book.now,
        digest=new.digest,
        limits=new.limits,
        epoch=book.epoch,
    )
    book.next_seq += 1
    if len(new.state) >= BULKY:
        book.staff.note_size(new.id, len(new.state))
    if new.locks:
        record.locked = False
    book.admit(record, stored=False)
    move(record, _SUBMITTED)
    book.write(
        PutStep(
            StepRecord(
                procedure=new.id,
                number=1,
                kind=_STEP,
                at=book.now,
                state=new.state,
                codec=new.codec,
                version=new.version,
                outcome="submitted",
                label=new.unit,
            )
        )
    )
    if record.deadline is not None:
        book.timers.add(record.deadline, record.id)
    book.touch(record)
    return record


def _earlier(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)
