"""Parts of the `EngineState`: each owns the attributes of one concern; `EngineState` puts them together."""

from __future__ import annotations

import json
from typing import NamedTuple

import msgspec

from actorproc.core.locks.table import LockTable
from actorproc.core.queues.cold_queue import ColdQueue
from actorproc.core.queues.event_subscribers import EventSubscribers
from actorproc.core.queues.key_limits import KeyLimits, RootLimit
from actorproc.core.queues.run_queue import RunQueue
from actorproc.core.queues.timers import TimerQueue
from actorproc.core.queues.worker_shares import WorkerShares
from actorproc.core.queues.worker_table import SlotPlan, WorkerTable, WorkerWaitList
from actorproc.core.state.tree import Tree
from actorproc.model.ids import WorkerId
from actorproc.model.messages.commands import Command
from actorproc.model.policies import LockMode, Quotas, Retention, Scheduling, StepLimits, TypeMeta
from actorproc.model.rows.records import EventRecord, PoisonRecord, ProcedureRecord, RemovalRecord
from actorproc.model.rows.writes import Write
from actorproc.model.states import TERMINAL

__all__ = [
    "EndedTrees",
    "KnownLimits",
    "ManagerFlags",
    "PendingDecision",
    "PostponedStep",
    "ResidentSet",
    "WaitRegistry",
    "WorkQueues",
]

_QUOTAS = Quotas()
_RETENTION = Retention()


class KnownLimits(msgspec.Struct, frozen=True, gc=False):
    """Limits with what is asked of them for every step, answered once."""

    limits: StepLimits
    is_plain: bool
    """Any worker will do, the step runs alone in it, and nothing but its time is limited."""
    meta: TypeMeta | None = None
    """The class that says so; None: the submit does."""


class ManagerFlags:
    """Part of the `EngineState`: the time of the event, the next numbers to give, and whether steps are handed out."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.now = 0.0
        self.batch = 1
        self.next_seq = 1
        self.next_ticket = 1
        self.dispatching = True
        self.paused: str | None = None
        """Reason for which an operator paused the whole manager; None: it is not paused. Durable."""
        self.gated = False
        """Nothing is handed out until the gate is opened; not durable."""
        self.unattended = False
        """No class and no worker will come: what a class must be asked waits for the next manager. Not durable."""
        self.audits = 0
        """Rows of the audit log about the manager itself."""
        self.quotas = _QUOTAS
        self.stale_results = 0

    @property
    def hands_out(self) -> bool:
        """Steps may be handed out: no trouble, no pause of the whole manager, no closed gate."""
        return self.dispatching and self.paused is None and not self.gated


class ResidentSet:
    """Part of the `EngineState`: heads, trees and types."""

    def __init__(self) -> None:
        self.procs: dict[str, ProcedureRecord] = {}
        self.trees: dict[str, Tree] = {}
        self.types: dict[str, TypeMeta] = {}
        self.blanks: dict[str, ProcedureRecord] = {}
        """Heads of no procedure by type. New ones are copies of them: half of what it takes to make them by name."""
        self.limits: dict[str, KnownLimits] = {}
        """Limits of a step's resources by registered class."""
        self.parked: dict[str, dict[str, None]] = {}
        """Resident procedures by type that cannot run until the type is registered."""
        self.parkings = 0
        """Number of times that a procedure was parked: a change of it says that there is something new."""
        self.open_roots = 0
        """Roots that have not ended, in memory or not."""
        self.damaged: dict[str, str] = {}
        """Procedures that cannot be trusted, with the reason; they are not resident."""
        self.flaws: list[str] = []
        """Damaged records that belong to no procedure, and what is made of them; one sentence each."""
        self.unsettled: dict[str, None] = {}
        """Roots of trees that may leave memory: looked at when what changed them is stored."""

    def tree_of(self, record: ProcedureRecord) -> Tree:
        """The tree of a resident procedure."""
        return self.trees[record.root]

    def meta(self, record: ProcedureRecord) -> TypeMeta | None:
        """Traits of the procedure's class, None while it is not registered."""
        return self.types.get(record.type_name)

    def has_no_return(self, record: ProcedureRecord) -> bool:
        """True if the tree is past its point of no return. Members that outlive their root are on their own again."""
        root = self.procs[record.root]
        return root.no_return and root.state not in TERMINAL

    def shows_abort(self, record: ProcedureRecord) -> bool:
        """`Context.aborting` of a step that goes out now: True when an abort was asked and may have an effect."""
        return record.aborting and not record.rolling and not self.has_no_return(record)


class PostponedStep(NamedTuple):
    """A step that could not be begun, for a reason that may pass."""

    step: tuple[int, int]
    """Its number and that of the record before it."""
    tried: int
    reason: str


