"""Views of a procedure and of the engine, as people are shown them."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Any, Literal, NamedTuple, cast

import msgspec

from actorproc.model.ids import name_of_event
from actorproc.model.names import step_in_words
from actorproc.model.plain import plain_dict
from actorproc.model.policies import LockKey, LockMode
from actorproc.model.reports import KeptSignal
from actorproc.model.rows.cold_trees import debounce_of, is_debounced
from actorproc.model.rows.enqueued import WAITING, EnqueuedRecord
from actorproc.model.rows.records import (
    ErrorInfo,
    ExposedRecord,
    Leftover,
    LockRecord,
    PoisonRecord,
    ProcedureRecord,
)
from actorproc.model.rows.schedules import CatchUp, Overlap, ScheduleRecord
from actorproc.model.rows.tags import values_of
from actorproc.model.states import Phase, ProcedureState
from actorproc.report.exposed import ExposedValues
from actorproc.support.recurrence import rule_of

__all__ = [
    "EnqueuedInfo",
    "LockInfo",
    "LockWaiterInfo",
    "PoisonInfo",
    "ProcedureInfo",
    "ProcedureTree",
    "ScheduleInfo",
    "SignalInfo",
    "as_text",
    "enqueued_info_of",
    "info_of",
    "lock_info_of",
    "mode_name",
    "poison_info_of",
    "schedule_info_of",
    "signal_info_of",
]

ModeName = Literal["read", "write"]
LockKind = Literal["procedure", "step", "inherited"]


class ProcedureInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A procedure as it is now; times in epoch seconds (UTC)."""

    id: str
    type_name: str
    version: int
    state: ProcedureState
    phase: Phase
    reason: str | None
    """Reason for this phase: the lock it waits for, the event, why it is parked."""
    parent_id: str | None
    root_id: str
    run: int
    step: int
    attempt: int
    errors: int
    crashes: int
    children: dict[str, int]
    """Number of children by state."""
    locks: tuple[LockKey, ...]
    owner: str | None
    tags: tuple[str, ...]
    """Words, and keys with values as ``key=value`` (`tag_values`)."""
    priority: int
    created_at: float
    updated_at: float
    finished_at: float | None
    due_at: float | None
    deadline: float | None
    progress: float | None
    error: ErrorInfo | None
    message: str | None = None
    """Last words of the running step, with its progress."""
    leftovers: tuple[Leftover, ...] = ()
    """Remains that its rollback did not undo, of members too when it is the top of what failed; the first hundred."""
    paused: str | None = None
    """Reason for which an operator paused this very procedure; None: it is not paused."""
    bypassed: bool = False
    """An operator ended it as if it had succeeded."""
    event: str | None = None
    """The event it waits for."""
    undo_error: ErrorInfo | None = None
    """Error for which its present undo failed the last time; it is tried again. `error` is why it is undone."""
    aborting: bool = False
    """An abort was asked for, and has not taken effect: it is still to be asked, or refused."""
    cancelled_at: float | None = None
    """Epoch seconds (UTC) at which a step that was running was told of its undo (`Context.aborting`); it may still
    run, and `Limits.abort_grace` counts from then. None: no step was, or the undo has begun."""
    generation: int = 1
    """Number of its beginnings: `Status.again`, and a submit that restarts what has ended, begin a new one."""
    trimmed: int = 0
    """Steps whose records were removed from its step log: records 2 to ``trimmed + 1``."""
    step_name: str | None = None
    """Name of the step: that of a `Saga`, the state of a `StateMachineProcedure`, the label of what is being undone.
    None: it has a number only, or has ended well."""
    host_losses: int = 0
    """Times in a row that its step was lost with its host; from three on it runs alone on its host."""
    exposed: dict[str, Any] = {}
    """Newest values that it showed with ``ctx.expose``, by key; stored at most a second after it showed them. Secrets
    are asterisks, and an object is the mapping of its fields."""
    debounce: str | None = None
    """Key of its debounce while it waits for further submits of the key; None: it does not."""

    @property
    def tag_values(self) -> dict[str, str]:
        """Values of the tags that have one, by key."""
        return values_of(self.tags)

    @property
    def step_in_words(self) -> str:
        """The step by name and number: "step 3 (ship)"; by number alone where it has no name."""
        return step_in_words(self.step, self.step_name)

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return plain_dict(self)


class ProcedureTree(msgspec.Struct, frozen=True, kw_only=True):
    """A procedure with those it started, in the order it started them."""

    info: ProcedureInfo
    children: tuple[ProcedureTree, ...] = ()
    omitted: int = 0
    """Children that are left out, because the tree is larger than the limit; what is below them is not counted."""

    @property
    def omitted_below(self) -> int:
        """Procedures known to be left out in all of this tree."""
        return self.omitted + sum(child.omitted_below for child in self.children)

    @property
    def size(self) -> int:
        """Procedures shown in this tree, this one included."""
        return 1 + sum(child.size for child in self.children)

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return plain_dict(self)


