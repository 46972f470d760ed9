"""New procedures: from a caller, or as children of a suspended step."""

from __future__ import annotations

from msgspec.structs import replace

from actorproc.core.lifecycle import debounce, restart
from actorproc.core.lock_manager import acquire
from actorproc.core.queues.worker_table import BULKY
from actorproc.core.scheduler.schedule import wake
from actorproc.core.state import head
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.decision import PendingDecision
from actorproc.core.state.parts.types import KnownTypes
from actorproc.core.state.quarantine import error_of
from actorproc.core.state.transitions import Trigger, move
from actorproc.errors import ActorprocError, DuplicateProcedure, KeyPoisoned, ManagerBusy, UnknownType
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.events import Submitted
from actorproc.model.policies import TypeMeta
from actorproc.model.rows.cold_trees import is_debounced
from actorproc.model.rows.record_parts import DebounceTerms
from actorproc.model.rows.records import NewProcedure, Past, ProcedureRecord, StepKind, StepRecord, StepTerms, copied
from actorproc.model.rows.writes import PutProcedure, PutStep
from actorproc.model.states import ProcedureState

__all__ = ["admit", "clash_of_twins", "judged", "place", "refusal", "submit", "take_in", "too_many"]

# Looked up once: CPython 3.11 runs Python code for every member that is taken from its enum.
_INITIALIZING = ProcedureState.INITIALIZING
_SUBMITTED, _STEP = Trigger.SUBMITTED, StepKind.STEP


def submit(state: EngineState, event: Submitted) -> None:
    """Accept all procedures of a call or none; one that exists already with the same start is no new one."""
    if event.procedures and event.procedures[0].debounce is not None:
        _submit_debounced(state, event, event.procedures[0], event.procedures[0].debounce)
        return
    accepted: list[NewProcedure] = []
    restarted: list[str] = []
    named: dict[str, NewProcedure] = {}
    for new in event.procedures:
        twin = None if new.fresh else named.get(new.id)
        error = judged(state, new) if twin is None else clash_of_twins(new, twin)
        if error is not None:
            state.decision.command(Reply(event.reply, error=error))
            return
        if twin is None:
            if not new.fresh:
                named[new.id] = new
            place(state, new, accepted, restarted)
    if accepted and (busy := too_many(state, len(accepted))) is not None:
        state.decision.command(Reply(event.reply, error=busy))
        return
    take_in(state, accepted, restarted)
    state.decision.command(Reply(event.reply, tuple(new.id for new in event.procedures)))


def _submit_debounced(state: EngineState, event: Submitted, new: NewProcedure, terms: DebounceTerms) -> None:
    """Begin a wait, or take the place of the root that waits; the answer is the id of that one."""
    known = debounce.newest(state.residents, terms.key)
    name = None if known is None else debounce.run_of(known, terms.token)
    if name is None:
        waiting = known if known is not None and is_debounced(known) else None
        error = debounce.clash(new, waiting, terms) or _missing(state, new, root="")
        if error is None and waiting is None:
            error = refusal(state, new) or _is_taken(state, new.id) or too_many(state, 1)
        if error is not None:
            state.decision.command(Reply(event.reply, error=error))
            return
        if waiting is None:
            waiting = admit(state, new, parent=None)
            debounce.begin(state, waiting, terms, known)
        else:
            debounce.take_place(state, waiting, new, terms)
            state.decision.write(_first_step(state.decision, replace(new, id=waiting.id)))
        wake(state, waiting)
        name = waiting.id
    state.decision.command(Reply(event.reply, (name,)))


def _is_taken(state: EngineState, id: str) -> DuplicateProcedure | None:
    if id not in state.residents.procs:
        return None
    return DuplicateProcedure(f"procedure {id} exists; a debounced submit makes an id of its own")


