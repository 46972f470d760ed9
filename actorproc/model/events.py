"""What may happen: the inputs of the core. Past tense, frozen."""

from __future__ import annotations

import msgspec

from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.outcomes import Outcome
from actorproc.model.policies import TypeMeta
from actorproc.model.records import NewProcedure

__all__ = [
    "AbortRequested",
    "CrashReport",
    "Event",
    "NoteMade",
    "PoisonCleared",
    "Signalled",
    "StepEnded",
    "StepReturned",
    "Submitted",
    "Tick",
    "TypeRegistered",
    "WorkerLost",
    "WorkerReady",
]


class TypeRegistered(msgspec.Struct, frozen=True, gc=False):
    """A class or loader is known now; what was parked for it goes on."""

    meta: TypeMeta


class Submitted(msgspec.Struct, frozen=True, gc=False):
    """Procedures were submitted, all or nothing. `reply` names the waiting caller."""

    procedures: tuple[NewProcedure, ...]
    reply: int


class StepEnded(msgspec.Struct, frozen=True, gc=False):
    """A worker answered a handed-out step."""

    token: StepToken
    outcome: Outcome


class StepReturned(msgspec.Struct, frozen=True, gc=False):
    """A worker gave back a prefetched step that it had not begun."""

    token: StepToken


class WorkerReady(msgspec.Struct, frozen=True, gc=False):
    """A worker in this slot takes steps now."""

    worker: WorkerId
    threads: int = 1


class CrashReport(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """Why a worker ended, in words and numbers."""

    kind: str
    """exit, signal, out-of-memory, timeout, boot, protocol, stopped."""
    message: str
    """One sentence: "killed by signal 9 (SIGKILL)", "exited with code 3 in the middle of a step"."""
    code: int | None = None
    signal: str | None = None
    stderr: str = ""
    stack: str = ""
    peak_rss: int | None = None
    """Bytes."""


class WorkerLost(msgspec.Struct, frozen=True, gc=False):
    """A worker is dead and reaped; everything it answered before has been delivered.

    `blamed` is the step the supervisor killed it for (a time limit); None: blame the first unanswered step
    when `crashed`, nobody otherwise (an orderly stop).
    """

    worker: WorkerId
    report: CrashReport
    crashed: bool = True
    blamed: StepToken | None = None


class AbortRequested(msgspec.Struct, frozen=True, gc=False):
    """Somebody asked a procedure to abort."""

    id: str
    reply: int
    force: bool = False


class Signalled(msgspec.Struct, frozen=True, gc=False):
    """A signal for a procedure id or an event name."""

    target: str
    payload: bytes
    reply: int
    dedup: str | None = None


class NoteMade(msgspec.Struct, frozen=True, gc=False):
    """`ctx.remember`: store the value before the step goes on; answered with `AnswerWorker(request)`."""

    token: StepToken
    key: str
    value: bytes
    request: int


class PoisonCleared(msgspec.Struct, frozen=True, gc=False):
    """An operator says that the object behind a poisoned key is sound again."""

    path: str
    reply: int
    reason: str | None = None


class Tick(msgspec.Struct, frozen=True, gc=False):
    """Time passed: do what is due at `now`."""


Event = (
    TypeRegistered
    | Submitted
    | StepEnded
    | StepReturned
    | WorkerReady
    | WorkerLost
    | AbortRequested
    | Signalled
    | NoteMade
    | PoisonCleared
    | Tick
)
