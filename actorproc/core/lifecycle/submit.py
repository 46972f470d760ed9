"""New procedures: from a caller, or as children of a suspended step."""

from __future__ import annotations

from actorproc.core.lifecycle import restart
from actorproc.core.lock_manager import acquire
from actorproc.core.queues.worker_table import BULKY
from actorproc.core.scheduler.schedule import wake
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.quarantine import error_of
from actorproc.core.state.transitions import Trigger, move
from actorproc.errors import ActorprocError, DuplicateProcedure, KeyPoisoned, ManagerBusy, UnknownType
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.events import Submitted
from actorproc.model.rows.records import NewProcedure, ProcedureRecord, StepKind, StepRecord, copied
from actorproc.model.rows.writes import PutProcedure, PutStep
from actorproc.model.states import ProcedureState

__all__ = ["admit", "refusal", "submit"]

# Looked up once: CPython 3.11 runs Python code for every member that is taken from its enum.
_INITIALIZING, _RUNNABLE = ProcedureState.INITIALIZING, ProcedureState.RUNNABLE
_SUBMITTED, _STEP = Trigger.SUBMITTED, StepKind.STEP


def submit(book: EngineState, event: Submitted) -> None:
    """Accept all procedures of a call or none; one that exists already with the same start is no new one."""
    accepted: list[NewProcedure] = []
    restarted: list[str] = []
    named: dict[str, NewProcedure] = {}
    for new in event.procedures:
        twin = None if new.fresh else named.get(new.id)
        error = _refused(book, new) if twin is None else _clash_of_twins(new, twin)
        if error is not None:
            book.command(Reply(event.reply, error=error))
            return
        if twin is None:
            if not new.fresh:
                named[new.id] = new
            if new.id not in book.procs and new.id not in book.backlog:
                accepted.append(new)
            elif new.reuse is not None and not restart.was_done(book.procs[new.id], new.reuse):
                accepted.append(new)
                restarted.append(new.id)
    if accepted and (busy := _too_many(book, len(accepted))) is not None:
        book.command(Reply(event.reply, error=busy))
        return
    if restarted or book.shedding:
        restart.make_room(book, restarted, (new.id for new in accepted))
    _take_in(book, accepted)
    book.command(Reply(event.reply, tuple(new.id for new in event.procedures)))


def _refused(book: EngineState, new: NewProcedure) -> ActorprocError | None:
    """As `refusal`; and a state that cannot be compared by its bytes is one that the submitter has to compare."""
    if new.reuse is not None and (existing := book.procs.get(new.id)) is not None:
        if restart.was_done(existing, new.reuse):
            return None
        return restart.refusal(book, new, new.reuse, existing) or _missing(book, new, root="")
    error = refusal(book, new)
    known = book.procs.get(new.id) if error is None and new.digest and not new.is_compared else None
    if known is not None and not (known.version == new.version and known.digest):
        return DuplicateProcedure(
            f"procedure {new.id} ({known.type_name}) exists with a state of another version; it has to be compared"
        )
    return error


def _take_in(book: EngineState, accepted: list[NewProcedure]) -> None:
    """Admit these; but those that need nothing but a worker, and would get none now, wait for their turn outside."""
    room = book.staff.room if book.hands_out else 0
    if not book.leaves_outside:
        room = len(accepted)
    outside = []
    for new in accepted:
        if not _needs_only_a_worker(book, new):
            wake(book, admit(book, new, parent=None))
        elif room > 0:
            room -= 1
            wake(book, admit(book, new, parent=None))
        else:
            outside.append(_stored_only(book, new))
    book.backlog.fill(outside, book.ready.clock(book.now))


def _stored_only(book: EngineState, new: NewProcedure) -> ProcedureRecord:
    """The head of a new root that is nowhere but in the store and the backlog. There may be a hundred thousand."""
    record = _head_of(book, new)
    record.state = _RUNNABLE
    record.root = new.id
    record.owner = new.owner
    record.priority = new.priority
    record.updated_at = book.now
    book.open_roots += 1
    book.write(_first_step(book, new))
    book.write(PutProcedure(record, None))
    return record


def _needs_only_a_worker(book: EngineState, new: NewProcedure) -> bool:
    """No other waits for it, and it waits for no other, before its turn."""
    return (
        not new.locks
        and not new.limit_keys
        and new.due_at is None
        and new.deadline is None
        and new.limits is None
        and len(new.state) < BULKY
        and not book.types[new.type_name].dedicated
    )


def _too_many(book: EngineState, count: int) -> ManagerBusy | None:
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