class WorkQueues:
    """Part of the `EngineState`: queues and workers. Nothing here is stored, but for the marks in the heads."""

    def __init__(self, scheduling: Scheduling) -> None:
        self.scheduling = scheduling
        self.run_queue = RunQueue(scheduling.priority_ageing)
        self.admission = RootLimit(scheduling.max_running)
        self.key_limits = KeyLimits(scheduling.concurrency, scheduling.rate)
        self.knows_dedicated = False
        """A class, or a procedure in memory, has been met whose steps run in a worker of its own."""
        self.awaiting_worker = WorkerWaitList()
        """Runnable procedures whose worker of their own is not there yet."""
        self.cold_queue = ColdQueue(self.run_queue.ageing)
        self.run_queue.rooms += [self.admission, self.key_limits, self.awaiting_worker, self.cold_queue]
        self.worker_shares: WorkerShares | None = None
        if scheduling.shares or scheduling.reserved:
            self.worker_shares = WorkerShares(scheduling.shares, scheduling.reserved)
        self.worker_table = WorkerTable()
        self.slot_plan = SlotPlan(scheduling.workers)
        self.hired: dict[str, WorkerId | None] = {}
        """Procedures with a worker of their own; None: it was asked for."""
        self.suspects: set[str] = set()
        """Procedures one of which killed a worker that ran several: each runs alone until it was answered."""
        self.outdated: set[WorkerId] = set()
        """While workers are reloaded: those with old code."""
        self.renewed: set[str] = set()
        """Procedures that a worker with new code was handed meanwhile."""
        self.postponed: dict[str, PostponedStep] = {}
        """Steps that could not be begun for a reason that may pass, by procedure."""
        self.warm: dict[str, WorkerId] = {}
        """Worker that holds the live object of a procedure, by procedure."""

    @property
    def leaves_outside(self) -> bool:
        """Procedures that need only a worker may wait in the cold run queue: nothing is counted before their turn."""
        return self.worker_shares is None and self.admission.capacity is None


class WaitRegistry:
    """Part of the `EngineState`: timers, locks, poisoned keys, signals."""

    def __init__(self) -> None:
        self.timers = TimerQueue()
        self.locks = LockTable()
        self.inherited: dict[str, dict[str, LockMode]] = {}
        """Locks that parents with ``lock_scope = "step"`` hold for their finished children, and keep between steps."""
        self.poisons: dict[str, PoisonRecord] = {}
        self.subscribers = EventSubscribers()
        self.buffered: dict[str, list[EventRecord]] = {}
        """Signals and events that none has taken, by target, in the order in which they came."""
        self.published = 0
        """Events by name among them."""
        self.taken: dict[str, dict[str, int]] = {}
        """Target of signals to the ids of those that were taken, oldest first, with the numbers of their rows."""
        self.taken_order: dict[tuple[str, str], None] = {}
        """The same as (target, id), oldest first over all targets."""

    def poison_notice(self, path: str) -> str:
        """Text for those who are refused: the procedure that poisoned a key, the reason, and how it is cleared."""
        poison = self.poisons[path]
        call = f"manager.clear_poison({json.dumps(path, ensure_ascii=False)})"
        others = f" (and by {', '.join(name for name, _ in poison.others[:5])})" if poison.others else ""
        return (
            f"{path!r} was poisoned by {poison.by}: {poison.reason}{others}. "
            f"Once the object is known to be sound, clear it with {call}"
        )


class EndedTrees:
    """Part of the `EngineState`: how long finished trees are kept, and those that are on their way out."""

    def __init__(self) -> None:
        self.retention = _RETENTION
        self.acknowledged: dict[str, float] = {}
        """Finished roots whose results were taken, and when, the first first."""
        self.removals: dict[str, RemovalRecord] = {}
        """Trees that are half removed, by root."""
        self.shedding: dict[str, ProcedureRecord] = {}
        """Ended children of earlier generations (`Status.again`), which are removed in slices; not resident."""
        self.removed: dict[str, int] = {}
        """Procedures removed in batches that may not be stored yet: what the store has of them is void."""


class PendingDecision:
    """Part of the `EngineState`: empty between two decisions, but for `asking` and `stalled`."""

    def __init__(self) -> None:
        self.scopes_to_advance: dict[str, None] = {}
        """Tops of failure scopes to look at again."""
        self.retaken: dict[str, None] = {}
        """Retried roots whose trees hold again what they held: their members go on."""
        self.bereft: dict[str, None] = {}
        """Trees that gave up the last lock they held."""
        self.victims: dict[str, list[str]] = {}
        """Roots to fail for a cycle of lock waiting, with the cycle."""
        self.refused: dict[str, str] = {}
        """Procedures that asked for a poisoned key, with that key."""
        self.orphaned: dict[str, None] = {}
        """Procedures that end and whose outstanding children are to be aborted."""
        self.outlived: dict[str, None] = {}
        """Procedures that go on without their root, and were asked to abort when there was no way back for it."""
        self.overdue: dict[str, None] = {}
        """Procedures that were to be handed out after their deadline."""
        self.stalled: dict[str, frozenset[str]] = {}
        """Tops of failure scopes whose turn waits for locks that others hold, while another undo waits as well; with
        the scopes of the tree that stood still then."""
        self.searches: dict[str, None] = {}
        """Trees in which the undo under way may have come into a cycle of waiting: a scope stalled, or was bypassed."""
        self.asking: dict[str, None] = {}
        """Procedures to be asked whether they may be aborted."""
        self.predecessors: dict[str, ProcedureRecord] = {}
        """Heads of ended roots whose ids are given to new generations, until these have heads of their own."""
        self.writes: list[Write] = []
        self.commands: list[Command] = []
        self._touched: dict[str, ProcedureRecord] = {}

    def touch(self, record: ProcedureRecord) -> None:
        """The head changed: it will be written with this decision."""
        self._touched[record.id] = record

    def write(self, write: Write) -> None:
        """Add a write to the decision."""
        self.writes.append(write)

    def command(self, command: Command) -> None:
        """Add a command, to be carried out once the writes are durable."""
        self.commands.append(command)