class LockWaiterInfo(NamedTuple):
    """A procedure that waits for a lock; unpacks into id, mode and ticket."""

    procedure: str
    mode: ModeName
    """The strongest mode it asks for on the lock's path, above it or below it."""
    ticket: int
    """Place in the first-come first-served order of all lock requests; it survives a restart."""


class LockInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A granted lock as it is now."""

    path: str
    mode: ModeName
    holder: str
    """Id of the procedure that holds it."""
    root: str
    """Id of the root of the holder's tree, which owns the lock until it ends."""
    kind: LockKind
    """"procedure": to the holder's end. "step": for one step at a time. "inherited": from a finished child."""
    since: float
    """Epoch seconds (UTC); 0.0 when the store does not know the lock."""
    age: float
    """Seconds since then."""
    waiters: tuple[LockWaiterInfo, ...] = ()
    """Waiters for it, next one first, also for a key above or below it; in the order of the queue."""
    reason: str | None = None
    """Reason why it is dangling; None in the lock table."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return plain_dict(self)


class PoisonInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A poisoned key: procedures that need it, or a key above or below it, are refused until it is cleared."""

    path: str
    by: str
    """Id of the procedure that poisoned it; its own tree may still use it."""
    root: str
    at: float
    """Epoch seconds (UTC)."""
    reason: str
    others: tuple[str, ...] = ()
    """Ids of those who poisoned it besides; it is free when all of them took it back."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return plain_dict(self)


class SignalInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A signal, or an event, that no procedure has taken yet."""

    id: str | None
    """The procedure that it was sent to; None: it is an event."""
    event: str | None
    """The name under which it was published; None: it is for one procedure."""
    number: int
    """Place among those of the same receiver, or name; the lowest is taken first."""
    at: float
    """Time at which it came, in epoch seconds (UTC)."""
    size: int
    """Bytes of its payload, as stored."""
    dedup: str | None
    """The text by which another one is known to be the same; the id of an ask."""
    ask: str | None = None
    """The name of an ask, which waits for a reply; None: it is a mere signal, or an event."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return plain_dict(self)


class ScheduleInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it is now; times in epoch seconds (UTC)."""

    id: str
    rule: str
    """The cron expression, the interval or the calendar, as text."""
    timezone: str
    type_name: str
    """Type of the procedures that it starts."""
    state: Literal["active", "paused", "faulty", "over"]
    """"faulty": it does not fire as it should, for `reason`; "over": it has no further instant."""
    reason: str | None
    """Reason why it is paused or faulty."""
    declared: bool
    """A program has declared it since the manager started; else it goes on until it is removed."""
    declared_at: float
    """Time of the declaration that last changed it."""
    next_at: float | None
    """Its next instant; None: there is none, or it is paused."""
    upcoming: tuple[float, ...]
    """The next five instants; fewer where the rule ends, or where this machine does not know the time zone."""
    last_at: float | None
    """The last instant that started a procedure."""
    last_id: str | None
    """The procedure of the last instant."""
    waiting: tuple[float, ...]
    """Instants that wait for that procedure to end, or to be accepted."""
    firings: int
    """Procedures that it has started."""
    passed: int
    """Instants that came and started none: missed, or overlapping with a firing that ran."""
    catch_up: CatchUp
    catch_up_within: float | None
    overlap: Overlap
    jitter: float
    until: float | None

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return plain_dict(self)


class EnqueuedInfo(msgspec.Struct, frozen=True, kw_only=True):
    """A procedure that was enqueued in a transaction of an application; times in epoch seconds (UTC)."""

    id: str
    """Id that the procedure gets; of a row that cannot be read, the key of the row."""
    type_name: str | None
    """Type of the procedure; None: the row cannot be read."""
    state: Literal["waiting", "refused"]
    """"waiting": for a manager, or for fewer unfinished procedures; "refused": no procedure is made of it."""
    enqueued_at: float
    """Time of the database."""
    refused_at: float | None
    reason: str | None
    """Reason for which it was refused."""
    error: str | None
    """Name of the class of the error with which a submit would have failed."""
    key: str
    """Key of the row, in hex; rows of one id may be several."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold."""
        return plain_dict(self)


def enqueued_info_of(record: EnqueuedRecord) -> EnqueuedInfo:
    """The public view of an enqueued procedure."""
    return EnqueuedInfo(
        id=record.key.hex() if record.new is None else record.new.id,
        type_name=None if record.new is None else record.new.type_name,
        state="waiting" if record.key.startswith(WAITING) else "refused",
        enqueued_at=record.at,
        refused_at=record.refused_at,
        reason=record.refused or None,
        error=record.error or None,
        key=record.key.hex(),
    )


