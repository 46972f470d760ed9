"""Everything the core holds in memory, and the one place where a decision is written down.

Memory is a cache of the store: code that changes a head calls `touch`, and `close` turns all touched heads
into writes. `restore(store + pending writes)` must give the same memory again.
"""

from __future__ import annotations

from actorproc.core.state.parts import EndedTrees, ManagerFlags, PendingDecision, ResidentSet, WaitRegistry, WorkQueues
from actorproc.core.state.tree import Tree
from actorproc.model.messages.commands import Decision
from actorproc.model.messages.events import OperatorRequest
from actorproc.model.policies import Scheduling, TypeMeta
from actorproc.model.rows.records import CHILD_STATES, AuditRecord, ProcedureRecord, copied
from actorproc.model.rows.writes import DeleteAcknowledgement, PutAudit, PutProcedure, PutSwitch, Was
from actorproc.model.states import TERMINAL, ProcedureState

__all__ = ["DEFAULT_SCHEDULING", "EngineState"]

DEFAULT_SCHEDULING = Scheduling()
# Looked up once: CPython 3.11 runs Python code for every member that is taken from its enum.
_RUNNABLE = ProcedureState.RUNNABLE
_CHILD_PLACE: dict[str, int] = {state.value: place for place, state in enumerate(CHILD_STATES)}
# By value: the hash of a member is Python code.
_NO_CHILDREN = (0,) * len(CHILD_STATES)
_WAS_RUNNABLE = Was(_RUNNABLE, None, None)


