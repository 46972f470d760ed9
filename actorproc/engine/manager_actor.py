"""The manager actor: its inbox is where everything meets. It never runs or unpickles user code."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import pykka

from actorproc.engine.callers.change_feed import ChangeFeed
from actorproc.engine.callers.counters import Counters
from actorproc.engine.callers.event_hooks import EventHooks
from actorproc.engine.callers.parked_waits import ParkedWaits
from actorproc.engine.callers.requests import RequestHandler
from actorproc.engine.end_waiters import settle_future
from actorproc.engine.housekeeping.retention_sweeper import RetentionSweeper
from actorproc.engine.housekeeping.shutdown import Shutdown
from actorproc.engine.manager_parts import ManagerParts
from actorproc.engine.messages import (
    Begin,
    CloseBatch,
    CommitFailed,
    Committed,
    Describe,
    Drain,
    FindDangling,
    Glance,
    Halt,
    LearnType,
    ListWaiters,
    LookSettled,
    OpenGate,
    RegisterType,
    Reopened,
    ReopenFailed,
    ReplaceWorker,
    ReportStatus,
    SlotParked,
    SlotRecovered,
    StorageTrouble,
    Subscribe,
    Succeeded,
    SweepDue,
    TakeMetrics,
    Unsubscribe,
    Wake,
    WatchEnds,
)
from actorproc.engine.pipeline.batch import CommitBatch
from actorproc.engine.pipeline.command_executor import CommandExecutor
from actorproc.engine.pipeline.commit_pipeline import CommitPipeline
from actorproc.engine.pipeline.in_flight import InFlightTable
from actorproc.engine.pipeline.store_outage import StoreOutage
from actorproc.engine.reply_router import Promise
from actorproc.engine.runtime.gc_pause import collector_paused, collector_paused_for
from actorproc.engine.runtime.inbox import CombiningInbox, QuickActor
from actorproc.engine.runtime.type_table import TypeTable
from actorproc.engine.workers.boot_deadlines import BOOT_PATIENCE
from actorproc.engine.workers.dedicated_workers import DedicatedWorkers
from actorproc.engine.workers.message_intake import MessageIntake
from actorproc.engine.workers.step_queries import StepQueries
from actorproc.engine.workers.timer_service import TimerService
from actorproc.engine.workers.usage_sampler import UsageSampler
from actorproc.engine.workers.worker_events import WorkerEvents
from actorproc.engine.workers.worker_messages import WorkerMessageHandler
from actorproc.errors import InternalError, ManagerStopped
from actorproc.model.messages.events import (
    AbortRequested,
    Acknowledged,
    BypassRequested,
    DeleteRequested,
    PauseRequested,
    PoisonCleared,
    Published,
    ReloadBegan,
    Resized,
    ResultsTaken,
    ResumeRequested,
    RetryRequested,
    RollbackRequested,
    Signalled,
    SignalsWithdrawn,
    Submitted,
    TypeRegistered,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.policies import Quotas
from actorproc.support.engine_log import engine_logger
from actorproc.workers.base import PoolFailed, WorkerBooted, WorkerDied, WorkerMessages

__all__ = ["ManagerActor"]

logger = engine_logger("actorproc")

_ARM_AFTER = 64
"""Messages after which the alarm is looked after although more are waiting."""


class ManagerActor(QuickActor):
    """Carries events to the core, decisions to the store, and commands to workers and callers."""

    actor_inbox: CombiningInbox

    def __init__(self, parts: ManagerParts) -> None:
        super().__init__()
        self._parts = parts
        self._clock = parts.clock
        self._store = parts.store
        self._pool = parts.pool
        self._replies = parts.replies
        self._outage = StoreOutage(parts.clock)
        self._in_flight = InFlightTable()
        self._types = TypeTable(parts.definitions)
        self._counters = Counters()
        events = EventHooks(parts.on_event, parts.callback_thread.post)
        self._news = WorkerEvents(events, parts.clock)
        self._change_feed = ChangeFeed(
            epoch=parts.snapshot.epoch,
            last_batch=parts.snapshot.last_batch if parts.config.control else None,
            clock=parts.clock,
            in_flight=self._in_flight,
            events=events,
        )
        self._change_feed.recovered(parts.snapshot, parts.store)
        boot_limit = BOOT_PATIENCE * parts.config.boot_timeout
        self._dedicated = DedicatedWorkers(parts.pool, parts.clock, boot_limit=boot_limit)
        self._dispatcher = CommandExecutor(
            worker_table=parts.to_supervisor,
            hire=self._dedicated.want,
            pool=parts.pool,
            store=parts.store,
            in_flight=self._in_flight,
            types=self._types,
            replies=parts.replies,
            keep_promise=self._keep_promise,
            recent_ends=parts.recent_ends,
            clock=parts.clock,
        )
        self._pipeline = CommitPipeline(
            snapshot=parts.snapshot,
            store=parts.store,
            store_port=parts.store_port,
            in_flight=self._in_flight,
            types=self._types,
            clock=parts.clock,
            quotas=Quotas(
                parts.config.max_depth,
                parts.config.max_children,
                parts.config.max_tree,
                parts.config.max_dedicated,
                parts.config.keep_steps,
            ),
            retention=parts.config.retention,
            scheduling=parts.scheduling,
            act=self._dispatcher.act,
            mark=self._mark,
            stored=self._stored,
            gated=parts.gated,
        )
        parts.snapshot.release()
        self._sweeper = RetentionSweeper(
            store=parts.store,
            pipeline=self._pipeline,
            replies=parts.replies,
            clock=parts.clock,
            retention=parts.config.retention,
            interval=parts.config.sweep_interval,
            wake_in=self._sweep_in,
        )
        self._parked_waits = ParkedWaits(
            pipeline=self._pipeline,
            store=parts.store,
            waiters=parts.replies.ends,
            clock=parts.clock,
            grace=parts.config.parked_grace,
            warn=self._change_feed.parked,
        )
        self._requests = RequestHandler(
            store=parts.store,
            pipeline=self._pipeline,
            in_flight=self._in_flight,
            waiters=parts.replies.ends,
            outage=self._outage,
            change_feed=self._change_feed,
            parked_waits=self._parked_waits,
            counters=self._counters,
            clock=parts.clock,
            retention=self._sweeper.health,
        )
        self._worker_messages = WorkerMessageHandler(
            pipeline=self._pipeline,
            in_flight=self._in_flight,
            types=self._types,
            counters=self._counters,
            change_feed=self._change_feed,
            news=self._news,
            dispatcher=self._dispatcher,
            dedicated=self._dedicated,
            step_queries=StepQueries(parts.store, self._requests.info, room=parts.config.max_frame // 4),
            clock=parts.clock,
            post=parts.callback_thread.post,
            on_gone=parts.on_gone,
        )
        self._time = TimerService(
            clock=parts.clock,
            alarm=parts.alarm,
            pipeline=self._pipeline,
            in_flight=self._in_flight,
            sampler=UsageSampler(parts.pool, self._in_flight),
            dedicated=self._dedicated,
            parked_waits=self._parked_waits,
            pool=parts.pool,
            on_alarm=self._on_alarm,
        )
        self._stopping = Shutdown(
            pipeline=self._pipeline,
            in_flight=self._in_flight,
            dispatcher=self._dispatcher,
            sweeper=self._sweeper,
            outage=self._outage,
            replies=parts.replies,
            patience=parts.config.stop_timeout,
        )
        intake = MessageIntake(worker_messages=self._worker_messages, pipeline=self._pipeline, outage=self._outage)
        self._routes: dict[type, Callable[[Any], None]] = {
            WorkerMessages: intake.messages,
            Begin: self._begin,
            CloseBatch: lambda _: self._pipeline.close(),
            Committed: lambda message: self._pipeline.committed(message.batch),
            Submitted: self._submitted,
            AbortRequested: self._pipeline.handle,
            RetryRequested: self._pipeline.handle,
            BypassRequested: self._pipeline.handle,
            RollbackRequested: self._pipeline.handle,
            PauseRequested: self._pipeline.handle,
            ResumeRequested: self._pipeline.handle,
            Signalled: self._pipeline.handle,
            Published: self._pipeline.handle,
            SignalsWithdrawn: self._pipeline.handle,
            PoisonCleared: self._pipeline.handle,
            Resized: intake.changed,
            ReloadBegan: intake.changed,
            ReplaceWorker: lambda message: self._worker_messages.leaving(message.worker, message.reason),
            Acknowledged: self._keep,
            DeleteRequested: self._keep,
            ResultsTaken: self._keep,
            SweepDue: lambda _: self._sweeper.sweep(),
            Wake: lambda _: self._time.wake(in_trouble=self._outage.lasts),
            WatchEnds: self._requests.watch,
            Subscribe: self._requests.subscribe,
            Unsubscribe: lambda message: self._change_feed.unsubscribe(message.subscription),
            TakeMetrics: self._requests.metrics,
            Describe: self._requests.describe,
            Glance: self._requests.glance,
            ListWaiters: self._requests.list_waiters,
            FindDangling: self._requests.find_dangling,
            RegisterType: self._register_type,
            LearnType: self._learn_type,
            WorkerBooted: intake.booted,
            WorkerDied: intake.died,
            Succeeded: intake.succeeded,
            PoolFailed: intake.pool_failed,
            CommitFailed: self._commit_failed,
            Reopened: self._reopened,
            ReopenFailed: self._reopen_failed,
            StorageTrouble: self._outage.go_on,
            SlotParked: self._news.slot,
            SlotRecovered: self._news.slot,
            OpenGate: self._open_gate,
            ReportStatus: self._requests.report,
            LookSettled: self._look_settled,
            WorkerLost: intake.changed,
            WorkerReady: intake.changed,
            Drain: self._stopping.drain,
            Halt: self._stopping.halt,
        }
        self._marked = False
        """A batch was begun: its marker is to be told, or it is closed at once when nothing else waits."""
        self._unarmed = 0
        self._over = False

    @staticmethod
    def _create_actor_inbox() -> CombiningInbox:
        return CombiningInbox()

    # ------------------------------------------------------------ life
    def _start_actor_loop(self) -> None:
        self.actor_inbox.handle = self._handle_here
        try:
            super()._start_actor_loop()
        except BaseException:
            self.actor_inbox.handle = None
            raise

    def on_start(self) -> None:
        """On its thread, which must not wait for the manager's answers."""
        self._replies.answered_by.add(threading.get_ident())

    def _begin(self, _: Begin) -> None:
        self._pipeline.close()
        self._sweeper.start()

    def _handle_here(self, message: object) -> None:
        """Handle a message on a thread lent by the pool or the store, which must not wait for answers either."""
        here, answered_by = threading.get_ident(), self._replies.answered_by
        answered_by.add(here)
        try:
            self.on_receive(message)
        finally:
            answered_by.discard(here)

    def on_receive(self, message: Any) -> None:
        """Route one message. A failure here is a bug: it ends the engine, loudly, and never the host's actors."""
        if self._over:
            return
        try:
            self._routes[type(message)](message)
            self._go_on(message)
        except BaseException as error:  # noqa: BLE001 - Pykka would stop every actor of the host for some of these
            self._break(error)

    def _go_on(self, message: Any) -> None:
        """After each message: close the batch where its marker would have come next, and see to the alarm.

        What is decided has no time before it is durable, so the alarm waits for the commit that is under way, and for
        the last message of a burst.
        """
        alone = self.actor_inbox.empty()
        if self._marked:
            self._marked = False
            if alone:
                self._pipeline.close()
            else:
                self.actor_ref.tell(CloseBatch())
        if self._outage.is_in_doubt and (type(message) is Committed or self._pipeline.idle):
            self._outage.end()
        if self._stopping.is_due and self._stopping.look():
            self._over = True
            self._stopping.end()
        self._unarmed += 1
        is_settled = alone and not self._pipeline.is_committing
        if is_settled or self._unarmed >= _ARM_AFTER or type(message) is Committed:
            self._unarmed = 0
            self._time.arm(in_trouble=self._outage.lasts)

    def on_stop(self) -> None:
        """Stopped by Pykka: by our own tree after `Halt`, or by the host's `stop_all`."""
        over, self._over = self._over, True
        if not over:
            self._parts.on_stopped()

    def _actor_loop_teardown(self) -> None:
        super()._actor_loop_teardown()
        self.actor_inbox.handle = None  # who keeps the actor's reference must not keep all that it knew

    def _break(self, error: BaseException) -> None:
        self._over = True
        logger.critical("the actorproc manager failed; its workers are being stopped", exc_info=error)
        broken = InternalError(f"the manager failed and stopped: {type(error).__name__}: {error}")
        broken.__cause__ = error
        self._replies.close(broken)
        self._parts.on_broken(broken)

    def _mark(self) -> None:
        self._marked = True

    # ------------------------------------------------------------ callers
    def _submitted(self, event: Submitted) -> None:
        if self._outage.refuses:
            self._replies.fail(event.reply, self._outage.refusal())
        else:
            with collector_paused_for(len(event.procedures)):
                self._pipeline.handle(event)

    def _keep_promise(self, ids: Sequence[str], promise: Promise) -> None:
        self._requests.keep_promise(ids, promise)

    def _keep(self, event: Acknowledged | DeleteRequested | ResultsTaken) -> None:
        if self._outage.refuses:
            self._replies.fail(event.reply, self._outage.refusal())
        else:
            self._sweeper.ask(event)

    def _stored(self, batch: CommitBatch, seconds: float | None) -> None:
        self._counters.committed(batch, seconds)
        self._change_feed.committed(batch)
        self._requests.look_at_damage()
        self._parked_waits.stored()
        self._sweeper.stored()

    def _open_gate(self, message: OpenGate) -> None:
        self._pipeline.open_gate()
        settle_future(message.future, None)

    def _look_settled(self, message: LookSettled) -> None:
        is_settled = self.actor_inbox.empty() and self._pipeline.idle and not self._in_flight.busy()
        if is_settled:
            self._time.arm(in_trouble=self._outage.lasts)
        settle_future(message.future, is_settled)

    def _register_type(self, message: RegisterType) -> None:
        self._types.put(message.definition)
        with collector_paused():  # all that waited for this class is queued
            self._pipeline.handle(TypeRegistered(message.definition.meta))

    def _learn_type(self, message: LearnType) -> None:
        if self._types.take(message.definition):
            self._pipeline.handle(TypeRegistered(message.definition.meta))

    # ------------------------------------------------------------ time
    def _on_alarm(self) -> None:
        _tell(self.actor_ref, Wake())

    def _sweep_in(self, seconds: float) -> None:
        if seconds > 0:
            self._parts.alarm.set("sweep", self._clock.monotonic() + seconds, lambda: _tell(self.actor_ref, SweepDue()))
        else:  # behind all that waits already
            self._parts.alarm.set("sweep", None, _nothing)
            _tell(self.actor_ref, SweepDue())

    # ------------------------------------------------------------ storage trouble
    def _commit_failed(self, message: CommitFailed) -> None:
        self._outage.begin(message)
        self._pipeline.failed(message.batch)

    def _reopen_failed(self, message: ReopenFailed) -> None:
        if not isinstance(message.error, ManagerStopped):
            raise message.error

    def _reopened(self, message: Reopened) -> None:
        deferred = self._outage.doubt()
        self._dispatcher.forget()
        self._pipeline.reopened(message.snapshot)
        for late in deferred:
            self._routes[type(late)](late)


def _nothing() -> None:
    """An alarm that was called off."""


def _tell(actor: pykka.ActorRef[Any], message: object) -> None:
    """Tell an actor that may have stopped meanwhile."""
    try:
        actor.tell(message)
    except pykka.ActorDeadError:
        logger.debug("a message for a stopped manager was dropped: %r", message)
