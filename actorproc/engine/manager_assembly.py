"""Composition root of the manager: which parts there are, and who is told of whom."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

from actorproc.core.results.adoption import absent_worker, absent_workers
from actorproc.engine.callers.change_feed import ChangeFeed
from actorproc.engine.callers.counters import Counters
from actorproc.engine.callers.event_hooks import EventHooks
from actorproc.engine.callers.parked_waits import ParkedWaits
from actorproc.engine.callers.requests import RequestHandler
from actorproc.engine.housekeeping.enqueued_taker import EnqueuedTaker
from actorproc.engine.housekeeping.retention_sweeper import RetentionSweeper
from actorproc.engine.housekeeping.shutdown import Shutdown
from actorproc.engine.manager_parts import ManagerParts
from actorproc.engine.messages import (
    ClaimHost,
    CloseBatch,
    Committed,
    Describe,
    Drain,
    EnqueuedDue,
    FindDangling,
    Glance,
    Halt,
    ListWaiters,
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
from actorproc.engine.pipeline.step_reports import StepReports
from actorproc.engine.pipeline.store_outage import StoreOutage
from actorproc.engine.pipeline.store_reads import reads_of
from actorproc.engine.reply_router import Promise
from actorproc.engine.runtime.type_table import TypeTable
from actorproc.engine.workers.boot_deadlines import BOOT_PATIENCE
from actorproc.engine.workers.dedicated_workers import DedicatedWorkers
from actorproc.engine.workers.host_code import HostCode
from actorproc.engine.workers.sampled_steps import SampledSteps
from actorproc.engine.workers.step_queries import StepQueries
from actorproc.engine.workers.timer_service import TimerService
from actorproc.engine.workers.worker_events import WorkerEvents
from actorproc.engine.workers.worker_messages import WorkerMessageHandler
from actorproc.errors import StorageUnavailable
from actorproc.model.messages.events import (
    Acknowledged,
    DeleteRequested,
    Event,
    HostAdded,
    HostDraining,
    HostRemoved,
    ReloadBegan,
    Resized,
    ResultsTaken,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.policies import Quotas
from actorproc.model.slots import host_of
from actorproc.model.trace_context import NOT_RECORDED
from actorproc.support.engine_log import engine_logger
from actorproc.workers.base import (
    HostDrains,
    HostJoined,
    HostLeft,
    PoolFailed,
    WorkerBooted,
    WorkerDied,
    WorkerExceeded,
    WorkerMessages,
)

__all__ = ["AssembledManager"]

logger = engine_logger("actorproc")


class AssembledManager:
    """Parts of a manager, put together. Needs the manager's turn (`CombiningInbox`), as they do.

    Args:
        parts: The parts that come from outside: store, pool, clock, snapshot and callbacks.
        mark: Called when a batch was begun, which is to be closed behind the messages that wait.
        on_alarm: Called when a deadline has come.
        sweep_in: Called with the seconds until the next slice of a sweep.
        take_in: Called with the seconds until the next look at what was enqueued.
    """

    def __init__(
        self,
        parts: ManagerParts,
        *,
        mark: Callable[[], None],
        on_alarm: Callable[[], None],
        sweep_in: Callable[[float], None],
        take_in: Callable[[float], None],
    ) -> None:
        self._pool = parts.pool
        self._replies = parts.replies
        self.outage = StoreOutage(parts.clock)
        self.in_flight = InFlightTable()
        self.types = TypeTable(parts.definitions)
        host_code = HostCode(self.types, parts.config.code or "")
        self.counters = Counters(parts.definitions)
        own = absent_worker(getattr(parts.pool, "own_number", 0))  # as a host this machine has ended
        for ready, tokens in absent_workers(parts.snapshot.procedures):
            if ready.worker != own:
                self.in_flight.expect(ready, tokens)
                if (expect := getattr(parts.pool, "expect", None)) is not None:
                    expect(host_of(ready.worker.slot))
        store = reads_of(parts.store, self._read_failed)
        events = EventHooks(parts.on_event, parts.callback_thread.post)
        self.news = WorkerEvents(events, parts.clock)
        self.change_feed = ChangeFeed(
            epoch=parts.snapshot.epoch,
            last_batch=parts.snapshot.last_batch if parts.config.control else None,
            clock=parts.clock,
            in_flight=self.in_flight,
            events=events,
        )
        self.change_feed.recovered(parts.snapshot, parts.store)
        boot_limit = BOOT_PATIENCE * parts.config.boot_timeout
        self.dedicated = DedicatedWorkers(parts.pool, parts.clock, boot_limit=boot_limit)
        self.dispatcher = CommandExecutor(
            worker_table=parts.to_supervisor,
            hire=self.dedicated.want,
            pool=parts.pool,
            store=store,
            in_flight=self.in_flight,
            types=self.types,
            definition_for=host_code.sent_to,
            replies=parts.replies,
            keep_promise=self._keep_promise,
            untraced=b"" if parts.recorder is None else NOT_RECORDED,
            watch_later=self._watch_later,
            newest=parts.newest,
            clock=parts.clock,
        )
        self.pipeline = CommitPipeline(
            snapshot=parts.snapshot,
            store=store,
            store_port=parts.store_port,
            in_flight=self.in_flight,
            types=self.types,
            clock=parts.clock,
            quotas=Quotas(
                parts.config.max_depth,
                parts.config.max_children,
                parts.config.max_tree,
                parts.config.max_dedicated,
                parts.config.keep_steps,
            ),
            retention=parts.config._retention,
            scheduling=parts.scheduling,
            act=self.dispatcher.act,
            mark=mark,
            stored=self._stored,
            on_lost=self._commits_lost,
            gated=parts.gated,
        )
        self._recorder = parts.recorder
        if parts.recorder is not None:
            snapshot = parts.snapshot
            parts.recorder.recovered(snapshot.procedures, parts.store, parts.clock.wall(), snapshot.epoch)
        parts.snapshot.release()
        self.sweeper = RetentionSweeper(
            store=store,
            pipeline=self.pipeline,
            replies=parts.replies,
            clock=parts.clock,
            retention=parts.config._retention,
            interval=parts.config.sweep_interval,
            wake_in=sweep_in,
        )
        self.taker = EnqueuedTaker(
            store=store, pipeline=self.pipeline, max_state=parts.config.max_state, wake_in=take_in
        )
        self.parked_waits = ParkedWaits(
            pipeline=self.pipeline,
            store=store,
            waiters=parts.replies.ends,
            clock=parts.clock,
            grace=parts.config.parked_grace,
            warn=self.change_feed.parked,
        )
        self.requests = RequestHandler(
            store=store,
            pipeline=self.pipeline,
            in_flight=self.in_flight,
            waiters=parts.replies.ends,
            outage=self.outage,
            change_feed=self.change_feed,
            parked_waits=self.parked_waits,
            counters=self.counters,
            clock=parts.clock,
            retention=self.sweeper.health,
            other_code=host_code.by_host,
            enqueued=lambda: self.taker.problems,
        )
        self.reports = StepReports(self.pipeline, parts.clock)
        self.worker_messages = WorkerMessageHandler(
            pipeline=self.pipeline,
            in_flight=self.in_flight,
            types=self.types,
            host_code=host_code,
            counters=self.counters,
            change_feed=self.change_feed,
            news=self.news,
            dispatcher=self.dispatcher,
            dedicated=self.dedicated,
            step_queries=StepQueries(store, self.requests.info, room=parts.config.max_frame // 4),
            reports=self.reports,
            outage=self.outage,
            clock=parts.clock,
            patience=parts.config.host_patience,
            recorder=parts.recorder,
            post=parts.callback_thread.post,
            on_gone=parts.on_gone,
        )
        self.time = TimerService(
            clock=parts.clock,
            alarm=parts.alarm,
            pipeline=self.pipeline,
            in_flight=self.in_flight,
            sampled=SampledSteps(parts.pool, self.in_flight),
            dedicated=self.dedicated,
            absent=self.worker_messages.absent,
            parked_waits=self.parked_waits,
            digests=self.change_feed.digests,
            reports=self.reports,
            pool=parts.pool,
            on_alarm=on_alarm,
        )
        self.stopping = Shutdown(
            pipeline=self.pipeline,
            in_flight=self.in_flight,
            dispatcher=self.dispatcher,
            sweeper=self.sweeper,
            reports=self.reports,
            outage=self.outage,
            replies=parts.replies,
            patience=parts.config.stop_timeout,
        )

    def routes(self) -> dict[type, Callable[[Any], None]]:
        """The part that takes a message, by its class; events without an entry of their own are decided on."""
        return dict.fromkeys(get_args(Event), self.pipeline.handle) | {
            WorkerMessages: self.worker_messages.messages,
            CloseBatch: lambda _: self.pipeline.close(),
            Committed: lambda message: self.pipeline.committed(message.batch),
            Resized: self.worker_messages.changed,
            ReloadBegan: self.worker_messages.changed,
            ReplaceWorker: lambda message: self.worker_messages.leaving(message.worker, message.reason),
            SweepDue: lambda _: self.sweeper.sweep(),
            EnqueuedDue: lambda _: self.taker.look(),
            Wake: lambda _: self.time.wake(in_trouble=self.outage.lasts),
            WatchEnds: self.requests.watch,
            Subscribe: self.requests.subscribe,
            Unsubscribe: lambda message: self.change_feed.unsubscribe(message.subscription),
            TakeMetrics: self.requests.metrics,
            Describe: self.requests.describe,
            Glance: self.requests.glance,
            ListWaiters: self.requests.list_waiters,
            FindDangling: self.requests.find_dangling,
            WorkerBooted: self.worker_messages.booted,
            WorkerDied: self.worker_messages.died,
            WorkerExceeded: self.time.exceeded,
            ClaimHost: self.worker_messages.claim_host,
            HostJoined: self.worker_messages.host_joined,
            HostDrains: self.worker_messages.host_drains,
            HostLeft: self.worker_messages.host_left,
            Succeeded: self.worker_messages.succeeded,
            PoolFailed: self.worker_messages.pool_failed,
            StorageTrouble: self.outage.go_on,
            SlotParked: self.news.slot,
            SlotRecovered: self.news.slot,
            ReportStatus: self.requests.report,
            HostAdded: self.worker_messages.changed,
            HostDraining: self.worker_messages.changed,
            HostRemoved: self.worker_messages.changed,
            WorkerLost: self.worker_messages.changed,
            WorkerReady: self.worker_messages.changed,
            Drain: self.stopping.drain,
            Halt: self.stopping.halt,
        }

    def _watch_later(self, id: str) -> None:
        self.requests.watch_later(id)

    def _read_failed(self, error: StorageUnavailable) -> None:
        """The store could not be read: an outage, which ends when it was opened again."""
        if not self.pipeline.trouble:
            self.outage.begin(error, "the store could not be read")
            self.pipeline.suspend()

    def _commits_lost(self, first: int, last: int, dropped: list[Event]) -> None:
        """The store went back behind what was durable: go on from what is there."""
        logger.critical(
            "the store lost the commits %d to %d, which it had acknowledged; what was decided in them has not "
            "happened any more, and actorproc goes on from what is stored",
            first,
            last,
        )
        self.counters.lost_commits += last - first + 1
        reason = "the store has lost the commit that handed out its step"
        for entry in self.in_flight.disown():
            self._pool.kill(entry.ready.worker, grace=0.0, blamed=None, reason=reason)
        for name in self._replies.ends.names():
            self.requests.watch_later(name)
        for event in dropped:
            if isinstance(event, Acknowledged | DeleteRequested | ResultsTaken):
                self._replies.fail(event.reply, StorageUnavailable("the store has lost commits meanwhile; ask again"))
        self.taker.lost()

    def _keep_promise(self, ids: Sequence[str], promise: Promise) -> None:
        self.requests.keep_promise(ids, promise)

    def _stored(self, batch: CommitBatch, seconds: float | None) -> None:
        self.counters.committed(batch, seconds)
        self.change_feed.committed(batch)
        if self._recorder is not None:
            self._recorder.committed(batch.writes, batch.commands, batch.events, routine=batch.is_routine)
        self.requests.look_at_damage()
        self.parked_waits.stored()
        self.sweeper.stored()
        if self.taker.is_watching:
            self.taker.stored(batch)
