"""Everything the core holds in memory, and the one place where a decision is written down.

Memory is a cache of the store: code that changes a head calls `touch`, and `close` turns all touched heads
into writes. `restore(store + pending writes)` must give the same memory again.
"""

from __future__ import annotations

from actorproc.core.queues.timers import TimerQueue
from actorproc.core.state.head import runs_alone
from actorproc.core.state.parts.counters import CoreCounters
from actorproc.core.state.parts.damage import DamageTable
from actorproc.core.state.parts.decision import PendingDecision
from actorproc.core.state.parts.ended import EndedTrees
from actorproc.core.state.parts.follow_ups import FollowUps
from actorproc.core.state.parts.locks import LockState
from actorproc.core.state.parts.queues import WorkQueues
from actorproc.core.state.parts.residents import ResidentSet
from actorproc.core.state.parts.schedules import ScheduleTable, timer_name
from actorproc.core.state.parts.settings import DEFAULT_SCHEDULING, Settings
from actorproc.core.state.parts.signals import SignalBuffer
from actorproc.core.state.parts.switches import Switches
from actorproc.core.state.parts.types import KnownTypes
from actorproc.core.state.parts.workers import WorkerState
from actorproc.core.state.tree import Tree
from actorproc.model.messages.commands import Decision
from actorproc.model.messages.events import OperatorRequest
from actorproc.model.policies import Scheduling
from actorproc.model.rows.cold_trees import debounce_of, is_debounced
from actorproc.model.rows.records import AuditRecord, ProcedureRecord, copied
from actorproc.model.rows.writes import DeleteAcknowledgement, PutAudit, PutProcedure, PutSwitch
from actorproc.model.states import TERMINAL, ProcedureState

__all__ = ["DRIFT", "EngineState"]

# Looked up once: CPython 3.11 runs Python code for every member that is taken from its enum.
_RUNNABLE = ProcedureState.RUNNABLE
DRIFT = 1.0
"""Seconds by which a clock may go back without a look at what it says."""


