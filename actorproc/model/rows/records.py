"""Rows that survive. Each is one msgpack array: new fields go to the end, with a default."""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Literal

import msgspec

from actorproc.model.ids import Mode
from actorproc.model.policies import LockKey, LockMode, LockScope, OnChildFailure, StepLimits
from actorproc.model.rows.record_parts import (
    WITH_RUNNING,
    WITH_SLOT,
    WITH_STARTED,
    Admitted,
    DebounceTerms,
    ErrorInfo,
    ErrorKind,
    IdReuse,
    Interrupted,
    Leftover,
    Past,
    StepTerms,
    Trace,
    Wait,
)
from actorproc.model.states import ProcedureState

__all__ = [
    "ATTEMPTS_KEPT",
    "CHILD_STATES",
    "UNKNOWN_ROOT",
    "WITH_RUNNING",
    "WITH_SLOT",
    "WITH_STARTED",
    "AcknowledgementRecord",
    "Admitted",
    "AttemptRecord",
    "AuditRecord",
    "ChildRecord",
    "ErrorInfo",
    "ErrorKind",
    "EventRecord",
    "ExposedRecord",
    "IdReuse",
    "Interrupted",
    "Leftover",
    "LockRecord",
    "NewProcedure",
    "NoteRecord",
    "Past",
    "PoisonRecord",
    "ProcedureRecord",
    "RemovalRecord",
    "StartRecord",
    "StepKind",
    "StepRecord",
    "StepTerms",
    "Trace",
    "UndoRecord",
    "Wait",
    "copied",
]


CHILD_STATES = tuple(state for state in ProcedureState if state is not ProcedureState.INITIALIZING)
"""States by which the children of a procedure are counted in its head."""


class StartRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One start that a rate limit counts. The places of a key are used again, never more than its limit."""

    key: str
    place: int
    at: float


class NewProcedure(msgspec.Struct, frozen=True, array_like=True, kw_only=True, gc=False):
    """A procedure as its submitter, or its parent's step, describes it."""

    id: str
    fresh: bool = False
    """The id was made by us (UUIDv7, or a child's, with its parent's hash), so it cannot have been used before."""
    type_name: str
    version: int = 1
    state: bytes
    codec: str = "data"
    digest: bytes
    """Digest of the initial state: the same id with the same digest is the same submit."""
    locks: tuple[LockKey, ...] = ()
    poisons: tuple[str, ...] = ()
    unit: str | None = None
    """Label of the undo unit of the first step; None: nothing to undo. "" is the whole procedure."""
    owner: str | None = None
    priority: int = 0
    due_at: float | None = None
    """Epoch seconds before which it does not start."""
    deadline: float | None = None
    tags: tuple[str, ...] = ()
    no_return: bool = False
    """Its first step was declared the point of no return."""
    limits: StepLimits | None = None
    """Given with the submit; None: what the class says."""
    limit_keys: tuple[str, ...] = ()
    """Keys whose limits of concurrency and rate count it."""
    is_compared: bool = False
    """The submitter has compared it with the stored state of its id, field by field: it is the same submit."""
    reuse: IdReuse | None = None
    """Policy for an id that exists; None: the same submit is the same procedure, another one is refused."""
    step_name: str | None = None
    """Name of its first step; None: steps of its class have numbers only."""
    trace: Trace | None = None
    """Its place in a trace; what a client sends is the context in which it submits."""
    debounce: DebounceTerms | None = None
    """Key for whose further submits it waits; when a root waits already, it takes the place of that one."""
    searchable: tuple[str, ...] = ()
    """Texts of the searchable fields of its state."""


