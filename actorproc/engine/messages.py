"""Messages to the manager actor and the supervisor actor, besides the core's events and the pool's."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from enum import IntEnum
from typing import Any, Self

import msgspec

from actorproc.core.locks.request import LockWaiter
from actorproc.engine.runtime.subscription import Subscription
from actorproc.errors import Deposed, StoreDamaged
from actorproc.model.ids import HeldSteps, StepToken, WorkerId
from actorproc.model.messages.definitions import Definition
from actorproc.model.messages.events import CrashReport
from actorproc.model.rows.records import LockRecord, ProcedureRecord, StepRecord
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.states import Phase, ProcedureState
from actorproc.report.health import RetentionHealth
from actorproc.report.metrics import Histogram, ProcedureCounts, StepCounts
from actorproc.workers.base import WorkerBooted, WorkerDied

__all__ = [
    "AddHost",
    "AddSlot",
    "Begin",
    "Booted",
    "ClaimHost",
    "Claimed",
    "CloseBatch",
    "CommitFailed",
    "Committed",
    "Describe",
    "Described",
    "Drain",
    "DrainHostSlots",
    "EndListener",
    "EndWaiter",
    "Ending",
    "EnqueuedDue",
    "FindDangling",
    "Glance",
    "Gone",
    "Halt",
    "LaunchAll",
    "LearnType",
    "ListWaiters",
    "LookSettled",
    "ManagerMetrics",
    "ManagerStatus",
    "OpenGate",
    "OwnerDeposed",
    "Patience",
    "RegisterType",
    "RemoveHost",
    "ReopenFailed",
    "Reopened",
    "ReplaceWorker",
    "ReportStatus",
    "SlotParked",
    "SlotRecovered",
    "SlotStatus",
    "StandDown",
    "StorageTrouble",
    "Subscribe",
    "Succeeded",
    "SweepDue",
    "TakeMetrics",
    "Unsubscribe",
    "Wake",
    "WatchEnds",
    "WorkerStatus",
]


class _Message(msgspec.Struct, frozen=True):
    pass


# ---------------------------------------------------------------- answers, carried by futures
class Ending(msgspec.Struct, frozen=True):
    """A terminal procedure: its head, and the encoded output ("" when it did not succeed).

    The record that closes its step log holds its last state as well, which may be large; handles keep this for long.
    """

    record: ProcedureRecord
    output: bytes

    @classmethod
    def of(cls, record: ProcedureRecord, closing: StepRecord | None) -> Self:
        """Ending that these two describe. Raises `StoreDamaged` for a success without its output."""
        if closing is None and record.state is ProcedureState.SUCCESS:
            msg = f"the record that closes {record.id} is missing from the store, and its output with it"
            raise StoreDamaged(msg, table="steps", key=f"{record.id}/{record.records}", reason="the row is missing")
        return cls(record, closing.output if closing is not None else b"")


class EndListener:
    """Is told the end of one procedure, once: what a future of it is, without what a waiting thread needs."""

    __slots__ = ("_waiting",)
    _waiting: dict[EndWaiter, tuple[str, Patience]]

    def heard(self, ending: Ending | None, error: BaseException | None) -> None:
        """Take the end, or why it will not come. Called with the manager's turn: it must return at once."""
        raise NotImplementedError

    def wait_in(self, waiting: dict[EndWaiter, tuple[str, Patience]], id: str, patience: Patience) -> None:
        """Stay in this table until the end of procedure `id` was heard."""
        self._waiting = waiting
        waiting[self] = id, patience

    def set_result(self, ending: Ending) -> None:
        """Tell it, unless it was told before."""
        if self._leave():
            self.heard(ending, None)

    def set_exception(self, error: BaseException | None) -> None:
        """Tell it, unless it was told before."""
        if self._leave():
            self.heard(None, error)

    def _leave(self) -> bool:
        try:
            del self._waiting[self]
        except KeyError:
            return False
        return True


EndWaiter = Future[Ending] | EndListener
"""Form of a wait for the end of a procedure."""


class Described(msgspec.Struct, frozen=True):
    """A head as it is now, with what only the live engine knows of it."""

    record: ProcedureRecord
    phase: Phase
    reason: str | None
    progress: float | None
    message: str | None = None


