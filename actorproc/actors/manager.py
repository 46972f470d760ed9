"""The manager actor: its inbox is where everything meets. It never runs or unpickles user code."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import msgspec
import pykka

from actorproc.actors.answers import Answerer
from actorproc.actors.batch import Batch
from actorproc.actors.callers import CallerDesk
from actorproc.actors.clock import Alarm, Clock
from actorproc.actors.courier import Courier
from actorproc.actors.deaths import judge
from actorproc.actors.dedicated import DedicatedWorkers, is_dedicated
from actorproc.actors.dispatch import Dispatcher
from actorproc.actors.inbox import QuickActor
from actorproc.actors.ledger import Ledger, Line
from actorproc.actors.lifecycle_events import EventSink
from actorproc.actors.messages import (
    AddSlot,
    CloseBatch,
    CommitFailed,
    Committed,
    Describe,
    Drain,
    FindDangling,
    Gone,
    Halt,
    LearnType,
    ListWaiters,
    OpenGate,
    RegisterType,
    Reopened,
    ReopenFailed,
    Report,
    RetireSlot,
    StorageTrouble,
    Subscribe,
    SweepDue,
    TakeMetrics,
    Unsubscribe,
    Wake,
    Watch,
    WatchEach,
)
from actorproc.actors.meters import Meters
from actorproc.actors.persister import Persister
from actorproc.actors.replies import ReplyTable, Waiters, fail_future, settle_future
from actorproc.actors.ring import Ring
from actorproc.actors.sampling import Sampler
from actorproc.actors.sweeper import Sweeper
from actorproc.actors.types import TypeTable
from actorproc.actors.watching import Observer
from actorproc.changes import ProcedureEvent
from actorproc.config import Config
from actorproc.errors import (
    EngineError,
    InternalError,
    ManagerStopped,
    OutcomeUnknown,
    StorageUnavailable,
    StoreDamaged,
    StoreFormat,
    StoreInUse,
)
from actorproc.model.commands import RunStep
from actorproc.model.events import (
    AbortRequested,
    Acknowledged,
    BypassRequested,
    DeleteRequested,
    NoteMade,
    PauseRequested,
    PoisonCleared,
    Resized,
    ResumeRequested,
    RetryRequested,
    RollbackRequested,
    Signalled,
    StepEnded,
    StepReturned,
    Submitted,
    Tick,
    TypeRegistered,
    WorkerLeaving,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.ids import WorkerId
from actorproc.model.policies import Quotas, Scheduling
from actorproc.model.snapshot import Snapshot
from actorproc.store.base import ProcedureStore
from actorproc.workers.base import WorkerBooted, WorkerDied, WorkerMessages, WorkerPool
from actorproc.workers.frames import (
    Ask,
    Began,
    Ended,
    FromWorker,
    Heartbeat,
    Leaving,
    LogLine,
    NeedState,
    Returned,
    TakeBackSteps,
)

__all__ = ["ManagerActor", "ManagerParts"]

logger = logging.getLogger("actorproc")

_OVERSLEPT = 1.0
"""Seconds an alarm may be late on a busy machine."""
_SECOND_CHANCE = 2.0
"""Seconds a step past its wall time gets after its host stood still."""
_QUICKLY = 0.05
"""Seconds between the stack dump and the kill of a worker that uses too much memory: it may grow fast."""


class ManagerParts(msgspec.Struct, frozen=True, kw_only=True):
    """What a manager works with."""

    config: Config
    clock: Clock
    alarm: Alarm
    store: ProcedureStore
    persister: Persister
    pool: WorkerPool
    replies: ReplyTable
    courier: Courier
    snapshot: Snapshot
    scheduling: Scheduling
    """Order, limits and shares of work, and how many workers there are."""
    on_gone: Callable[[Gone], None]
    """Tells the supervisor that a worker is dead."""
    on_staff: Callable[[AddSlot | RetireSlot], None]
    """Tells the supervisor that a worker is to be added, or to be retired."""
    on_broken: Callable[[InternalError], None]
    """Called once, on the manager's thread, when a bug stopped it. Must return at once."""
    on_stopped: Callable[[], None]
    """Called when somebody else stopped this actor (`ActorRegistry.stop_all` of the host)."""
    on_event: Callable[[ProcedureEvent], object] | None = None
    """The host's hook for lifecycle events; called on the courier's thread."""
    gated: bool = False
    """Nothing is handed out until `OpenGate`."""


