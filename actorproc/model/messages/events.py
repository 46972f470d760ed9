"""Events: the inputs of the core. Past tense, frozen."""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from actorproc.model.crash_report import CrashReport
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.outcomes import Outcome
from actorproc.model.policies import TypeMeta
from actorproc.model.rows.asks import AskKey
from actorproc.model.rows.enqueued import EnqueuedRecord
from actorproc.model.rows.records import NewProcedure, ProcedureRecord
from actorproc.model.rows.schedules import ScheduleRecord
from actorproc.model.rows.snapshot import FinishedTree

__all__ = [
    "AbortRequested",
    "Acknowledged",
    "BypassRequested",
    "CrashReport",
    "DeleteRequested",
    "EnqueuedFound",
    "EnqueuedRemoved",
    "EnqueuedRow",
    "Event",
    "ForkRequested",
    "HostAdded",
    "HostClaimed",
    "HostDraining",
    "HostRemoved",
    "KillRequested",
    "NoteMade",
    "OperatorRequest",
    "PauseRequested",
    "PoisonCleared",
    "Published",
    "ReloadBegan",
    "RemovalContinued",
    "Resized",
    "RestartRequested",
    "ResultsTaken",
    "ResumeRequested",
    "RetryRequested",
    "RollbackRequested",
    "ScheduleDeclared",
    "ScheduleSteered",
    "Signalled",
    "SignalsExpired",
    "SignalsWithdrawn",
    "StepEnded",
    "StepReported",
    "StepReturned",
    "Submitted",
    "Tick",
    "TreesExpired",
    "TypeRegistered",
    "WorkerLeaving",
    "WorkerLost",
    "WorkerReady",
]


class OperatorRequest(Protocol):
    """Request that is kept in the audit log: why it was made, and who made it."""

    @property
    def reason(self) -> str | None:
        """Reason, in the operator's words."""
        ...

    @property
    def by(self) -> str | None:
        """Name of the one who asked; None: not known, or a program that is not to be recorded."""
        ...


class TypeRegistered(msgspec.Struct, frozen=True, gc=False):
    """A class or loader is known now; what was parked for it goes on."""

    meta: TypeMeta


class Submitted(msgspec.Struct, frozen=True, gc=False):
    """Procedures were submitted, all or nothing. `reply` names the waiting caller."""

    procedures: tuple[NewProcedure, ...]
    reply: int


class EnqueuedRow(msgspec.Struct, frozen=True, gc=False):
    """A row that was found, and what is wrong with it by itself."""

    record: EnqueuedRecord
    fault: str = ""
    """Reason in words for which no procedure can be made of it; "": it is for the core to judge."""
    error: str = ""
    """Name of the class of that error."""


class EnqueuedFound(msgspec.Struct, frozen=True, gc=False):
    """Applications have enqueued these in transactions of their own."""

    rows: tuple[EnqueuedRow, ...]


class EnqueuedRemoved(msgspec.Struct, frozen=True, gc=False):
    """An operator wants rows removed that were refused."""

    keys: tuple[bytes, ...]
    name: str
    """Id under which they were enqueued."""
    reply: int
    reason: str | None = None
    by: str | None = None


class StepEnded(msgspec.Struct, frozen=True, gc=False):
    """A worker answered a handed-out step."""

    token: StepToken
    outcome: Outcome


class StepReturned(msgspec.Struct, frozen=True, gc=False):
    """A worker gave back a prefetched step that it had not begun."""

    token: StepToken


class HostAdded(msgspec.Struct, frozen=True, gc=False):
    """A host is there, before its first worker; or what it offers has changed. The manager's machine is ``""``."""

    host: str
    labels: tuple[str, ...] = ()
    resources: dict[str, float] = {}
    other_code: tuple[str, ...] = ()
    """Names of types of which it has other code than the manager, so that it may not run them."""


class HostDraining(msgspec.Struct, frozen=True, gc=False):
    """A host's workers get no further step: they end what they have begun, and are stopped."""

    host: str


class HostRemoved(msgspec.Struct, frozen=True, gc=False):
    """A host is gone: its workers get no further step, and their deaths follow."""

    host: str


class HostClaimed(msgspec.Struct, frozen=True, gc=False):
    """A host has joined that worked for an earlier leader: workers that live on, with the steps that count."""

    host: int
    workers: tuple[tuple[WorkerReady, tuple[StepToken, ...]], ...]


class WorkerReady(msgspec.Struct, frozen=True, gc=False):
    """A worker in this slot takes steps now."""

    worker: WorkerId
    threads: int = 1
    """Number of steps in its hands that may run beside each other (a worker that lived on)."""
    reserved: str | None = None
    """The one procedure it is there for (`Limits.dedicated`); None: any."""
    leaving: bool = False
    """It takes no further step (a worker that lived on while memory was rebuilt)."""
    pid: int = 0
    """Its process, for the step log; 0: it has none."""
    host: str = ""
    """Name of the host that it is on."""


