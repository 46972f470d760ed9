"""Everything the core holds in memory, and the one place where a decision is written down.

Memory is a cache of the store: whoever changes a head calls `touch`, and `close` turns all touched heads
into writes. `restore(store + pending writes)` must give the same memory again.
"""

from __future__ import annotations

import json
from copy import copy

from actorproc.core.concurrency import Slots
from actorproc.core.lobby import Lobby
from actorproc.core.lock_table import LockTable
from actorproc.core.ready import ReadyQueue
from actorproc.core.shares import Shares
from actorproc.core.staff import Roster, Staff, WaitingRoom
from actorproc.core.timers import Timers
from actorproc.core.tree import Tree
from actorproc.model.commands import Command, Decision
from actorproc.model.ids import WorkerId
from actorproc.model.policies import LockMode, Quotas, Retention, Scheduling, StepLimits, TypeMeta
from actorproc.model.records import AuditRecord, EventRecord, PoisonRecord, ProcedureRecord, RemovalRecord
from actorproc.model.states import TERMINAL
from actorproc.model.writes import DeleteAcknowledgement, PutAudit, PutProcedure, PutSwitch, Was, Write

__all__ = ["DEFAULT_SCHEDULING", "Book"]

DEFAULT_SCHEDULING = Scheduling()


class Book:
    """Resident trees, queues, locks, timers, workers; plus the decision being made."""

    def __init__(self, epoch: int, scheduling: Scheduling = DEFAULT_SCHEDULING) -> None:
        self.epoch = epoch
        self.now = 0.0
        self.batch = 1
        self.next_seq = 1
        self.next_ticket = 1
        self.dispatching = True
        self.paused: str | None = None
        """Why an operator paused the whole manager; None: it is not paused. Durable."""
        self.gated = False
        """Nothing is handed out until the gate is opened; not durable."""
        self.audits = 0
        """Rows of the audit log about the manager itself."""
        self.quotas = Quotas()
        self.procs: dict[str, ProcedureRecord] = {}
        self.trees: dict[str, Tree] = {}
        self.types: dict[str, TypeMeta] = {}
        self.parked: dict[str, dict[str, None]] = {}
        """Resident procedures by type that cannot run until the type is registered."""
        self.scheduling = scheduling
        self.ready = ReadyQueue(scheduling.priority_ageing)
        self.lobby = Lobby(scheduling.max_running)
        self.slots = Slots(scheduling.concurrency, scheduling.rate)
        self.ready.rooms += [self.lobby, self.slots]
        self.shares: Shares | None = None
        if scheduling.shares or scheduling.reserved:
            self.shares = Shares(scheduling.shares, scheduling.reserved)
        self.roster = Roster(scheduling.workers)
        self.open_roots = 0
        """Roots that have not ended, in memory or not."""
        self.timers = Timers()
        self.locks = LockTable()
        self.inherited: dict[str, dict[str, LockMode]] = {}
        """What parents with ``lock_scope = "step"`` hold for their finished children, and keep between steps."""
        self.poisons: dict[str, PoisonRecord] = {}
        self.staff = Staff()
        self.limits: dict[str, tuple[TypeMeta, StepLimits]] = {}
        """What each registered class says of the resources of a step."""
        self.hired: dict[str, WorkerId | None] = {}
        """Procedures with a worker of their own; None: it was asked for."""
        self.aside = WaitingRoom()
        """Runnable procedures whose worker of their own is not there yet."""
        self.ready.rooms.append(self.aside)
        self.suspects: set[str] = set()
        """Procedures one of which killed a worker that ran several: each runs alone until it was answered."""
        self.warm: dict[str, WorkerId] = {}
        """Which worker holds the live object of a procedure."""
        self.listeners: dict[str, dict[str, str]] = {}
        """Event name to the procedures that wait for it (with their roots), oldest first."""
        self.buffered: dict[str, list[EventRecord]] = {}
        self.taken: dict[str, dict[str, int]] = {}
        """Target of signals to the ids of those that were taken, oldest first, with the numbers of their rows."""
        self.taken_order: dict[tuple[str, str], None] = {}
        """The same as (target, id), oldest first over all targets."""
        self.damaged: dict[str, str] = {}
        """Procedures that cannot be trusted, with the reason; they are not resident."""
        self.flaws: list[str] = []
        """Damaged records that belong to no procedure, and what is made of them; one sentence each."""
        self.unsettled: dict[str, None] = {}
        """Roots of trees changed since they were last looked at for leaving memory."""
        self.retention = Retention()
        self.acknowledged: dict[str, float] = {}
        """Finished roots whose results were taken, and when, the first first."""
        self.removals: dict[str, RemovalRecord] = {}
        """Trees that are half removed, by root."""
        self.removed: dict[str, int] = {}
        """Procedures removed in batches that may not be stored yet: what the store has of them is void."""
        self.stale_results = 0
        # What is left to do before the decision is complete.
        self.scopes_to_advance: dict[str, None] = {}
        """Tops of failure scopes to look at again."""
        self.retaken: dict[str, None] = {}
        """Retried roots whose trees hold again what they held: their members go on."""
        self.victims: dict[str, list[str]] = {}
        """Roots to fail for a cycle of lock waiting, with the cycle."""
        self.refused: dict[str, str] = {}
        """Procedures that asked for a poisoned key, with that key."""
        self.orphaned: dict[str, None] = {}
        """Procedures that end and whose outstanding children are to be aborted."""
        self.overdue: dict[str, None] = {}
        """Procedures that were to be handed out after their deadline."""
        self.asking: dict[str, None] = {}
        """Procedures to be asked whether they may be aborted."""
        self.writes: list[Write] = []
        self.commands: list[Command] = []
        self._touched: dict[str, ProcedureRecord] = {}
        self._stored: dict[str, Was] = {}

    # ------------------------------------------------------------------ residents
    def admit(self, record: ProcedureRecord, *, stored: bool) -> Tree:
        """Make a head resident; `stored` says that the store has it as it is."""
        tree = self.trees.get(record.root)
        if tree is None:
            tree = self.trees[record.root] = Tree(record.root)
            self.unsettled[record.root] = None
        self.procs[record.id] = record
        tree.add(record)
        if record.undoing:
            tree.undoing = record.id
        if self.locks.keys_of(record.id):
            tree.holders.add(record.id)
        tree.note_still(record)
        if stored:
            self._stored[record.id] = Was(record.state, record.due_at, record.finished_at)
        return tree

    def dismiss(self, tree: Tree) -> None:
        """Let a cold or finished tree leave memory."""
        for procedure in tree.members:
            del self.procs[procedure]
            self._stored.pop(procedure, None)
            self.warm.pop(procedure, None)
        del self.trees[tree.root]

    def tree_of(self, record: ProcedureRecord) -> Tree:
        """The tree of a resident procedure."""
        return self.trees[record.root]

    def meta(self, record: ProcedureRecord) -> TypeMeta | None:
        """What is known of the procedure's class, None while it is not registered."""
        return self.types.get(record.type_name)

    def has_no_return(self, record: ProcedureRecord) -> bool:
        """Whether the tree is past its point of no return. What outlives its root is on its own again."""
        root = self.procs[record.root]
        return root.no_return and root.state not in TERMINAL

    def is_late(self, record: ProcedureRecord) -> bool:
        """Whether the deadline of a procedure that still goes forward has passed."""
        if record.deadline is None or record.deadline > self.now or record.state in TERMINAL:
            return False
        return not record.rolling and not record.bypassing and not self.has_no_return(record)

    def poison_notice(self, path: str) -> str:
        """Who poisoned a key, why, and how it is cleared: for those who are refused."""
        poison = self.poisons[path]
        call = f"manager.clear_poison({json.dumps(path, ensure_ascii=False)})"
        others = f" (and by {', '.join(name for name, _ in poison.others[:5])})" if poison.others else ""
        return (
            f"{path!r} was poisoned by {poison.by}: {poison.reason}{others}. "
            f"Once the object is known to be sound, clear it with {call}"
        )

    @property
    def hands_out(self) -> bool:
        """Steps may be handed out: no trouble, no pause of the whole manager, no closed gate."""
        return self.dispatching and self.paused is None and not self.gated

    # ------------------------------------------------------------------ the decision
    def audit(self, record: ProcedureRecord | None, verb: str, reason: str | None, detail: str = "") -> None:
        """Note what an operator asked for and was granted: of a procedure, or (None) of the manager."""
        if record is None:
            self.audits += 1
            self.write(PutSwitch(self.paused, self.audits))
            number, target = self.audits, ""
        else:
            record.audits += 1
            self.touch(record)
            number, target = record.audits, record.id
        self.write(PutAudit(AuditRecord(target, number, self.now, verb, reason, detail)))

    def touch(self, record: ProcedureRecord) -> None:
        """The head changed: it will be written with this decision."""
        self._touched[record.id] = record

    def write(self, write: Write) -> None:
        """Add a write to the decision."""
        self.writes.append(write)

    def command(self, command: Command) -> None:
        """Add a command, to be carried out once the writes are durable."""
        self.commands.append(command)

    def close(self) -> Decision:
        """The decision made since the last call."""
        for procedure, record in self._touched.items():
            record.updated_at = self.now
            if procedure in self.acknowledged and record.finished_at is None:  # it runs again
                del self.acknowledged[procedure]
                self.writes.append(DeleteAcknowledgement(procedure))
            was = self._stored.get(procedure)
            self._forget_times(record, was)
            self.writes.append(PutProcedure(copy(record), was))
            if (
                was is None
                or was.state is not record.state
                or was.due_at != record.due_at
                or was.finished_at != record.finished_at
            ):
                self._stored[procedure] = Was(record.state, record.due_at, record.finished_at)
                if record.parent is None:
                    was_open = was is not None and was.state not in TERMINAL
                    self.open_roots += (record.state not in TERMINAL) - was_open
            self.trees[record.root].batch = self.batch
            self.unsettled[record.root] = None
        self._touched.clear()
        decision = Decision(self.writes, self.commands)
        self.writes = []
        self.commands = []
        return decision

    def _forget_times(self, record: ProcedureRecord, was: Was | None) -> None:
        """Timers of a wait that is over, or of a procedure that has ended, go off for nobody."""
        due_at = was.due_at if was is not None else None
        if due_at is not None and due_at not in {record.due_at, record.deadline}:
            self.timers.discard(due_at, record.id)
        if record.finished_at is not None:
            for at in (due_at, record.deadline):
                if at is not None:
                    self.timers.discard(at, record.id)

    def settle(self, batch: int) -> None:
        """Let trees leave memory that are cold or finished and were last changed in a batch that is stored."""
        if self.removed:
            self.removed = {name: removed for name, removed in self.removed.items() if removed > batch}
        for root in list(self.unsettled):
            tree = self.trees.get(root)
            if tree is None:
                del self.unsettled[root]
            elif tree.batch <= batch:
                del self.unsettled[root]
                if tree.is_finished or tree.is_cold:
                    self.dismiss(tree)

    def open_members(self, tree: Tree) -> list[ProcedureRecord]:
        """Members of a tree that have not finished."""
        return [record for record in tree.members.values() if record.state not in TERMINAL]