class WorkerStatus(msgspec.Struct, frozen=True):
    """A worker as the manager knows it: the step in it and how many wait behind."""

    worker: WorkerId
    procedure: str | None
    type_name: str | None
    step: int | None
    attempt: int | None
    queued: int
    step_age: float | None
    progress: float | None
    message: str | None
    step_name: str | None = None


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
    paused: str | None = None
    """Reason for which an operator paused it; None: it is not paused."""
    gated: bool = False
    running: tuple[StepToken, ...] = ()
    """The steps that run now, as far as can be told from here."""
    vacated: tuple[int, ...] = ()
    """Slots without a worker that are not wanted any more, since the pool was made smaller."""
    retention: RetentionHealth = RetentionHealth()
    changed: tuple[str, ...] = ()
    """Modules whose files changed since the manager loaded them."""
    types: tuple[str, ...] = ()
    """Names of the types whose classes are registered."""
    other_code: dict[str, tuple[str, ...]] = {}
    """Types of which a host has other code, by the host's name."""
    schedules: tuple[str, ...] = ()
    """One sentence for each schedule that does not fire as it should."""
    enqueued: tuple[str, ...] = ()
    """Sentences about enqueued procedures that were refused, or have to wait."""


class LeaderCounters(msgspec.Struct, frozen=True, kw_only=True):
    """A manager's own figures about the lead of a store that several machines share."""

    leads: bool = True
    takeovers: int = 0
    deposed: int = 0
    late_renewals: int = 0
    regained_locks: int = 0
    store_round_trip: float | None = None


class ManagerMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """The manager actor's share of `actorproc.report.metrics.Metrics`."""

    uptime: float
    procedures: dict[str, ProcedureCounts]
    steps: dict[str, StepCounts]
    named_steps: dict[str, dict[str, StepCounts]]
    histograms: dict[str, Histogram]
    replayed: int
    stale_results: int
    lost_commits: int
    clock_jumps: int
    commits: int
    queued: int
    in_hand: int
    lock_waiting: int
    workers: int
    workers_busy: int
    watchers: int
    events_lost: int
    retention: RetentionHealth
    deaths: dict[str, int] = {}
    """Deaths of workers by cause."""
    queue_age: float = 0.0
    """Seconds that the procedure has waited for a worker which waits longest."""
    clients: int = 0
    """Programs that are connected through the control socket."""
    host_losses: int = 0
    adopted_steps: int = 0
    link_resumes: int = 0
    spans_dropped: int = 0
    lead: LeaderCounters = LeaderCounters()


class SlotStatus(msgspec.Struct, frozen=True):
    """One worker slot as its supervisor sees it."""

    slot: int
    incarnation: int
    state: str
    """booting, running, backing-off, parked, retiring."""
    restarts: int
    reason: str | None


class Patience(IntEnum):
    """Seconds that a caller waits for an end that cannot come as things are."""

    CALL = 0
    """Until the procedure, or a member of its tree that it needs, has been parked for `Config.parked_grace`."""
    PARKED = 1
    """As long as a parked one may go on in this life of the manager; a damaged one cannot."""
    ALWAYS = 2
    """As long as the manager lives."""


# ---------------------------------------------------------------- to the manager
class Begin(_Message, frozen=True):
    """All parts know each other. Before this message no commit may begin: its end would not reach the manager."""


class CloseBatch(_Message, frozen=True):
    """Told by the manager to itself: lands behind all that waits, and that is the batch."""


class Wake(_Message, frozen=True):
    """A deadline the manager asked for has come."""


class Committed(_Message, frozen=True):
    """This batch is durable."""

    batch: int


class CommitFailed(_Message, frozen=True):
    """This batch could not be committed; its outcome is unknown."""

    batch: int
    error: Exception


class Reopened(_Message, frozen=True):
    """The store works again; `snapshot` is what it holds."""

    snapshot: RecoverySnapshot


class StorageTrouble(_Message, frozen=True):
    """The store could not be opened again yet; it is tried again and again."""

    error: Exception


class OwnerDeposed(_Message, frozen=True):
    """Another owner has taken the store over, as the store heard between two commits."""

    error: Deposed


class ReopenFailed(_Message, frozen=True):
    """Opening the store again is pointless, or was given up for a stop."""

    error: Exception


class SweepDue(_Message, frozen=True):
    """The time for the next slice of a sweep has come."""