def refusal(book: EngineState, new: NewProcedure, root: str = "") -> ActorprocError | None:
    """Reason why a procedure cannot be accepted; None when it can, or when it is the same submit again."""
    if new.id in book.damaged:
        return error_of(book, new.id)
    known = book.procs.get(new.id)
    if known is not None:
        return _clash(new, known.type_name, known.version, known.digest)
    return _missing(book, new, root)


def _missing(book: EngineState, new: NewProcedure, root: str) -> ActorprocError | None:
    """Why a procedure cannot run, whatever has its id: its class is unknown, or a key that it names is poisoned."""
    if new.type_name not in book.types:
        return UnknownType(f"no class is registered as {new.type_name!r}; register it before submitting {new.id}")
    if book.poisons:
        path = acquire.covers_poison(book, new.locks, root)
        if path is not None:
            return KeyPoisoned(f"{new.id} needs a poisoned key: {book.poison_notice(path)}")
    return None


def _clash_of_twins(new: NewProcedure, twin: NewProcedure) -> ActorprocError | None:
    """Why one call cannot submit both; None when the second is the first one again."""
    if new.reuse is not None and new.reuse.policy == "error":
        return DuplicateProcedure(f"procedure {new.id} is named twice in one call, with on_existing='error'")
    return _clash(new, twin.type_name, twin.version, twin.digest)


def _clash(new: NewProcedure, type_name: str, version: int, digest: bytes) -> ActorprocError | None:
    if type_name != new.type_name:
        return DuplicateProcedure(
            f"procedure {new.id} exists as {type_name}; it cannot be submitted as {new.type_name}"
        )
    # What versions of a class dump of the same state differs: between two of them nothing can be compared.
    if version == new.version and digest and digest != new.digest and not new.is_compared:
        return DuplicateProcedure(
            f"procedure {new.id} ({type_name}) exists with another initial state; use another id, or the same state"
        )
    return None


def admit(book: EngineState, new: NewProcedure, parent: ProcedureRecord | None) -> ProcedureRecord:
    """Make the head and the first step record of a procedure; the caller wakes it."""
    record = _head_of(book, new)
    record.due_at = new.due_at
    record.locks = new.locks
    record.limit_keys = new.limit_keys
    record.limits = new.limits
    if parent is None:
        record.root = new.id
        record.deadline = new.deadline
        record.owner = new.owner
        record.priority = new.priority
    else:
        record.root, record.parent, record.depth = parent.root, parent.id, parent.depth + 1
        record.deadline = _earlier(new.deadline, parent.deadline)
        record.owner = new.owner if new.owner is not None else parent.owner
        record.priority = max(new.priority, parent.priority)
    if len(new.state) >= BULKY:
        book.staff.note_size(new.id, len(new.state))
    if new.locks:
        record.locked = False
    book.admit(record, stored=False)
    move(record, _SUBMITTED)
    book.write(_first_step(book, new))
    if record.deadline is not None:
        book.timers.add(record.deadline, record.id)
    book.touch(record)
    return record


def _head_of(book: EngineState, new: NewProcedure) -> ProcedureRecord:
    """Make the part of a head that is common to all new procedures."""
    record = copied(book.blanks.get(new.type_name) or _blank(book, new.type_name))
    record.id = new.id
    record.version = new.version
    record.unit = new.unit
    record.unit_no_return = new.no_return
    record.poisons = new.poisons
    record.tags = new.tags
    record.created_at = book.now
    record.digest = new.digest
    record.epoch = book.epoch
    if new.reuse is None or not restart.follows(book, record, new.reuse):
        record.seq = book.next_seq
        book.next_seq += 1
    return record


def _first_step(book: EngineState, new: NewProcedure) -> PutStep:
    # By position: half the time.
    return PutStep(StepRecord(new.id, 1, _STEP, book.now, new.state, new.codec, new.version, "submitted", new.unit))


def _blank(book: EngineState, type_name: str) -> ProcedureRecord:
    """Common part of the heads of a class's new procedures, with the traits that are fixed at submit."""
    meta = book.types[type_name]
    blank = book.blanks[type_name] = ProcedureRecord(
        id="",
        type_name=type_name,
        version=meta.version,
        root="",
        parent=None,
        seq=0,
        state=_INITIALIZING,
        rollback_supported=meta.rollback_supported,
        on_child_failure=meta.on_child_failure,
        undo_children=meta.undo_children,
        lock_scope=meta.lock_scope,
    )
    return blank


def _earlier(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)