class EngineState(ManagerFlags, ResidentSet, WorkQueues, WaitRegistry, EndedTrees, PendingDecision):
    """Resident trees, queues, locks, timers, workers; plus the decision being made.

    One object, so that a decision reaches everything in one step; each base class is a part with a job of its
    own. Methods that concern several parts are here.
    """

    def __init__(self, epoch: int, scheduling: Scheduling = DEFAULT_SCHEDULING) -> None:
        ManagerFlags.__init__(self, epoch)
        ResidentSet.__init__(self)
        WorkQueues.__init__(self, scheduling)
        WaitRegistry.__init__(self)
        EndedTrees.__init__(self)
        PendingDecision.__init__(self)
        self._stored: dict[str, Was] = {}

    # ------------------------------------------------------------------ residents
    def know(self, meta: TypeMeta) -> None:
        """This type is registered: its procedures need not be parked."""
        self.types[meta.type_name] = meta
        self.blanks.pop(meta.type_name, None)
        self.knows_dedicated = self.knows_dedicated or meta.dedicated

    def admit(self, record: ProcedureRecord, *, stored: bool) -> Tree:
        """Make a head resident; `stored` says that the store has it as it is."""
        tree = self.trees.get(record.root)
        if tree is None:
            tree = self.trees[record.root] = Tree(record.root)
        if stored and record.state is not _RUNNABLE:  # as in `close`
            self.unsettled[record.root] = None
        self.procs[record.id] = record
        tree.add(record)
        if record.limits is not None and record.limits.dedicated:
            self.knows_dedicated = True
        if record.undoing:
            tree.undoing = record.id
        if record.id in self.locks.holders():
            tree.hold(record.id)
        if record.paused is not None or record.retaking or tree.still:
            tree.note_still(record)
        if stored:
            self._stored[record.id] = Was(record.state, record.due_at, record.finished_at)
        return tree

    def admit_alone(self, record: ProcedureRecord) -> None:
        """Make a stored head resident that is a tree by itself and only waits for its turn: most are, at a start."""
        self.trees[record.root] = Tree(record.root, record)
        self.procs[record.id] = record
        self._stored[record.id] = _WAS_RUNNABLE

    def make_resident(self, record: ProcedureRecord) -> None:
        """Have one of the cold run queue in memory. It keeps its place there, and nothing is decided."""
        if record.id not in self.procs:
            self.admit_alone(copied(record))  # that one may be about to be stored

    def dismiss(self, tree: Tree) -> None:
        """Let a cold or finished tree leave memory."""
        for procedure in tree.members:
            self.forget(procedure)
        del self.trees[tree.root]

    def forget(self, procedure: str) -> None:
        """Let a head leave memory; its tree is the caller's to change."""
        del self.procs[procedure]
        self._stored.pop(procedure, None)
        self.warm.pop(procedure, None)
        if self.postponed:
            self.postponed.pop(procedure, None)
        for parked in self.parked.values():  # as many as types that have had a parked procedure
            parked.pop(procedure, None)
        self.worker_table.forget_size(procedure)

    def is_late(self, record: ProcedureRecord) -> bool:
        """True if the deadline of a procedure that still goes forward has passed."""
        if record.deadline is None or record.deadline > self.now or record.state in TERMINAL:
            return False
        return not record.rolling and not record.bypassing and not self.has_no_return(record)

    # ------------------------------------------------------------------ the decision
    def audit(
        self, record: ProcedureRecord | None, verb: str, asked: OperatorRequest, detail: str = "", about: str = ""
    ) -> None:
        """Note what an operator asked for and was granted: of a procedure, or (None) of the manager.

        The row about a procedure goes with it, and has a copy among those of the manager.
        `about` is the procedure that a request to the manager concerns.
        """
        reason, by, number = asked.reason, asked.by, 0
        if record is not None:
            record.audits += 1
            self.touch(record)
            number, about = record.audits, record.id
            self.write(PutAudit(AuditRecord(about, number, self.now, verb, reason, detail, by)))
        self.audits += 1
        self.write(PutSwitch(self.paused, self.audits))
        self.write(PutAudit(AuditRecord("", self.audits, self.now, verb, reason, detail, by, about, number)))

    def forget_acknowledgement(self, root: str) -> None:
        """Forget an acknowledgement: the outcome that was taken was that of an earlier run."""
        if self.acknowledged.pop(root, None) is not None:
            self.write(DeleteAcknowledgement(root))

    def close(self) -> Decision:
        """The decision made since the last call."""
        writes, now = self.writes, self.now
        for procedure in self._touched:
            if self._touched[procedure].parent is not None:
                self._count_children()
                break
        for procedure, record in self._touched.items():
            record.updated_at = now
            if self.acknowledged and procedure in self.acknowledged and record.finished_at is None:  # it runs again
                self.forget_acknowledgement(procedure)
            was = self._stored.get(procedure)
            if record.finished_at is not None or (was is not None and was.due_at is not None):
                self._forget_times(record, was)
            writes.append(PutProcedure(copied(record), was))
            if (
                was is None
                or was.state is not record.state
                or was.due_at != record.due_at
                or was.finished_at != record.finished_at
            ):
                self._store_times(record, was)
            self.trees[record.root].batch = self.batch
            if record.state is not _RUNNABLE:  # else its tree stays until it is changed again, which is noted then
                self.unsettled[record.root] = None
        self._touched.clear()
        decision = Decision(writes, self.commands)
        self.writes = []
        self.commands = []
        return decision

    def _count_children(self) -> None:
        """Keep the numbers of children by state in the heads of those whose children are in another state now."""
        touched, stored, procs = self._touched, self._stored, self.procs
        for name in list(touched):
            record = touched[name]
            above = record.parent
            if above is None or above not in procs:
                continue
            was = stored[name] if name in stored else None  # noqa: SIM401 - a call for each child otherwise
            parent = procs[above]
            if (was is not None and was.state is record.state) or parent.child_states is None:
                continue
            if parent.past is not None and record.seq < parent.renewed:
                continue
            counts = [*(parent.child_states or _NO_CHILDREN)]
            if was is not None:
                counts[_CHILD_PLACE[was.state._value_]] -= 1
            counts[_CHILD_PLACE[record.state._value_]] += 1
            parent.child_states = (*counts,)
            touched[above] = parent

    def _store_times(self, record: ProcedureRecord, was: Was | None) -> None:
        """Note the times that the store's index rows will have for a head."""
        if record.state is _RUNNABLE and record.due_at is None:
            self._stored[record.id] = _WAS_RUNNABLE
        else:
            self._stored[record.id] = Was(record.state, record.due_at, record.finished_at)
        if record.parent is None:
            was_open = was is not None and was.state not in TERMINAL
            self.open_roots += (record.state not in TERMINAL) - was_open

    def _forget_times(self, record: ProcedureRecord, was: Was | None) -> None:
        """Timers of a wait that is over, or of a procedure that has ended, are ignored when they go off."""
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
