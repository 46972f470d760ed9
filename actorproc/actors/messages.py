"""What the manager actor and the supervisor actor are told, besides the core's events and the pool's."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import msgspec

from actorproc.core.lock_table import LockWaiter
from actorproc.model.definitions import Definition
from actorproc.model.events import CrashReport
from actorproc.model.ids import WorkerId
from actorproc.model.records import LockRecord, ProcedureRecord, StepRecord
from actorproc.model.snapshot import Snapshot
from actorproc.model.states import Phase

__all__ = [
    "Booted",
    "CloseBatch",
    "CommitFailed",
    "Committed",
    "Describe",
    "Described",
    "Drain",
    "Ending",
    "FindDangling",
    "Gone",
    "Halt",
    "LaunchAll",
    "ListWaiters",
    "ManagerStatus",
    "RegisterType",
    "ReopenFailed",
    "Reopened",
    "Report",
    "SetDispatching",
    "SlotStatus",
    "StandDown",
    "StorageTrouble",
    "Wake",
    "Watch",
    "WorkerStatus",
]


class _Message(msgspec.Struct, frozen=True):
    pass


# ---------------------------------------------------------------- answers, carried by futures
class Ending(msgspec.Struct, frozen=True):
    """A terminal procedure: its head and the record that closes its step log (None: only the head is known)."""

    record: ProcedureRecord
    closing: StepRecord | None


class Described(msgspec.Struct, frozen=True):
    """A head as it is now, with what only the live engine knows of it."""

    record: ProcedureRecord
    phase: Phase
    reason: str | None
    progress: float | None


class WorkerStatus(msgspec.Struct, frozen=True):
    """What the manager knows of a worker: the step in it and how many wait behind."""

    worker: WorkerId
    procedure: str | None
    type_name: str | None
    step: int | None
    attempt: int | None
    queued: int
    step_age: float | None
    progress: float | None
    message: str | None


class ManagerStatus(msgspec.Struct, frozen=True):
    """The manager actor's own report; times in seconds."""

    workers: tuple[WorkerStatus, ...]
    storage_error: str | None
    storage_down_for: float | None
    commits: int
    last_commit: float
    slowest_commit: float
    stale_results: int
    damaged: tuple[str, ...]
    """One sentence for each procedure that stands still because a record of its tree is damaged."""
    dispatching: bool


class SlotStatus(msgspec.Struct, frozen=True):
    """One worker slot as its supervisor sees it."""

    slot: int
    incarnation: int
    state: str
    """booting, running, backing-off, parked."""
    restarts: int
    reason: str | None


# ---------------------------------------------------------------- to the manager
class CloseBatch(_Message, frozen=True):
    """Told by the manager to itself: lands behind all that waits, and that is the batch."""


class Wake(_Message, frozen=True):
    """A deadline the manager asked for has come."""


class Committed(_Message, frozen=True):
    """The store thread made this batch durable."""

    batch: int


class CommitFailed(_Message, frozen=True):
    """The store thread could not commit this batch; its outcome is unknown."""

    batch: int
    error: Exception


class Reopened(_Message, frozen=True):
    """The store works again; `snapshot` is what it holds."""

    snapshot: Snapshot


class StorageTrouble(_Message, frozen=True):
    """The store could not be opened again yet; the store thread goes on trying."""

    error: Exception


class ReopenFailed(_Message, frozen=True):
    """Opening the store again is pointless, or was given up for a stop."""

    error: Exception


class RegisterType(_Message, frozen=True):
    """A class or loader, as workers shall find it."""

    definition: Definition


class Watch(_Message, frozen=True):
    """Tell `future` the `Ending` of this procedure."""

    id: str
    future: Future[Ending]


class Describe(_Message, frozen=True):
    """Answer with a `Described` for every head, in order."""

    records: tuple[ProcedureRecord, ...]
    future: Future[tuple[Described, ...]]


class ListWaiters(_Message, frozen=True):
    """Answer with the procedures that wait for locks, in the order of the queue."""

    future: Future[list[LockWaiter]]


class FindDangling(_Message, frozen=True):
    """Answer with the stored locks that nobody will give up or that memory does not know so, with the reason."""

    future: Future[list[tuple[LockRecord, str]]]


class Report(_Message, frozen=True):
    """Answer with the actor's status (`ManagerStatus`, or a tuple of `SlotStatus`)."""

    future: Future[Any]


class SetDispatching(_Message, frozen=True):
    """Pause (False) or resume (True) handing out steps."""

    on: bool


class Drain(_Message, frozen=True):
    """Hand out nothing more; `future` is done when no step runs and all is committed."""

    future: Future[None]


class Halt(_Message, frozen=True):
    """Commit what is decided, then ignore everything; `future` is done when the last commit is."""

    future: Future[None]


# ---------------------------------------------------------------- to the supervisor
class LaunchAll(_Message, frozen=True):
    """Start every slot; `future` is done when each has booted or failed to."""

    future: Future[None]


class Booted(_Message, frozen=True):
    worker: WorkerId


class Gone(_Message, frozen=True):
    """A worker is dead. `idle`: it had booted and ran no step, so nobody but the slot is to blame."""

    worker: WorkerId
    report: CrashReport
    booted: bool
    idle: bool


class StandDown(_Message, frozen=True):
    """The engine stops: replace nobody any more."""