class WorkerLeaving(msgspec.Struct, frozen=True, gc=False):
    """A worker takes no further step: it ran long enough, grew too much, or cannot undo what a limit set."""

    worker: WorkerId


class WorkerLost(msgspec.Struct, frozen=True, gc=False):
    """A worker is dead and reaped; everything it answered before has been delivered.

    `blamed` is the step it was killed for (a limit), or that is known to have killed it. None: the first unanswered
    step is blamed when `crashed`, none otherwise (an orderly stop). `first` is that step, as its worker got them: a
    step that was sent again stands behind what was sent before, also where its delay was decided about earlier.
    """

    worker: WorkerId
    report: CrashReport
    crashed: bool = True
    blamed: StepToken | None = None
    first: StepToken | None = None


class AbortRequested(msgspec.Struct, frozen=True, gc=False):
    """A procedure was asked to abort."""

    id: str
    reply: int
    force: bool = False
    reason: str | None = None
    by: str | None = None


class KillRequested(msgspec.Struct, frozen=True, gc=False):
    """An operator wants the running attempt of a procedure's step to end; the step runs again."""

    id: str
    reply: int
    reason: str | None = None
    by: str | None = None


class RetryRequested(msgspec.Struct, frozen=True, gc=False):
    """An operator wants a failed root to be tried once more, in a new run."""

    id: str
    reply: int
    reason: str | None = None
    by: str | None = None


class RestartRequested(msgspec.Struct, frozen=True, gc=False):
    """An operator wants a root that has ended to begin its next generation, from its first state."""

    id: str
    reply: int
    new: NewProcedure
    """The procedure as it was submitted; its token tells this request from another one."""
    generation: int
    """Generation that was read: another one has begun since when it is not that of the head."""
    reason: str | None = None
    by: str | None = None


class ForkRequested(msgspec.Struct, frozen=True, gc=False):
    """An operator wants a new root that begins at a step of a procedure, with the state that was stored before it."""

    id: str
    reply: int
    new: NewProcedure
    """The new root; its token tells this request from another one."""
    step: int
    """Number of the step, as the step sees it (`Context.step`)."""
    reason: str | None = None
    by: str | None = None


class BypassRequested(msgspec.Struct, frozen=True, gc=False):
    """An operator wants a procedure to end as if it had succeeded."""

    id: str
    reply: int
    children: bool = False
    """Its descendants too."""
    ancestors: bool = False
    """Its ancestors too, as soon as their other children have ended."""
    force: bool = False
    """Kill a step that is running."""
    reason: str | None = None
    by: str | None = None


class RollbackRequested(msgspec.Struct, frozen=True, gc=False):
    """An operator wants an unfinished root to be undone, without its being asked."""

    id: str
    reply: int
    reason: str | None = None
    by: str | None = None


class PauseRequested(msgspec.Struct, frozen=True, gc=False):
    """An operator wants nothing more of a procedure to run; `id` is None: of all of them."""

    id: str | None
    reply: int
    reason: str | None = None
    by: str | None = None


class ResumeRequested(msgspec.Struct, frozen=True, gc=False):
    """An operator lifts a pause; `id` is None: that of the whole manager."""

    id: str | None
    reply: int
    reason: str | None = None
    by: str | None = None


class Signalled(msgspec.Struct, frozen=True, gc=False):
    """A signal to a procedure, which must exist."""

    id: str
    payload: bytes
    reply: int
    dedup: str | None = None
    reason: str | None = None
    """Reason why an operator sent it; kept in the audit log."""
    by: str | None = None
    """Programs give neither this nor a reason, and leave no such row."""
    trace: bytes = b""
    """Context of the trace in which it was sent; "": in none."""
    ask: AskKey | None = None
    """Name and id of an ask, which has them instead of `dedup`; None: it is a mere signal."""


class Published(msgspec.Struct, frozen=True, gc=False):
    """An event by name, for the procedure that has waited for it longest, or the first that will."""

    name: str
    payload: bytes
    reply: int
    dedup: str | None = None
    reason: str | None = None
    """As in `Signalled`."""
    by: str | None = None
    trace: bytes = b""
    """Context of the trace in which it was sent; "": in none."""


class SignalsWithdrawn(msgspec.Struct, frozen=True, gc=False):
    """An operator takes back what no procedure has taken: signals to `id`, or events called `name`; one of the two."""

    id: str | None
    name: str | None
    reply: int
    number: int | None = None
    """Only the one with this number; None: all of them."""
    reason: str | None = None
    by: str | None = None