class EnqueuedDue(_Message, frozen=True):
    """Applications may have enqueued procedures in transactions of their own."""


class RegisterType(_Message, frozen=True):
    """A class or loader, as workers shall find it."""

    definition: Definition


class LearnType(_Message, frozen=True):
    """A class as a client of the control socket has it; what this program itself registered stays."""

    definition: Definition


class WatchEnds(_Message, frozen=True):
    """Tell each waiter the `Ending` of its procedure, or why it cannot come, as far as `patience` says."""

    ends: Sequence[tuple[str, EndWaiter]]
    patience: Patience = Patience.CALL


class Glance(_Message, frozen=True):
    """Answer with how a procedure stands, and with what keeps it from ending in the reason; None: it is unknown."""

    id: str
    future: Future[Described | None]


class Subscribe(_Message, frozen=True):
    """Tell this subscription what changes, from the answer in `future` on."""

    subscription: Subscription
    since: int | None
    future: Future[None]


class Unsubscribe(_Message, frozen=True):
    """Tell this subscription nothing more."""

    subscription: Subscription


class TakeMetrics(_Message, frozen=True):
    """Answer with the manager's counters."""

    future: Future[ManagerMetrics]


class Describe(_Message, frozen=True):
    """Answer with a `Described` for every head, in order."""

    records: tuple[ProcedureRecord, ...]
    future: Future[tuple[Described, ...]]


class ListWaiters(_Message, frozen=True):
    """Answer with the procedures that wait for locks, in the order of the queue."""

    future: Future[list[LockWaiter]]


class FindDangling(_Message, frozen=True):
    """Answer with the stored locks that no procedure will give up or that memory does not know so, with the reason."""

    future: Future[list[tuple[LockRecord, str]]]


class ReportStatus(_Message, frozen=True):
    """Answer with the actor's status (`ManagerStatus`, or a tuple of `SlotStatus`)."""

    future: Future[Any]


class SlotParked(_Message, frozen=True):
    """Workers of this one's slot fail too often; it rests for a while. `report` is of the last."""

    worker: WorkerId
    report: CrashReport


class SlotRecovered(_Message, frozen=True):
    """This worker has booted in a parked slot."""

    worker: WorkerId


class LookSettled(_Message, frozen=True):
    """Answer whether nothing is under way: no event, no commit, no step; then the alarm is armed for what is next."""

    future: Future[bool]


class OpenGate(_Message, frozen=True):
    """Hand out steps, after a start with the gate closed; `future` is done when they are."""

    future: Future[None]


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


class AddSlot(_Message, frozen=True):
    """Keep a worker in one more slot."""


class AddHost(_Message, frozen=True):
    """A host has joined: keep workers in its slots. Of some of them workers live already."""

    host: int
    slots: int
    living: tuple[WorkerId, ...] = ()


Claimed = tuple[tuple[WorkerId, ...], tuple[StepToken, ...]]
"""Workers of a host that live on, and the steps in their hands that count."""


class ClaimHost(_Message, frozen=True):
    """A host comes that may have worked for an earlier leader: which of its workers and steps count?"""

    host: int
    slots: int
    name: str
    held: tuple[HeldSteps, ...]
    future: Future[Claimed]


class DrainHostSlots(_Message, frozen=True):
    """A host leaves: no worker that ends there is replaced."""

    host: int


class RemoveHost(_Message, frozen=True):
    """A host is gone, and its slots with it."""

    host: int


class RetireSlot(_Message, frozen=True):
    """End this worker in order and give its slot up."""

    worker: WorkerId


class ReplaceWorker(_Message, frozen=True):
    """Have this worker leave in order, and another one take its place."""

    worker: WorkerId
    reason: str


class Booted(_Message, frozen=True):
    worker: WorkerId


class Succeeded(_Message, frozen=True):
    """A worker died in a step, and a spare took its place at once: one decision, and one commit."""

    died: WorkerDied
    booted: WorkerBooted


class Gone(_Message, frozen=True):
    """A worker is dead. `idle`: it had booted and ran no step, so only the slot is charged."""

    worker: WorkerId
    report: CrashReport
    booted: bool
    idle: bool
    successor: WorkerId | None = None
    """The spare that has taken its place already."""


class StandDown(_Message, frozen=True):
    """The engine stops: replace no worker any more."""