class EngineState:
    """Composition of parts, each of which owns its fields. Methods that concern several parts are here."""

    __slots__ = (
        "counters",
        "damage",
        "decision",
        "ended",
        "follow_ups",
        "locks",
        "queues",
        "residents",
        "schedules",
        "settings",
        "signals",
        "switches",
        "timers",
        "types",
        "workers",
    )

    def __init__(self, epoch: int, scheduling: Scheduling = DEFAULT_SCHEDULING, now: float = 0.0) -> None:
        self.decision = PendingDecision(now)
        self.follow_ups = FollowUps()
        self.residents = ResidentSet()
        self.types = KnownTypes()
        self.queues = WorkQueues(scheduling, self.residents.place_of)
        self.workers = WorkerState(scheduling)
        self.locks = LockState()
        self.timers = TimerQueue()
        self.signals = SignalBuffer()
        self.ended = EndedTrees()
        self.schedules = ScheduleTable(now)
        self.damage = DamageTable()
        self.settings = Settings(scheduling)
        self.switches = Switches()
        self.counters = CoreCounters(epoch)

    # ------------------------------------------------------------------ residents
    def admit(self, record: ProcedureRecord, *, stored: bool) -> Tree:
        """Make a head resident; `stored` says that the store has it as it is."""
        tree = self.residents.add(record, stored=stored)
        is_choosy = record.limits is not None and (record.limits.dedicated or record.limits.is_placed)
        if is_choosy or (record.past is not None and runs_alone(record)):
            self.types.note_choosy()
        if stored and record.id in self.locks.table.holders():
            tree.hold(record.id)
        if stored and (mark := debounce_of(record)) is not None and is_debounced(record):
            self.residents.debounced[mark.key] = record.id
        return tree

    def dismiss(self, tree: Tree) -> None:
        """Let a cold or finished tree leave memory."""
        for procedure in tree.members:
            self.forget(procedure)
        del self.residents.trees[tree.root]

    def forget(self, procedure: str) -> None:
        """Let a head leave memory; its tree is the caller's to change."""
        record = self.residents.procs.pop(procedure)
        if self.residents.debounced:
            self.residents.drop_debounce(record)
        self.residents.stored.pop(procedure, None)
        self.workers.warm.pop(procedure, None)
        if self.queues.postponed:
            self.queues.postponed.pop(procedure, None)
        if self.types.parked:
            self.types.forget(procedure)
        self.workers.table.forget_size(procedure)

    def is_late(self, record: ProcedureRecord) -> bool:
        """True if the deadline of a procedure that still goes forward has passed."""
        if record.deadline is None or record.deadline > self.decision.now or record.state in TERMINAL:
            return False
        return not record.rolling and not record.bypassing and not self.residents.has_no_return(record)

    @property
    def leaves_outside(self) -> bool:
        """Procedures that need only a worker may wait in the cold run queue: nothing is counted before their turn."""
        return self.workers.shares is None and self.queues.admission.capacity is None

    # ------------------------------------------------------------------ schedules
    def look_at_schedule(self, schedule: str, at: float | None) -> None:
        """Have a schedule looked at at this time, in place of the time it had; None: at none."""
        armed, name = self.schedules.armed, timer_name(schedule)
        known = armed.pop(schedule, None)
        if known is not None:
            self.timers.discard(known, name)
        if at is not None:
            armed[schedule] = at
            self.timers.add(at, name)

    def note_firing_over(self, procedure: str, *, is_stuck: bool = False) -> None:
        """The last firing of a schedule has ended, or was removed: what waits for that is due now."""
        schedule = self.schedules.by_firing[procedure]
        self.schedules.last_state[schedule] = "stuck" if is_stuck else ""
        if self.schedules.records[schedule].waiting:
            self.look_at_schedule(schedule, self.decision.now)

    # ------------------------------------------------------------------ the decision
    def begin(self, now: float) -> None:
        """Note that an event is decided on at this time."""
        decision = self.decision
        if now < decision.now:
            self.workers.table.set_back(now)
            self.workers.slot_plan.look_at = None
            for root in self.residents.overdue:  # whose time is to come once more
                due_at = self.residents.procs[root].due_at
                if due_at is not None and due_at > now:
                    self.timers.add(due_at, root)
            if decision.now - now > DRIFT:
                for schedule in self.schedules.records:
                    self.look_at_schedule(schedule, now)
                for root in self.residents.debounced.values():
                    self.timers.add(now, root)
        decision.begin(now)

    def audit(
        self, record: ProcedureRecord | None, verb: str, asked: OperatorRequest, detail: str = "", about: str = ""
    ) -> None:
        """Note what an operator asked for and was granted: of a procedure, or (None) of the manager.

        The row about a procedure goes with it, and has a copy among those of the manager.
        `about` is the procedure that a request to the manager concerns.
        """
        decision = self.decision
        reason, by, number = asked.reason, asked.by, 0
        if record is not None:
            record.audits += 1
            decision.touch(record)
            number, about = record.audits, record.id
            decision.write(PutAudit(AuditRecord(about, number, decision.now, verb, reason, detail, by)))
        audits = self.counters.take_audit()
        decision.write(PutSwitch(self.switches.paused, audits))
        decision.write(PutAudit(AuditRecord("", audits, decision.now, verb, reason, detail, by, about, number)))

    def forget_acknowledgement(self, root: str) -> None:
        """Forget an acknowledgement: the outcome that was taken was that of an earlier run."""
        if self.ended.acknowledged.pop(root, None) is not None:
            self.decision.write(DeleteAcknowledgement(root))

    def close(self) -> Decision:
        """The decision made since the last call."""
        pending, residents = self.decision, self.residents
        writes, touched, now = pending.writes, pending.touched, pending.now
        stored, acknowledged, batch = residents.stored, self.ended.acknowledged, self.counters.batch
        for procedure in touched:
            if touched[procedure].parent is not None:
                residents.count_children(touched)
                break
        for procedure, record in touched.items():
            record.updated_at = now
            if acknowledged and procedure in acknowledged and record.finished_at is None:  # it runs again
                self.forget_acknowledgement(procedure)
            was = stored.get(procedure)
            due_at = was.due_at if was is not None else None
            if due_at is not None or (record.deadline is not None and record.finished_at is not None):
                self._forget_times(record, due_at)
            writes.append(PutProcedure(copied(record), was))
            if (
                was is None
                or was.state is not record.state
                or was.due_at != record.due_at
                or was.finished_at != record.finished_at
                or was.tags != record.tags
                or ((was.searchable or record.past is not None) and was.searchable != record.searchable)
            ):
                residents.note_stored(record, was)
            residents.trees[record.root].batch = batch
            if record.state is not _RUNNABLE:  # else its tree stays until it is changed again, which is noted then
                residents.unsettled[record.root] = None
        return pending.take()

    def _forget_times(self, record: ProcedureRecord, due_at: float | None) -> None:
        """Timers of a wait that is over, or of a procedure that has ended, are ignored when they go off.

        `due_at` is the due time of its head as it was written last.
        """
        timers = self.timers
        if due_at is not None and due_at not in {record.due_at, record.deadline}:
            timers.discard(due_at, record.id)
        if record.finished_at is not None:
            for at in (due_at, record.deadline):
                if at is not None:
                    timers.discard(at, record.id)

    def settle(self, batch: int) -> None:
        """Let trees leave memory that are cold or finished and were last changed in a batch that is stored."""
        if self.ended.removed:
            self.ended.settle(batch)
        trees, unsettled = self.residents.trees, self.residents.unsettled
        for root in list(unsettled):
            tree = trees.get(root)
            if tree is None:
                del unsettled[root]
            elif tree.batch <= batch:
                del unsettled[root]
                if tree.is_finished or tree.is_cold:
                    self.dismiss(tree)