class ProcedureRecord(msgspec.Struct, array_like=True, kw_only=True, gc=False):
    """The head of a procedure: everything the engine decides on. Mutable; the core alone changes it."""

    id: str
    type_name: str
    version: int
    root: str
    parent: str | None
    seq: int
    """Place in submit order, unique in the store; also the age of a lock request."""
    state: ProcedureState = ProcedureState.RUNNABLE
    depth: int = 0
    run: int = 1

    # Where it is: record `step` holds the state from which step `step` runs.
    step: int = 1
    records: int = 1
    """Highest number in the step log (rollback and closing records go on counting)."""
    rolling: bool = False
    """It takes no forward step any more: its failure scope is being undone."""
    unit: str | None = None
    """Undo label of the step `step`; pushed when that step is first handed out."""
    last_unit: str | None = None
    """Label of the unit it pushed last."""
    undone: int = 0
    """Rollback steps recorded so far."""

    # Durable counters: a host restart touches only the first, a committed step resets the other two.
    attempt: int = 0
    """Times the current step was handed out."""
    errors: int = 0
    crashes: int = 0
    first_error_at: float | None = None

    # Class traits fixed at submit, so that recovery can decide before the class is known.
    rollback_supported: bool = False
    on_child_failure: OnChildFailure = "fail"
    undo_children: bool = True
    lock_scope: LockScope = "procedure"

    # What it waits for.
    due_at: float | None = None
    """Epoch seconds: end of a delay, backoff, sleep, or of an event's time limit."""
    deadline: float | None = None
    event: str | None = None
    awaiting: int = 0
    """The current step sees the outcomes of children started since this step (0: of none)."""
    pending: int = 0
    """Children that have not finished: the latch of the parent."""
    children: int = 0
    """Children created so far, over all steps."""
    succeeded: int = 0
    failed: int = 0
    wait: Wait = "all"
    max_parallel: int | None = None
    started: int = 0
    """Children of the group released to run; the others are kept back by `max_parallel`."""
    on_parent_end: Literal["abort", "leave"] = "abort"

    # Locks.
    locks: tuple[LockKey, ...] = ()
    """Declared keys, plus keys acquired by later steps."""
    locked: bool = True
    """All of `locks` are granted (true when there are none)."""
    ticket: int = 0
    """Place in the first-come first-served order of lock requests."""
    poisons: tuple[str, ...] = ()

    # Failure.
    failing: bool = False
    """It is the top of a failure scope that is being stopped and undone."""
    error: ErrorInfo | None = None
    aborting: bool = False
    no_return: bool = False
    """On a root: a step past the point of no return was handed out."""
    unit_no_return: bool = False
    """The step `step` was declared the point of no return."""
    undo_next: int = 1
    """On a root: sequence of the next undo unit."""
    parked: str | None = None
    """Reason why it cannot run until its class is (re-)registered."""

    # For people.
    owner: str | None = None
    tags: tuple[str, ...] = ()
    priority: int = 0
    created_at: float = 0.0
    updated_at: float = 0.0
    finished_at: float | None = None
    digest: bytes = b""
    """As of its submit; empty once a step of another version of the class was recorded."""

    # Appended fields.
    undoing: int = 0
    """Sequence of the undo unit being undone; its attempts are counted from there. 0: none."""
    payload: bytes | None = None
    """Payload of the event that woke the current step."""
    width: int = 0
    """Children of the group, finished ones included."""
    group: int = 0
    """First step of the present group of children: those started since the parent last had seen the end of all."""
    seen: int = 0
    """Number of its children that had finished when they last woke it: those are the ones the step sees."""
    ended_as: int = 0
    """Place among its siblings in the order of finishing; 0: not finished."""
    ending: bool = False
    """Written by earlier versions alone: it said done, and waits for its children. It ends at the next start."""
    stuck: int = 0
    """The step that failed for good and is repeated all the same, because there is no way back; 0: none."""
    epoch: int = 0
    """Life of the manager in which it was submitted, or last finished a step; another one: it was recovered since."""
    limits: StepLimits | None = None
    """Given with the submit; None: what the class says."""
    left_open: bool = False
    """On a finished root: members that it left behind have not ended, so it cannot be removed yet."""
    # What operators asked for.
    audits: int = 0
    """Rows of the audit log about it; the number of the last one."""
    paused: str | None = None
    """Reason for which an operator paused it; neither it nor its descendants are handed out. None: it is not paused."""
    forced: bool = False
    """The abort was asked with force: the procedure is not asked. Or the bypass was: its step is killed."""
    bypassing: bool = False
    """It is to end as if it had succeeded, as soon as no worker has its step and its children have ended."""
    bypassed: bool = False
    """An operator ended it as if it had succeeded."""
    interrupted: Interrupted | None = None
    reverted: bool = False
    """On the top of a failure scope: something was undone in it, so there is no way forward any more."""
    ended_in: int = 0
    """It ended with the failure of its root, in this run of the root; 0: by itself. A retry opens it again."""
    state_at: int = 0
    """Number of the record with its state, when that is not the last one; 0: the last one."""
    retaking: tuple[LockKey, ...] = ()
    """On a root that is retried: what its tree held, to be granted again before anything of the tree runs."""
    # Which limits count it.
    limit_keys: tuple[str, ...] = ()
    """Keys whose limits of concurrency and rate count it."""
    admitted: int = 0
    """`Admitted` flags: what it was let through and holds a place of."""
    leftovers: tuple[Leftover, ...] = ()
    """Remains of the rollback, of itself, and at the top of a failing scope of its members too."""
    undo_error: ErrorInfo | None = None
    """Error for which the present undo failed or killed its worker the last time. `error` stays the cause."""
    tried: int = 0
    """Undo unit whose attempts were counted last; a wider failure that takes it over goes on counting. 0: none."""
    undo_step: int = 0
    """Number of the undo step that a retry takes up again: the one it had; 0: that of the next record."""
    cancelled_at: float | None = None
    """Epoch seconds of the decision to undo the step in hand: `StepLimits.abort_grace` counts from here. It stays."""
    generation: int = 1
    """Number of its beginnings: `Status.again`, and a submit that restarts what has ended, begin a new one."""
    begun: int = 0
    """Steps of the generations before this one: step n of this one has the number ``begun + n`` here."""
    past: Past | None = None
    """Marks of its past: what was removed of it, or is to be, and the submits that began it; None: none, as of most."""
    step_name: str | None = None
    """Name of the step `step`; None: steps of its class have numbers only, or an earlier version wrote the head."""
    undo_name: str | None = None
    """Label of the undo unit `undoing`; "" is the whole procedure. It stays until the next undo begins."""
    child_states: tuple[int, ...] | None = None
    """Number of its children by state, as `CHILD_STATES`; (): it has had none. None: an earlier version wrote it."""

    @property
    def current_name(self) -> str | None:
        """Name of what runs now, or runs next: the step, or the unit that is being undone; None: it has a number."""
        return (self.undo_name or None) if self.undoing else self.step_name

    @property
    def host_losses(self) -> int:
        """Times the current step was lost with its host, one after the other."""
        return 0 if self.past is None else self.past.host_losses

    @property
    def lock_due(self) -> float:
        """Epoch seconds at which its waiting for locks is at its limit; 0: it has none."""
        return 0.0 if self.past is None else self.past.lock_due

    @property
    def trimmed(self) -> int:
        """Records 2 to this one were removed from the step log; 0: none."""
        return 0 if self.past is None else self.past.trimmed

    @property
    def renewed(self) -> int:
        """Ended members of its tree below this place in submit order belong to earlier generations; 0: none do."""
        return 0 if self.past is None else self.past.renewed

    @property
    def first_generation(self) -> int:
        """Generation of record 1; `Status.again` leaves that record as it is, a restart by a submit writes it anew."""
        return 1 if self.past is None else self.past.first

    @property
    def exposes(self) -> bool:
        """True if it has shown values with `Context.expose`, which are rows of their own."""
        return self.past is not None and self.past.exposes

    @property
    def searchable(self) -> tuple[str, ...]:
        """Texts of the searchable fields of its state, by which lists find it."""
        return () if self.past is None else self.past.searchable

    @property
    def tokens(self) -> bytes:
        """Tokens of the submits that began its generations, the newest first."""
        return b"" if self.past is None else self.past.tokens