class SignalsExpired(msgspec.Struct, frozen=True, gc=False):
    """Published events by (target, number) that may have been kept too long at the time `at`: the core judges."""

    rows: tuple[tuple[str, int], ...]
    at: float


class StepDelayed(msgspec.Struct, frozen=True, gc=False):
    """A worker lacks the object that a step is to go on with: it runs those behind it until the state has come."""

    token: StepToken


class NoteMade(msgspec.Struct, frozen=True, gc=False):
    """`ctx.remember`: store the value before the step goes on; answered with `AnswerWorker(request)`."""

    token: StepToken
    key: str
    value: bytes
    request: int
    step: int = 0
    """The step that remembers; later than that of the token when those before it needed no record. 0: the token's."""


class StepReported(msgspec.Struct, frozen=True, gc=False):
    """A running step showed values (`ctx.expose`), or gave details with a heartbeat: the newest of each.

    They come before its answer, or before the death of its worker, and at most once a second while it runs.
    """

    token: StepToken
    exposed: tuple[tuple[str, bytes], ...] = ()
    """Keys and encoded values."""
    details: bytes | None = None
    """Note with the details of the last heartbeat that had any."""
    key: str = ""
    """Key of the note."""
    step: int = 0
    """The step of that heartbeat; later than that of the token when those before it needed no record. 0: the
    token's."""


class PoisonCleared(msgspec.Struct, frozen=True, gc=False):
    """An operator says that the object behind a poisoned key is sound again."""

    path: str
    reply: int
    reason: str | None = None
    by: str | None = None


class Acknowledged(msgspec.Struct, frozen=True, gc=False):
    """The result of a procedure was taken. `head` is what is stored of it, when it is not in memory."""

    id: str
    reply: int
    head: ProcedureRecord | None = None
    reason: str | None = None
    """As in `Signalled`."""
    by: str | None = None


class DeleteRequested(msgspec.Struct, frozen=True, gc=False):
    """An operator wants a finished root gone. `tree` is what is stored of it, None when nothing is."""

    id: str
    reply: int
    force: bool = False
    reason: str | None = None
    tree: FinishedTree | None = None
    by: str | None = None


class ScheduleDeclared(msgspec.Struct, frozen=True, gc=False):
    """A program declares a schedule; of `schedule` only the declaration counts, not how far it says it has come."""

    schedule: ScheduleRecord
    reply: int
    reason: str | None = None
    by: str | None = None


class ScheduleSteered(msgspec.Struct, frozen=True, gc=False):
    """An operator wants a schedule removed, paused, resumed, or to begin anew from now."""

    id: str
    action: Literal["remove", "pause", "resume", "reset"]
    reply: int
    reason: str | None = None
    by: str | None = None


class ResultsTaken(msgspec.Struct, frozen=True, gc=False):
    """The program has the results of these calls of its executor, which nothing else will ask for: they may go.

    `trees` are what is stored of them.
    """

    ids: tuple[str, ...]
    reply: int
    trees: tuple[FinishedTree, ...] = ()


class TreesExpired(msgspec.Struct, frozen=True, gc=False):
    """Finished trees that may have been kept long enough at the time `at` (epoch seconds): it is judged here."""

    trees: tuple[FinishedTree, ...]
    at: float


class RemovalContinued(msgspec.Struct, frozen=True, gc=False):
    """The next members of a half removed tree, the latest of them; `more`: there are others."""

    root: str
    members: tuple[ProcedureRecord, ...]
    more: bool


class Resized(msgspec.Struct, frozen=True, gc=False):
    """An operator wants another number of workers; `max_workers` None: as before, and at least as many."""

    workers: int
    max_workers: int | None
    reply: int


class ReloadBegan(msgspec.Struct, frozen=True, gc=False):
    """Workers that start from now on have newer code; those that are there now are replaced one by one."""

    reply: int
    is_over: bool = False
    """True if the reload has ended, well or not: any worker may run any step."""


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time passed: do what is due at `now`."""


Event = (
    TypeRegistered
    | Submitted
    | EnqueuedFound
    | EnqueuedRemoved
    | StepEnded
    | StepReturned
    | HostAdded
    | HostClaimed
    | HostDraining
    | HostRemoved
    | WorkerReady
    | WorkerLeaving
    | WorkerLost
    | AbortRequested
    | RetryRequested
    | RestartRequested
    | ForkRequested
    | BypassRequested
    | RollbackRequested
    | KillRequested
    | PauseRequested
    | ResumeRequested
    | Signalled
    | Published
    | SignalsWithdrawn
    | SignalsExpired
    | StepDelayed
    | NoteMade
    | StepReported
    | PoisonCleared
    | Acknowledged
    | DeleteRequested
    | ResultsTaken
    | ScheduleDeclared
    | ScheduleSteered
    | TreesExpired
    | RemovalContinued
    | Resized
    | ReloadBegan
    | Tick
)