class ManagerActor(QuickActor):
    """Carries events to the core, decisions to the store, and commands to workers and callers."""

    def __init__(self, parts: ManagerParts) -> None:
        super().__init__()
        self._parts = parts
        self._clock = parts.clock
        self._store = parts.store
        self._pool = parts.pool
        self._replies = parts.replies
        self._waiters = Waiters()
        self._ledger = Ledger()
        self._types = TypeTable()
        self._meters = Meters()
        self._observer = Observer(
            epoch=parts.snapshot.epoch,
            clock=parts.clock,
            ledger=self._ledger,
            events=EventSink(parts.on_event, parts.courier.post),
        )
        self._observer.recovered(parts.snapshot)
        self._dedicated = DedicatedWorkers(parts.pool, parts.clock)
        self._sampler = Sampler(parts.pool, self._ledger)
        self._dispatcher = Dispatcher(
            staff=parts.on_staff,
            hire=self._dedicated.want,
            pool=parts.pool,
            store=parts.store,
            ledger=self._ledger,
            types=self._types,
            replies=parts.replies,
            waiters=self._waiters,
            clock=parts.clock,
        )
        self._ring = Ring(
            snapshot=parts.snapshot,
            store=parts.store,
            persister=parts.persister,
            ledger=self._ledger,
            types=self._types,
            clock=parts.clock,
            quotas=Quotas(
                parts.config.max_depth, parts.config.max_children, parts.config.max_tree, parts.config.max_dedicated
            ),
            retention=parts.config.retention,
            scheduling=parts.scheduling,
            act=self._dispatcher.act,
            mark=self._mark,
            stored=self._stored,
            gated=parts.gated,
        )
        self._sweeper = Sweeper(
            store=parts.store,
            ring=self._ring,
            replies=parts.replies,
            clock=parts.clock,
            retention=parts.config.retention,
            interval=parts.config.sweep_interval,
            wake_in=self._sweep_in,
        )
        self._desk = CallerDesk(
            store=parts.store, ring=self._ring, ledger=self._ledger, waiters=self._waiters, clock=parts.clock
        )
        self._answerer = Answerer(parts.store, self._desk.info, room=parts.config.max_frame // 4)
        self._routes: dict[type, Callable[[Any], None]] = {
            WorkerMessages: self._worker_messages,
            CloseBatch: lambda _: self._ring.close(),
            Committed: lambda message: self._ring.committed(message.batch),
            Submitted: self._submitted,
            AbortRequested: self._ring.handle,
            RetryRequested: self._ring.handle,
            BypassRequested: self._ring.handle,
            RollbackRequested: self._ring.handle,
            PauseRequested: self._ring.handle,
            ResumeRequested: self._ring.handle,
            Signalled: self._ring.handle,
            PoisonCleared: self._ring.handle,
            Resized: self._resized,
            Acknowledged: self._keep,
            DeleteRequested: self._keep,
            SweepDue: lambda _: self._sweeper.sweep(),
            Wake: self._wake,
            Watch: self._watch,
            WatchEach: self._watch_each,
            Subscribe: self._subscribe,
            Unsubscribe: lambda message: self._observer.unsubscribe(message.subscription),
            TakeMetrics: lambda message: self._desk.metrics(message, self._meters, self._observer),
            Describe: self._describe,
            ListWaiters: self._list_waiters,
            FindDangling: self._find_dangling,
            RegisterType: self._register_type,
            LearnType: self._learn_type,
            WorkerBooted: self._worker_booted,
            WorkerDied: self._worker_died,
            CommitFailed: self._commit_failed,
            Reopened: self._reopened,
            ReopenFailed: self._reopen_failed,
            StorageTrouble: self._storage_trouble,
            OpenGate: self._open_gate,
            Report: self._report,
            WorkerLost: self._worker_lost,
            Drain: self._drain,
            Halt: self._halt,
        }
        self._deferred: list[Watch | WorkerMessages | WorkerLost] = []
        """What reads the store and came while it was in trouble."""
        self._trouble: BaseException | None = None
        self._trouble_since = 0.0
        self._armed: float | None = None
        self._draining: Future[None] | None = None
        self._halting: Future[None] | None = None
        self._over = False
        self._sweeper.start()

    # ------------------------------------------------------------ life
    def on_receive(self, message: Any) -> None:
        """Route one message. A failure here is a bug: it ends the engine, loudly, and never the host's actors."""
        if self._over:
            return
        try:
            self._routes[type(message)](message)
            if self._draining is not None or self._halting is not None:
                self._check_end()
            self._arm()
        except BaseException as error:  # noqa: BLE001 - Pykka would stop every actor of the host for some of these
            self._break(error)

    def on_stop(self) -> None:
        """Stopped by Pykka: by our own tree after `Halt`, or by the host's `stop_all`."""
        over, self._over = self._over, True
        if not over:
            self._parts.on_stopped()

    def _break(self, error: BaseException) -> None:
        self._over = True
        logger.critical("the actorproc manager failed; its workers are being stopped", exc_info=error)
        broken = InternalError(f"the manager failed and stopped: {type(error).__name__}: {error}")
        broken.__cause__ = error
        self._replies.close(broken)
        self._parts.on_broken(broken)

    def _mark(self) -> None:
        self.actor_ref.tell(CloseBatch())

    # ------------------------------------------------------------ callers
    def _submitted(self, event: Submitted) -> None:
        if self._trouble is not None:
            self._replies.fail(event.reply, self._unavailable())
        else:
            self._ring.handle(event)

    def _keep(self, event: Acknowledged | DeleteRequested) -> None:
        if self._trouble is not None:
            self._replies.fail(event.reply, self._unavailable())
        else:
            self._sweeper.ask(event)

    def _unavailable(self) -> StorageUnavailable:
        msg = f"the store refuses writes at the moment and is retried: {self._trouble}; nothing acknowledged is lost"
        return StorageUnavailable(msg)

    def _resized(self, event: Resized) -> None:
        self._ring.resize(event)

    def _watch(self, message: Watch) -> None:
        if self._trouble is not None:
            self._deferred.append(message)
        else:
            self._desk.watch(message)

    def _watch_each(self, message: WatchEach) -> None:
        for id, future in message.ends:  # noqa: A001 - a procedure id
            self._watch(Watch(id, future))

    def _subscribe(self, message: Subscribe) -> None:
        self._ring.between_commits(lambda: self._desk.subscribe(message, self._observer))

    def _stored(self, batch: Batch, seconds: float | None) -> None:
        self._meters.committed(batch, seconds)
        self._observer.committed(batch)

    def _open_gate(self, message: OpenGate) -> None:
        self._ring.open_gate()
        settle_future(message.future, None)

    def _describe(self, message: Describe) -> None:
        settle_future(message.future, tuple(self._desk.describe(record) for record in message.records))

    def _list_waiters(self, message: ListWaiters) -> None:
        settle_future(message.future, self._ring.core.lock_waiters())

    def _find_dangling(self, message: FindDangling) -> None:
        if self._trouble is not None:
            fail_future(message.future, self._unavailable())
        else:
            self._desk.find_dangling(message)

    def _report(self, message: Report) -> None:
        settle_future(message.future, self._desk.status(self._trouble, self._trouble_since))

    def _register_type(self, message: RegisterType) -> None:
        self._types.put(message.definition)
        self._ring.handle(TypeRegistered(message.definition.meta))

    def _learn_type(self, message: LearnType) -> None:
        if self._types.take(message.definition):
            self._ring.handle(TypeRegistered(message.definition.meta))

    # ------------------------------------------------------------ workers
    def _worker_messages(self, message: WorkerMessages) -> None:
        if self._trouble is not None:
            now = self._clock.monotonic()
            for answer in message.messages:  # they count as answered: no time limit kills them meanwhile
                if type(answer) is Ended:
                    self._answered(answer)
                elif type(answer) is Returned:
                    self._ledger.answered(answer.token, now)
            self._deferred.append(message)
            return
        for answer in message.messages:
            self._worker_message(message, answer)

    def _worker_message(self, envelope: WorkerMessages, message: FromWorker) -> None:
        kind = type(message)
        if kind is Ended:
            self._ended(message)  # type: ignore[arg-type]
        elif kind is Ask:
            self._ask(message)  # type: ignore[arg-type]
        elif isinstance(message, Returned):
            self._ledger.answered(message.token, self._clock.monotonic())
            self._ring.handle(StepReturned(message.token))
        elif isinstance(message, NeedState):
            self._need_state(message)
        elif isinstance(message, Began):
            line = self._ledger.lines.get(envelope.worker)
            if line is not None:
                line.begun[message.token] = (message.thread, self._clock.monotonic())
        elif isinstance(message, Leaving):
            self._leaving(envelope.worker, message.reason)
        elif isinstance(message, Heartbeat):
            line = self._ledger.lines.get(envelope.worker)
            if line is not None and message.token in line.queue:
                line.said[message.token] = message.progress, message.message
                self._observer.heartbeat(message.token, message.progress, message.message)
        elif isinstance(message, LogLine):
            self._parts.courier.post(lambda: _emit(message))

    def _ended(self, message: Ended) -> None:
        for definition in message.definitions:
            if self._types.learn(definition):
                self._ring.handle(TypeRegistered(definition.meta))
        self._answered(message)
        self._ring.handle(StepEnded(message.token, message.outcome))

    def _answered(self, message: Ended) -> None:
        command = self._ledger.answered(message.token, self._clock.monotonic())
        if command is not None:
            self._meters.step_ended(command, message.outcome)

    def _ask(self, message: Ask) -> None:
        if message.kind == "remember":
            self._ring.handle(NoteMade(message.token, message.key, message.value, message.request))
        else:
            self._dispatcher.post(message.token.worker, self._answerer.answer(message))

    def _need_state(self, message: NeedState) -> None:
        line = self._ledger.lines.get(message.token.worker)
        command = line.queue.get(message.token) if line is not None else None
        if command is not None:
            for event in self._dispatcher.resend(command):
                self._ring.handle(event)

    def _worker_booted(self, message: WorkerBooted) -> None:
        self._dedicated.booted(message.worker)
        ready = WorkerReady(
            message.worker, reserved=self._dedicated.procedure_of(message.worker), pid=message.pid
        )
        self._ledger.join(ready)
        self._ring.handle(ready)

    def _leaving(self, worker: WorkerId, reason: str) -> None:
        line = self._ledger.lines.get(worker)
        if line is not None:
            logger.info("worker %d.%d is replaced: %s", worker.slot, worker.incarnation, reason)
            line.ready = msgspec.structs.replace(line.ready, leaving=True)
            self._ring.handle(WorkerLeaving(worker))

    def _worker_died(self, message: WorkerDied) -> None:
        worker = message.worker
        line = self._ledger.die(worker)
        if line is None:
            self._tell_gone(Gone(worker, message.report, message.booted, message.booted, message.successor))
            return
        verdict = judge(line, message.report, self._clock.monotonic())
        blamed, crashed = verdict.blamed, verdict.crashed
        if crashed and (died_in := line.queue[blamed] if blamed is not None else line.running) is not None:
            self._meters.step_crashed(died_in)
        is_idle = not line.queue and line.killed is None
        self._tell_gone(Gone(worker, verdict.report, message.booted, is_idle, message.successor))
        self._worker_lost(WorkerLost(worker, verdict.report, crashed=crashed, blamed=blamed))

    def _tell_gone(self, gone: Gone) -> None:
        """Tell the one who keeps workers of this kind."""
        if is_dedicated(gone.worker):
            self._dedicated.died(gone.worker, gone.report, booted=gone.booted)
        else:
            self._parts.on_gone(gone)

    def _worker_lost(self, event: WorkerLost) -> None:
        """Handle a death after everything its worker answered, also when those answers had to be deferred."""
        if self._trouble is not None:
            self._deferred.append(event)
        else:
            self._ring.handle(event)

    # ------------------------------------------------------------ time
    def _arm(self) -> None:
        """Ask to be woken for whatever is due first: a stored time, or a step's time limit."""
        due = self._ring.core.next_deadline() if self._trouble is None else None
        limit = self._next_look()
        if due is None and limit is None:
            if self._armed is not None:
                self._armed = None
                self._parts.alarm.set("manager", None, self._ring_me)
            return
        now = self._clock.monotonic()
        when = now + max(0.001, due - self._clock.wall()) if due is not None else math.inf
        if limit is not None:
            when = min(when, limit)
        # The same stored time gives slightly different sums at each reading: a millisecond is no change.
        if self._armed is None or abs(when - self._armed) > 0.001:
            self._armed = when
            self._parts.alarm.set("manager", when, self._ring_me)

    def _next_look(self) -> float | None:
        """Monotonic time when a running step or a worker on its way is to be looked at."""
        times = (self._ledger.next_limit(), self._sampler.due(self._clock.monotonic()), self._dedicated.next_retry())
        return min((at for at in times if at is not None), default=None)

    def _ring_me(self) -> None:
        _tell(self.actor_ref, Wake())

    def _wake(self, _message: Wake) -> None:
        armed, self._armed = self._armed, None
        now = self._clock.monotonic()
        if armed is not None and now > armed + _OVERSLEPT:
            # Stopped and continued, or a machine that stood still: answers may be waiting, and the workers may have
            # stood still as well. Who is late for its time limit by this gets a second chance.
            self._ledger.forgive(now - armed + _SECOND_CHANCE)
        for line, command in self._ledger.overdue(now):
            why = f"step {command.token.step} ran longer than its wall time of {command.wall_time:g} s"
            self._end_step(line, command, "timeout", why, command.grace)
        self._dedicated.retry(now)
        sample_at = self._sampler.due(now)
        if sample_at is not None and sample_at <= now:
            for excess in self._sampler.look(now):
                grace = excess.command.grace if excess.kind == "cpu-limit" else _QUICKLY
                self._end_step(excess.line, excess.command, excess.kind, excess.why, grace)
        due = self._ring.core.next_deadline()
        if self._trouble is None and due is not None and due <= self._clock.wall():
            self._ring.handle(Tick())

    def _end_step(self, line: Line, command: RunStep, kind: str, why: str, grace: float) -> None:
        """Kill the worker of a step that is past one of its limits; who runs beside it starts again elsewhere."""
        if line.killed is None:
            line.killed, line.kind, line.why = command.token, kind, why
            self._pool.kill(line.ready.worker, grace=grace, blamed=command.token, reason=why, kind=kind)

    def _sweep_in(self, seconds: float) -> None:
        self._parts.alarm.set("sweep", self._clock.monotonic() + seconds, lambda: _tell(self.actor_ref, SweepDue()))

    # ------------------------------------------------------------ storage trouble
    def _commit_failed(self, message: CommitFailed) -> None:
        _raise_if_final(message.error)
        logger.error("a commit failed; actorproc hands out no steps and retries: %s", message.error)
        self._trouble = message.error
        self._trouble_since = self._clock.monotonic()
        self._ring.failed(message.batch)

    def _storage_trouble(self, message: StorageTrouble) -> None:
        logger.warning("the store is still not available: %s", message.error)
        self._trouble = message.error

    def _reopen_failed(self, message: ReopenFailed) -> None:
        if not isinstance(message.error, ManagerStopped):
            raise message.error

    def _reopened(self, message: Reopened) -> None:
        logger.warning("the store works again after %.1f s", self._clock.monotonic() - self._trouble_since)
        self._trouble = None
        self._ring.reopened(message.snapshot)
        deferred, self._deferred = self._deferred, []
        for late in deferred:
            self._routes[type(late)](late)

    # ------------------------------------------------------------ stopping
    def _drain(self, message: Drain) -> None:
        self._sweeper.stop()
        self._draining = message.future
        self._ring.set_dispatching(on=False)
        for worker, tokens in self._ledger.waiting_behind():
            self._dispatcher.post(worker, TakeBackSteps(tokens))

    def _halt(self, message: Halt) -> None:
        self._sweeper.stop()
        self._halting = message.future
        self._ring.set_dispatching(on=False)
        self._ring.close()

    def _check_end(self) -> None:
        if self._draining is not None and self._ring.idle and not self._ledger.busy():
            settle_future(self._draining, None)
            self._draining = None
        if self._halting is None or not (self._ring.idle or self._trouble is not None):
            return
        unsure, later = self._ring.unanswered()
        for reply in unsure:
            msg = "the manager stopped while the store refused writes; ask again by id whether it was submitted"
            self._replies.fail(reply, OutcomeUnknown(msg))
        for reply in later:
            self._replies.fail(reply, self._unavailable())
        self._over = True
        settle_future(self._halting, None)


def _raise_if_final(error: Exception) -> None:
    """Another owner, a replaced or damaged store, or a bug: retrying cannot help."""
    if not isinstance(error, EngineError) or isinstance(error, StoreInUse | StoreFormat | StoreDamaged):
        raise error


def _emit(line: LogLine) -> None:
    """Give a worker's log line to the host's logging."""
    name = line.name if line.name.split(".", 1)[0] == "actorproc" else f"actorproc.{line.name}"
    logging.getLogger(name).log(line.level, "%s", line.text)


def _tell(actor: pykka.ActorRef[Any], message: object) -> None:
    """Tell an actor that may have stopped meanwhile."""
    try:
        actor.tell(message)
    except pykka.ActorDeadError:
        logger.debug("a message for a stopped manager was dropped: %r", message)