def place(state: EngineState, new: NewProcedure, accepted: list[NewProcedure], restarted: list[str]) -> None:
    """Put a procedure that is not refused among those to be taken in, unless it is the same submit again."""
    if new.id not in state.residents.procs and new.id not in state.queues.run_queue.cold:
        accepted.append(new)
    elif new.reuse is not None and not restart.was_done(state.residents.procs[new.id], new.reuse):
        accepted.append(new)
        restarted.append(new.id)


def judged(state: EngineState, new: NewProcedure) -> ActorprocError | None:
    """As `refusal`; and a state that cannot be compared by its bytes is one that the submitter has to compare."""
    if new.reuse is not None and (existing := state.residents.procs.get(new.id)) is not None:
        if restart.was_done(existing, new.reuse):
            return None
        return restart.refusal(state, new, new.reuse, existing) or _missing(state, new, root="")
    error = refusal(state, new)
    known = state.residents.procs.get(new.id) if error is None and new.digest and not new.is_compared else None
    if known is not None and not (known.version == new.version and known.digest):
        return DuplicateProcedure(
            f"procedure {new.id} ({known.type_name}) exists with a state of another version; it has to be compared"
        )
    return error


def take_in(state: EngineState, accepted: list[NewProcedure], restarted: list[str]) -> None:
    """Admit these, of which some begin anew.

    Those that need nothing but a worker, and would get none now, wait for their turn outside.
    """
    if restarted or state.ended.shedding:
        restart.make_room(state, restarted, (new.id for new in accepted))
    room = state.workers.table.room(len(accepted)) if state.switches.hands_out else 0
    if not state.leaves_outside:
        room = len(accepted)
    outside = []
    for new in accepted:
        if not _needs_only_a_worker(state.types, new):
            wake(state, admit(state, new, parent=None))
        elif room > 0:
            room -= 1
            wake(state, admit(state, new, parent=None))
        else:
            outside.append(_stored_only(state, new))
    if outside:
        state.queues.run_queue.fill(outside, state.decision.now)


def _stored_only(state: EngineState, new: NewProcedure) -> ProcedureRecord:
    """The head of a new root that is nowhere but in the store and the cold run queue. There may be 100,000."""
    record = _head_of(state, new)
    move(record, _SUBMITTED)
    record.root = new.id
    record.owner = new.owner
    record.priority = new.priority
    record.updated_at = state.decision.now
    state.residents.count_roots(1)
    state.decision.write(_first_step(state.decision, new))
    state.decision.write(PutProcedure(record, None))
    return record


def _needs_only_a_worker(types: KnownTypes, new: NewProcedure) -> bool:
    """No other waits for it, and it waits for no other, before its turn."""
    return (
        not new.locks
        and not new.limit_keys
        and new.due_at is None
        and new.deadline is None
        and new.limits is None
        and len(new.state) < BULKY
        and new.type_name not in types.choosy
    )


def too_many(state: EngineState, count: int) -> ManagerBusy | None:
    """The limit on unfinished roots. Children, retries and what recovery finds are never refused for it."""
    limits = state.settings.scheduling
    room = limits.max_queued + (limits.max_running or 0)
    if state.residents.open_roots + count <= room:
        return None
    allowed = f"{limits.max_queued} may be queued (Config.max_queued)"
    if limits.max_running is not None:
        allowed = f"{limits.max_running} may run (Config.max_running) and {allowed}"
    return ManagerBusy(
        f"{state.residents.open_roots} submitted procedures are unfinished and {count} more were refused: {allowed}; "
        "submit again when some have ended, or allow more"
    )


def refusal(state: EngineState, new: NewProcedure, root: str = "") -> ActorprocError | None:
    """Reason why a procedure cannot be accepted; None when it can, or when it is the same submit again."""
    if new.id in state.damage.procedures:
        return error_of(state.damage, new.id)
    known = state.residents.procs.get(new.id)
    if known is not None:
        return _clash(new, known.type_name, known.version, known.digest)
    return _missing(state, new, root)


