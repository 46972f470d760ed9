"""Commit pipeline: decide, persist, act. Nothing is acted on before the commit that records why.

Every commit is a group commit without a timer. The first event of a batch makes the actor tell itself `CloseBatch`,
which lands behind everything already waiting; that is the batch. When nothing waits, the batch is closed at once.
While a commit is under way the next batch fills. After a failed commit it is not known what is on disk. Memory is
thrown away, and the store is opened and read again under the same epoch. The number of the last batch in it says what
happened. A batch that is there counts as committed and is acted on; the events of one that is not are handled once
more. A read that fails leads to the same: what a decision needs is not known.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import structs

from actorproc.core.coordinator import Coordinator
from actorproc.engine.pipeline.batch import CommitBatch
from actorproc.engine.pipeline.in_flight import InFlightTable
from actorproc.engine.pipeline.store_port import StorePort
from actorproc.engine.runtime.gc_pause import collector_paused
from actorproc.engine.runtime.type_table import TypeTable
from actorproc.errors import StorageUnavailable, StoreDamaged
from actorproc.model.ids import StepToken, debounced_key, fence_of
from actorproc.model.messages.commands import Decision
from actorproc.model.messages.events import (
    Acknowledged,
    DeleteRequested,
    EnqueuedFound,
    Event,
    ForkRequested,
    NoteMade,
    RemovalContinued,
    Resized,
    RestartRequested,
    ResultsTaken,
    SignalsExpired,
    StepDelayed,
    StepEnded,
    StepReturned,
    Submitted,
    Tick,
    TreesExpired,
    TypeRegistered,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Suspended
from actorproc.model.policies import Quotas, Retention, Scheduling
from actorproc.model.rows.cold_trees import is_alone
from actorproc.model.rows.records import LockRecord, ProcedureRecord, UndoRecord
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.rows.writes import DeleteLock, PutLock
from actorproc.store.base import RecordStore
from actorproc.support.clock import Clock
from actorproc.support.recurrence import rule_of

__all__ = ["CommitPipeline"]

_OF_STORED_STATE = (
    Acknowledged,
    DeleteRequested,
    EnqueuedFound,
    ForkRequested,
    NoteMade,
    RemovalContinued,
    RestartRequested,
    ResultsTaken,
    SignalsExpired,
    StepDelayed,
    StepEnded,
    StepReturned,
    TreesExpired,
)
"""Events about what was stored when they were made: they mean nothing in a store that has lost commits."""


class CommitPipeline:
    """Owns the core and the two batches: the open one, and the one being committed."""

    def __init__(
        self,
        *,
        snapshot: RecoverySnapshot,
        store: RecordStore,
        store_port: StorePort,
        in_flight: InFlightTable,
        types: TypeTable,
        clock: Clock,
        quotas: Quotas,
        retention: Retention,
        scheduling: Scheduling,
        act: Callable[[CommitBatch], list[Event]],
        mark: Callable[[], None],
        stored: Callable[[CommitBatch, float | None], None],
        on_lost: Callable[[int, int, list[Event]], None] | None = None,
        gated: bool = False,
        unattended: bool = False,
    ) -> None:
        self._store = store
        self._store_port = store_port
        self._in_flight = in_flight
        self._types = types
        self._clock = clock
        self._quotas = quotas
        self._retention = retention
        self._scheduling = scheduling
        self._act = act
        self._mark = mark
        self._stored = stored
        """Told of each batch that is durable, after it was acted on, with the seconds its commit took."""
        self._on_lost = on_lost
        """Told of the first and the last of the commits that the store has lost, and of the events dropped for it."""
        self._errands: list[Callable[[], None]] = []
        self._open = CommitBatch()
        self._committing: CommitBatch | None = None
        self._kept: list[Event] = []
        """While the store is in trouble: what came after the commit that failed."""
        self._failed: CommitBatch | None = None
        """The batch whose commit failed: its outcome is unknown until the store was read again."""
        self._epoch = snapshot.epoch
        self._numbered = 0
        self._durable = 0
        """Number of the last commit that is known to be durable."""
        self._undecided = False
        """Answers were taken whose decision is open."""
        self._gated = gated
        self._dispatching = True
        self.trouble = False
        """A commit or a read failed and the store has not been reopened yet: nothing is decided."""
        self._asked = 0.0
        self.commits = 0
        self.last_commit = 0.0
        self.slowest_commit = 0.0
        self._unattended = unattended
        self.core, decision = self._restored(snapshot, in_flight.handed_out())
        self._open.add(decision)

    def _restored(
        self,
        snapshot: RecoverySnapshot,
        workers: Sequence[tuple[WorkerReady, tuple[StepToken, ...]]] = (),
        before: Coordinator | None = None,
    ) -> tuple[Coordinator, Decision]:
        """Memory as it follows from what is stored, from what live workers have in hand, and from their code."""
        with collector_paused():
            return Coordinator.restore(
                snapshot,
                self._clock.wall(),
                workers=workers,
                quotas=self._quotas,
                retention=self._retention,
                scheduling=self._scheduling,
                types=self._types.metas(),
                gated=self._gated,
                unattended=self._unattended,
                rules=rule_of,
                before=before,
            )

    # ------------------------------------------------------------ decide
    def handle(self, event: Event) -> None:
        """Decide on one event; what it leads to waits for its commit."""
        if self.trouble:
            self._kept.append(event)
            return
        core = self.core
        now = self._clock.wall()
        batch = self._open
        # The answer of a step names no other procedure, unless it brings new ones.
        if type(event) is not StepEnded or type(event.outcome) is Suspended or event.outcome.requests is not None:
            batch.is_routine = False
            if type(event) is Resized:
                self._resize(event)
            if not self._has_what_is_needed(event, now):
                self._kept.append(event)
                return
        batch.events.append(event)
        self._undecided = False
        self._add(core.handle(event, now))

    def take(self, event: StepEnded) -> None:
        """As `handle`, for one of several answers that came together; `decide` is to follow the last of them."""
        if self.trouble or not self.core.take(event, self._clock.wall()):
            self.handle(event)
            return
        self._undecided = True
        self._open.events.append(event)

    def decide(self) -> None:
        """Hand out what the answers that were taken have set free."""
        if self._undecided:
            self._undecided = False
            self._add(self.core.decide())

    def _resize(self, event: Resized) -> None:
        """Another number of workers holds from its batch on, also for a core that has to be made anew.

        Before that the workers it asks for were not asked for, and such a core would take them to be on their way.
        """
        maximum = self.core.scheduling.max_workers if event.max_workers is None else event.max_workers
        self._open.scheduling = structs.replace(
            self.core.scheduling, workers=event.workers, max_workers=max(maximum, event.workers)
        )

    def _take(self, decision: Decision) -> None:
        """As `_add`, for what came of something else than an answer."""
        self._open.is_routine = False
        self._add(decision)

    def _add(self, decision: Decision) -> None:
        batch = self._open
        batch.writes += decision.writes
        batch.commands += decision.commands
        if not batch.started:
            self._begin(batch)

    def _begin(self, batch: CommitBatch) -> None:
        batch.started = True
        if self._committing is None:
            self._mark()

    def _has_what_is_needed(self, event: Event, now: float) -> bool:
        """Bring into memory what a decision on this event needs; False when the store cannot be read now."""
        core = self.core
        try:
            missing = core.missing(event, now)
            while missing and self._load(missing):
                missing = core.missing(event, now)  # the waiter for a signal cannot be read: the next is needed
        except StorageUnavailable:
            if not self.trouble:  # `suspend` was not called, as nothing opens this store again
                raise
            return False
        return True

    def _load(self, ids: tuple[str, ...]) -> bool:
        """Bring these procedures into memory; whether some turned out to be damaged."""
        if (key := debounced_key(ids[0])) is not None:
            newest = self._store.newest_debounced(key)
            if newest is not None:
                self._load((newest,))
                self.core.note_debounced(key, newest)
            return len(ids) > 1 and self._load(ids[1:])
        damaged = 0
        heads = self._heads(ids)
        for id in ids:
            try:
                if heads is not None:
                    head = heads.get(id)
                else:
                    head = self._store.procedure(id, removed=bool(self.core.removals))
                if head is not None and head.root in self.core.removals:
                    self._finish_removal(head.root)
                elif head is None or self.core.view(id) is not None:
                    continue
                elif not self.core.load(*self._tree(head)):
                    self.core.exclude(id, "its tree is incomplete")
                    damaged += 1
            except StoreDamaged as error:
                self.core.exclude(id, str(error))
                damaged += 1
        return damaged > 0

    def _heads(self, ids: tuple[str, ...]) -> dict[str, ProcedureRecord] | None:
        """The stored heads of these, read at once; None where they are to be read one by one."""
        if len(ids) == 1 or self.core.removals:
            return None
        try:
            return {head.id: head for head in self._store.procedures(ids)}
        except StoreDamaged:  # one of them, which is told by itself
            return None

    def _tree(self, head: ProcedureRecord) -> tuple[list[ProcedureRecord], list[UndoRecord]]:
        """The tree of a stored head; of a tree of one, to which there is nothing to undo, all is known."""
        return ([head], []) if is_alone(head) and head.undo_next == 1 else self._store.tree(head.root)

    def _finish_removal(self, root: str) -> None:
        """Remove the rest of a half removed tree, one of whose ids is used again."""
        members, _ = self._store.removed_members(root, None)
        event = RemovalContinued(root, tuple(members), more=False)
        self._open.events.append(event)
        self._take(self.core.handle(event, self._clock.wall()))

    # ------------------------------------------------------------ persist, act
    def close(self) -> None:
        """Close the open batch, unless a commit is under way: then `committed` does it."""
        while self._committing is None and not self.trouble and not self._open.empty:
            batch, self._open = self._open, CommitBatch()
            batch.sealed = self.core.seal()
            if batch.writes:
                self._numbered += 1
                batch.number = self._numbered
                batch.fence = fence_of(self._epoch, self._numbered)
                self._committing = batch
                self._asked = self._clock.monotonic()
                self._store_port.commit(batch.number, batch.writes)
            else:
                batch.fence = fence_of(self._epoch, self._numbered)  # it may send a step again whose state was missing
                self._settle(batch)

    def committed(self, number: int) -> None:
        """The batch under way is durable: act on it, then close the next one."""
        batch = self._committing
        if batch is None or batch.number != number:
            return
        self._committing = None
        self._durable = number
        self.commits += 1
        self.last_commit = self._clock.monotonic() - self._asked
        self.slowest_commit = max(self.slowest_commit, self.last_commit)
        self._settle(batch, self.last_commit)
        self.close()

    def _settle(self, batch: CommitBatch, seconds: float | None = None) -> None:
        self.core.settle(batch.sealed)
        self._scheduling = batch.scheduling or self._scheduling
        self._in_flight.committed(batch.events)
        happened = self._act(batch)
        self._stored(batch, seconds)
        self._run_errands()
        for event in happened:
            self.handle(event)

    def between_commits(self, errand: Callable[[], None]) -> None:
        """Run this when the store holds exactly what was acted on: now, or after the commit under way."""
        self._errands.append(errand)
        if self._committing is None:
            self._run_errands()

    def _run_errands(self) -> None:
        while self._errands and not self.trouble:  # an errand may read the store
            self._errands.pop(0)()

    def locks_once_committed(self, stored: list[LockRecord]) -> list[LockRecord]:
        """Stored locks once all that was decided is durable; memory is there already."""
        locks = {(lock.path, lock.holder): lock for lock in stored}
        for batch in (self._committing, self._open):
            for write in batch.writes if batch is not None else ():
                if isinstance(write, PutLock):
                    locks[write.record.path, write.record.holder] = write.record
                elif isinstance(write, DeleteLock):
                    locks.pop((write.path, write.holder), None)
        return list(locks.values())

    # ------------------------------------------------------------ storage trouble
    def failed(self, number: int) -> None:
        """The commit under way failed: keep its events and those that followed, decide nothing until `reopened`."""
        batch = self._committing
        if batch is not None and batch.number == number:
            self.suspend()

    def suspend(self) -> None:
        """Decide nothing until `reopened`: keep what is not known to be durable, and have the store opened again.

        A read failed, or a commit. The outcome of a commit that is under way is found out when the store was opened
        again, behind it.
        """
        if self.trouble:
            return
        self._failed, self._committing = self._committing, None
        self._kept, self._open = self._open.events, CommitBatch()
        self._undecided = False
        self.trouble = True
        self._store_port.reopen()

    def reopened(self, snapshot: RecoverySnapshot) -> None:
        """The store works: rebuild memory from it and handle again what was kept."""
        failed, self._failed = self._failed, None
        kept, self._kept = self._kept, []
        self.trouble = False
        if failed is not None and failed.number == snapshot.batch:
            self._durable = failed.number
            self._scheduling = failed.scheduling or self._scheduling
            self._in_flight.committed(failed.events)
            kept = self._act(failed) + kept
            self._stored(failed, None)
        elif failed is not None:
            kept = failed.events + kept
        if snapshot.batch < self._durable:
            self._lost(snapshot.batch, [event for event in kept if isinstance(event, _OF_STORED_STATE)])
            kept = [event for event in kept if not isinstance(event, _OF_STORED_STATE)]
        if self.trouble:  # a state, or what was lost, could not be read
            self._kept = kept + self._kept
            return
        self.core, decision = self._restored(snapshot, self._in_flight.handed_out(), self.core)
        self._take(decision)
        self.core.dispatching = self._dispatching
        for meta in self._types.metas():
            self.handle(TypeRegistered(meta))
        for event in kept:
            self.handle(event)
        self._run_errands()

    def _lost(self, last: int, dropped: list[Event]) -> None:
        """The store ends with this commit, and a later one was durable."""
        first, until, self._durable = last + 1, self._durable, last
        if self._on_lost is not None:
            self._on_lost(first, until, dropped)

    def unanswered(self) -> tuple[list[int], list[int]]:
        """Reply numbers of submits that are kept: those of the failed commit, and those that came after it."""
        failed = self._failed.events if self._failed is not None else []
        unsure = [event.reply for event in failed if type(event) is Submitted]
        later = [event.reply for event in self._kept if type(event) is Submitted]
        return unsure, later

    # ------------------------------------------------------------ switches
    @property
    def dispatching(self) -> bool:
        """Steps are handed out."""
        return self._dispatching

    def set_dispatching(self, on: bool) -> None:
        """Hand out steps, or stop to. Running steps go on."""
        self._dispatching = on
        self.core.dispatching = on
        if on:
            self.handle(Tick())

    @property
    def gated(self) -> bool:
        """True while no step is handed out, after a recovery, until the gate is opened."""
        return self._gated

    def open_gate(self) -> None:
        """Let the steps run."""
        self._gated = False
        self.core.gated = False
        self.handle(Tick())

    @property
    def is_committing(self) -> bool:
        """A commit is under way."""
        return self._committing is not None

    @property
    def idle(self) -> bool:
        """Nothing is open and nothing is being committed."""
        return self._committing is None and self._open.empty and not self.trouble