# `copy.copy` finds the same method, in three times the time; the stubs of msgspec do not name it.
copied: Callable[[ProcedureRecord], ProcedureRecord] = getattr(ProcedureRecord, "__copy__")  # noqa: B009
"""A head as it is now, for code that keeps it while the core goes on changing it."""


class StepKind(IntEnum):
    """The suffix of a record in the RFC's path view of the step log."""

    STEP = 0
    COMMIT = 1
    ROLLBACK = 2


class StepRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One line of the step log: ``/procedures/{id}/000001.step``.

    A ``.step`` record n holds the state from which step n runs (a long call's is dropped at its good end). A
    ``.commit`` record closes the log with the output. A ``.rollback`` record holds the state after one undo step, or
    closes with the error.
    """

    procedure: str
    number: int
    kind: StepKind
    at: float
    state: bytes = b""
    """Result of `dump`."""
    codec: str = "data"
    version: int = 1
    outcome: str = ""
    """Result of the step before: submitted, executing, suspended, sleep, wait, done, failed, undone …"""
    label: str | None = None
    """The undo unit a rollback record belongs to, or the unit label of the step."""
    attempts: int = 0
    """Attempts the finished step took."""
    slot: int = -1
    incarnation: int = 0
    error: ErrorInfo | None = None
    output: bytes = b""
    """Of a ``.commit``: the encoded output."""
    elapsed: float = 0.0
    """Seconds the step took in its worker, loading its state included; the last attempt only."""
    pid: int = 0
    """Process of the worker; 0: not known."""
    crash: ErrorInfo | None = None
    """The last death of a worker on the way here: during an earlier attempt of the step that ended with this record."""
    steps: int = 1
    """Steps it stands for: more than one when those before needed no record. The record before is that many lower."""
    step_name: str | None = None
    """Of a ``.step``: the name of the step that runs from it; None: it has a number only, or none follows."""
    event: bytes | None = None
    """Payload of the event that woke the step which ended with this record; None: it had waited for none."""
    awaits: str | None = None
    """Name of the event that the procedure waits for from here on; None: for none."""
    fence: int = 0
    """Fence of the attempt that ended with this record (`Context.fence`), if its step asked for it; 0: it did not."""
    terms: StepTerms | None = None
    """Of a ``.step``: locks, poison and the point of no return of the step that runs from it; None: it has none."""


ATTEMPTS_KEPT = 20
"""Failed attempts of one step that are kept: the newest."""


class AttemptRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One attempt of a step that failed, took its worker along, or was killed by an operator."""

    procedure: str
    step: int
    """Number of the step; of an undo, the number that its record gets."""
    mode: Mode
    attempt: int
    run: int
    started_at: float
    """Epoch seconds, as far as the worker told it; else the time of the end."""
    ended_at: float
    """Epoch seconds: time of the decision."""
    slot: int
    incarnation: int
    pid: int
    """Process of the worker; 0: not known."""
    error: ErrorInfo
    """The error, or the words of the death; `ErrorInfo.crash` is its report."""

    @property
    def place(self) -> int:
        """Place among those of its step: after `ATTEMPTS_KEPT` others it is used again."""
        return int(self.mode) * ATTEMPTS_KEPT + self.attempt % ATTEMPTS_KEPT


class UndoRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One undo unit. `seq` is root-wide; units are popped newest first."""

    root: str
    seq: int
    procedure: str
    label: str
    step: int
    attempt: int = 1
    """The first attempt that may have begun the step; later ones where those before it were refused unbegun."""


class ChildRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The link from a parent's suspended step to one child; `index` is the order given by the step."""

    parent: str
    step: int
    index: int
    child: str


class LockRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One granted key. `holder` moves from a finished child to its parent; the tree owns it until its root ends."""

    path: str
    mode: LockMode
    holder: str
    root: str
    since: float
    inherited: int = 0
    """The `LockMode` of it that came from finished children (0: nothing); kept when a step's own locks are given up."""


UNKNOWN_ROOT = "?"
"""In the place of a root in a poison record: no root has this id, so no tree is exempt, nor takes anything back."""


class PoisonRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A key that only an operator clears."""

    path: str
    by: str
    root: str
    at: float
    reason: str
    others: tuple[tuple[str, str], ...] = ()
    """Others that poisoned it, with their roots, in order; the key is free when the last of all took it back."""

    @property
    def owners(self) -> tuple[tuple[str, str], ...]:
        """All who poisoned it, with their roots."""
        return ((self.by, self.root), *self.others)

    @property
    def roots(self) -> frozenset[str]:
        """The roots of all who poisoned it."""
        return frozenset(root for _, root in self.owners)


class AuditRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Something an operator asked for and was granted: of a procedure, or of the manager (`target` is empty)."""

    target: str
    number: int
    """Counts from 1 for each target."""
    at: float
    verb: str
    reason: str | None = None
    """Reason, in the operator's words."""
    detail: str = ""
    """With what: options, the key that was cleared."""
    by: str | None = None
    """Name of the one who asked; None: an earlier version wrote it."""
    procedure: str = ""
    """In a row of the manager: the procedure it is about; it stays when that is removed."""
    copy_of: int = 0
    """In a row of the manager: the number of the row of the procedure with the same request; 0: it has none."""


class EventRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A signal or an event that waits to be taken, or a note that one with an id was taken."""

    target: str
    """Id of the procedure it is for; or `event_target` of the event's name."""
    seq: int
    payload: bytes
    dedup: str | None
    at: float
    taken: bool = False
    """It was taken; the row only says that its id is not new any more."""
    trace: bytes = b""
    """Context of the trace in which it was sent; "": in none."""


class NoteRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A write-ahead note made by `Context.remember`."""

    procedure: str
    step: int
    key: str
    value: bytes


class ExposedRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The newest value that a procedure showed under a key, by `Context.expose`."""

    procedure: str
    key: str
    value: bytes
    at: float = 0.0
    """Epoch seconds: time of the decision to store it."""


class AcknowledgementRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The caller has taken the result of this root, so it need not be kept as long as others."""

    root: str
    at: float


class RemovalRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """This finished tree is being removed in several commits; readers do not see it any more."""

    root: str
    at: float