def _missing(state: EngineState, new: NewProcedure, root: str) -> ActorprocError | None:
    """The error of a procedure that cannot run under any id: its class is unknown, or a key that it names is
    poisoned."""
    if new.type_name not in state.types.metas:
        return UnknownType(f"no class is registered as {new.type_name!r}; register it before submitting {new.id}")
    if state.locks.poisons:
        path = acquire.covers_poison(state.locks, new.locks, root)
        if path is not None:
            return KeyPoisoned(f"{new.id} needs a poisoned key: {state.locks.poison_notice(path)}")
    return None


def clash_of_twins(new: NewProcedure, twin: NewProcedure) -> ActorprocError | None:
    """The error of a call that cannot submit both; None when the second is the first one again."""
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


def admit(
    state: EngineState, new: NewProcedure, parent: ProcedureRecord | None, like: ProcedureRecord | None = None
) -> ProcedureRecord:
    """Make the head and the first step record of a procedure; the caller wakes it.

    `like`: a stored procedure of its class, which may not be registered.
    """
    record = _head_of(state, new, like)
    if new.due_at is not None:
        head.wait_until(record, new.due_at)
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
        state.workers.table.note_size(new.id, len(new.state))
    if new.locks:
        record.locked = False
    state.admit(record, stored=False)
    move(record, _SUBMITTED)
    state.decision.write(_first_step(state.decision, new))
    if record.deadline is not None:
        state.timers.add(record.deadline, record.id)
    state.decision.touch(record)
    return record


def _head_of(state: EngineState, new: NewProcedure, like: ProcedureRecord | None = None) -> ProcedureRecord:
    """Make the part of a head that is common to all new procedures."""
    known = state.types.blanks.get(new.type_name)
    if known is None:
        traits = like if like is not None and new.type_name not in state.types.metas else None
        known = _blank(state.types, new.type_name) if traits is None else _blank_of(traits)
    record = copied(known)
    record.id = new.id
    record.version = new.version
    record.unit = new.unit
    record.step_name = new.step_name
    record.unit_no_return = new.no_return
    record.poisons = new.poisons
    record.tags = new.tags
    record.created_at = state.decision.now
    record.digest = new.digest
    record.epoch = state.counters.epoch
    if new.reuse is None or not restart.follows(state, record, new.reuse):
        record.seq = state.counters.take_seq()
    if new.trace is not None:
        record.past = replace(record.past or Past(), trace=new.trace)
    if new.searchable:
        head.note_searchable(record, new.searchable)
    return record


def _first_step(decision: PendingDecision, new: NewProcedure) -> PutStep:
    # By position: half the time.
    record = StepRecord(new.id, 1, _STEP, decision.now, new.state, new.codec, new.version, "submitted", new.unit)
    if new.locks or new.poisons or new.no_return or new.searchable:
        record = replace(record, terms=StepTerms(new.locks, new.poisons, new.no_return, new.searchable))
    return PutStep(record if new.step_name is None else replace(record, step_name=new.step_name))


def _blank(types: KnownTypes, type_name: str) -> ProcedureRecord:
    """Common part of the heads of a class's new procedures, with the traits that are fixed at submit."""
    blank = types.blanks[type_name] = _blank_of(types.metas[type_name])
    return blank


def _blank_of(traits: TypeMeta | ProcedureRecord) -> ProcedureRecord:
    return ProcedureRecord(
        id="",
        type_name=traits.type_name,
        version=traits.version,
        root="",
        parent=None,
        seq=0,
        state=_INITIALIZING,
        rollback_supported=traits.rollback_supported,
        on_child_failure=traits.on_child_failure,
        undo_children=traits.undo_children,
        lock_scope=traits.lock_scope,
        child_states=(),
    )


def _earlier(one: float | None, other: float | None) -> float | None:
    if one is None or other is None:
        return one if other is None else other
    return min(one, other)