def schedule_info_of(record: ScheduleRecord, epoch: int) -> ScheduleInfo:
    """The public view of a schedule; `epoch` is that of the store."""
    state: Literal["active", "paused", "faulty", "over"] = "active"
    if record.paused is not None:
        state = "paused"
    elif record.fault is not None:
        state = "faulty"
    elif record.due is None and not record.waiting:
        state = "over"
    upcoming = _upcoming(record) if state != "paused" else ()
    return ScheduleInfo(
        id=record.id,
        rule=record.spec.partition(" ")[2] if record.spec.startswith("cron") else record.spec,
        timezone=record.timezone,
        type_name=record.new.type_name,
        state=state,
        reason=record.fault if record.paused is None else record.paused,
        declared=record.epoch == epoch,
        declared_at=record.declared_at,
        next_at=None if record.due is None or state == "paused" else float(record.due),
        upcoming=upcoming,
        last_at=float(record.fired) if record.fired else None,
        last_id=record.id_of(record.fired) if record.fired else None,
        waiting=tuple(map(float, record.waiting)),
        firings=record.firings,
        passed=record.passed,
        catch_up=record.catch_up,
        catch_up_within=record.catch_up_within,
        overlap=record.overlap,
        jitter=record.jitter,
        until=record.until,
    )


def _upcoming(record: ScheduleRecord) -> tuple[float, ...]:
    try:
        rule = rule_of(record.spec, record.timezone, record.anchor)
    except ValueError:
        return ()
    return tuple(map(float, islice(record.upcoming(rule), 5)))


def lock_info_of(
    lock: LockRecord,
    holder: ProcedureRecord | None,
    now: float,
    *,
    waiters: tuple[LockWaiterInfo, ...] = (),
    reason: str | None = None,
) -> LockInfo:
    """The public view of a lock at `now`; `holder` is the head of its holder, None when there is none."""
    return LockInfo(
        path=lock.path,
        mode=mode_name(lock.mode),
        holder=lock.holder,
        root=lock.root,
        kind=_kind_of(lock, holder),
        since=lock.since,
        age=max(0.0, now - lock.since) if lock.since else 0.0,
        waiters=waiters,
        reason=reason,
    )


def _kind_of(lock: LockRecord, holder: ProcedureRecord | None) -> LockKind:
    asked = [key.mode for key in holder.locks if key.path == lock.path] if holder is not None else [lock.mode]
    if lock.inherited >= lock.mode or max(asked, default=0) < lock.mode:
        return "inherited"
    return "step" if holder is not None and holder.lock_scope == "step" else "procedure"


def mode_name(mode: LockMode) -> ModeName:
    """A lock mode as people read it."""
    return cast("ModeName", mode.word)


def poison_info_of(poison: PoisonRecord) -> PoisonInfo:
    """The public view of a poisoned key."""
    return PoisonInfo(
        path=poison.path,
        by=poison.by,
        root=poison.root,
        at=poison.at,
        reason=poison.reason,
        others=tuple(name for name, _ in poison.others),
    )


def signal_info_of(kept: KeptSignal) -> SignalInfo:
    """The public view of a signal that waits to be taken."""
    event = name_of_event(kept.target)
    return SignalInfo(
        id=kept.target if event is None else None,
        event=event,
        number=kept.number,
        at=kept.at,
        size=kept.size,
        dedup=kept.dedup,
        ask=kept.ask,
    )


def info_of(
    record: ProcedureRecord,
    phase: Phase,
    reason: str | None,
    children: dict[str, int],
    progress: float | None = None,
    message: str | None = None,
    exposed: Iterable[ExposedRecord] = (),
) -> ProcedureInfo:
    """The public view of a head."""
    return ProcedureInfo(
        id=record.id,
        type_name=record.type_name,
        version=record.version,
        state=record.state,
        phase=phase,
        reason=reason,
        parent_id=record.parent,
        root_id=record.root,
        run=record.run,
        step=record.step,
        step_name=record.current_name,
        attempt=record.attempt,
        errors=record.errors,
        crashes=record.crashes,
        children=children,
        locks=record.locks,
        owner=record.owner,
        tags=record.tags,
        priority=record.priority,
        created_at=record.created_at,
        updated_at=record.updated_at,
        finished_at=record.finished_at,
        due_at=record.due_at,
        deadline=record.deadline,
        progress=progress,
        error=as_text(record.error),
        message=message,
        leftovers=record.leftovers,
        paused=record.paused,
        bypassed=record.bypassed,
        event=record.event,
        undo_error=as_text(record.undo_error) if record.undoing else None,
        aborting=record.aborting and not record.rolling and record.finished_at is None,
        cancelled_at=None if record.undoing or record.finished_at is not None else record.cancelled_at,
        generation=record.generation,
        trimmed=max(0, record.trimmed - 1),
        host_losses=record.host_losses,
        exposed=ExposedValues(exposed),
        debounce=_debounce_of(record),
    )


def _debounce_of(record: ProcedureRecord) -> str | None:
    mark = debounce_of(record)
    return mark.key if mark is not None and is_debounced(record) else None


def as_text(error: ErrorInfo | None) -> ErrorInfo | None:
    """Without the exception's own bytes, which are for the one who called."""
    return error if error is None or not error.pickled else msgspec.structs.replace(error, pickled=b"")
