"""Requests of callers besides verbs: the end of a procedure, and views of the store and of the live core."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from msgspec.structs import replace

from actorproc.core.locks.explain import dangling
from actorproc.core.state.phases import last_phase
from actorproc.engine.callers.change_feed import ChangeFeed
from actorproc.engine.callers.counters import Counters
from actorproc.engine.callers.parked_waits import ParkedWaits, quarantined
from actorproc.engine.end_waiters import AskListener, EndWaiters, fail_future, settle_future, tell_answer
from actorproc.engine.messages import (
    Describe,
    Described,
    Ending,
    EndWaiter,
    FindDangling,
    Glance,
    ListWaiters,
    ManagerMetrics,
    ManagerStatus,
    Patience,
    ReportStatus,
    Subscribe,
    TakeMetrics,
    WatchEnds,
)
from actorproc.engine.pipeline.commit_pipeline import CommitPipeline
from actorproc.engine.pipeline.in_flight import InFlightTable
from actorproc.engine.pipeline.store_outage import StoreOutage
from actorproc.engine.reply_router import Promise
from actorproc.errors import EngineError, StorageUnavailable, StoreDamaged, UnknownProcedure, UsageError
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import TERMINAL, Phase
from actorproc.report.health import RetentionHealth
from actorproc.report.info import ProcedureInfo, info_of
from actorproc.report.listing import children_by_state
from actorproc.store.base import RecordStore
from actorproc.support.clock import Clock, clock_jumps

__all__ = ["RequestHandler"]

_AT_WORK = frozenset({Phase.RUNNING, Phase.ROLLING_BACK})
_IN_MEMORY = frozenset({Phase.QUEUED, Phase.LOCKED_OUT, Phase.RUNNING, Phase.RETRYING})
"""Phases that only procedures of resident trees are in."""


class RequestHandler:
    """Answers from the store and from the live core. Needs the manager's turn (`CombiningInbox`)."""

    def __init__(
        self,
        *,
        store: RecordStore,
        pipeline: CommitPipeline,
        in_flight: InFlightTable,
        waiters: EndWaiters,
        outage: StoreOutage,
        change_feed: ChangeFeed,
        parked_waits: ParkedWaits,
        counters: Counters,
        clock: Clock,
        retention: Callable[[], RetentionHealth],
        other_code: Callable[[], dict[str, tuple[str, ...]]],
        enqueued: Callable[[], tuple[str, ...]],
    ) -> None:
        self._parked_waits = parked_waits
        self._store = store
        self._pipeline = pipeline
        self._in_flight = in_flight
        self._waiters = waiters
        self._outage = outage
        self._change_feed = change_feed
        self._counters = counters
        self._clock = clock
        self._retention = retention
        self._other_code = other_code
        self._enqueued = enqueued
        self._started = clock.monotonic()
        self._halted = 0
        """Procedures of the core that stood still because of damage when it was looked last."""

    def watch(self, message: WatchEnds) -> None:
        """Tell each waiter the end of its procedure now, or when it comes; while the store cannot be asked, later."""
        self.watch_each(message.ends, message.patience)

    def keep_promise(self, ids: Sequence[str], promise: Promise) -> None:
        """Begin the waits for the ends of what was submitted, and is durable now."""
        ends = list(zip(ids, promise.waiters, strict=True))
        self._waiters.keep(ends, promise.patience)
        self.watch_each(ends, promise.patience)

    def watch_each(self, ends: Sequence[tuple[str, EndWaiter]], patience: Patience) -> None:
        """Tell each waiter the end of its procedure now, or when it comes; while the store cannot be asked, later."""
        for place, (id, waiter) in enumerate(ends):
            try:
                if not self._outage.lasts:
                    self._watch(id, waiter, patience)
                    continue
            except StoreDamaged as error:
                fail_future(waiter, error)
                continue
            except StorageUnavailable:
                pass
            self._outage.defer(WatchEnds(ends[place:], patience))
            return

    def watch_later(self, id: str) -> None:
        """Ask for the end of a procedure once more when the store can be asked."""
        for patience, waiter in self._waiters.take(id):
            self._outage.defer(WatchEnds([(id, waiter)], patience))

    def _watch(self, id: str, waiter: EndWaiter, patience: Patience) -> None:
        live = self._pipeline.core.view(id)
        if isinstance(waiter, AskListener) and self._tell_answer(id, waiter):
            return
        if live is not None and live.state not in TERMINAL:
            self._waiters.begin(id, waiter, patience)
            self._parked_waits.watched(live)
            return
        # The store is asked, not the core: an end that is decided but not committed has not happened yet.
        ended = self._store.ending(id)
        if ended is not None:
            settle_future(waiter, Ending.of(*ended))
        elif (damage := self._pipeline.core.damage_of(id)) is not None:
            self._waiters.begin(id, waiter, patience)
            self._tell_damage(id, damage)  # its end would never come
        elif (unfinished := live or self._store.procedure(id)) is not None:
            self._waiters.begin(id, waiter, patience)
            self._parked_waits.watched(unfinished)
        else:
            fail_future(waiter, UnknownProcedure(f"no procedure has the id {id!r}"))

    def _tell_answer(self, id: str, waiter: AskListener) -> bool:
        """Tell the stored answer to an ask, or that none comes; False when it may come, or the end is to be told."""
        found = self._store.replies(id, waiter.ask)
        if not found:
            core = self._pipeline.core
            if core.knows_ask(id, waiter.ask) or core.damage_of(id) is not None:
                return False
            head = core.view(id) or self._store.procedure(id)
            if head is None or head.state in TERMINAL:
                return False
        tell_answer(waiter, id, waiter.ask, found[0].value if found else None)
        return True

    def look_at_damage(self) -> None:
        """Damage may have been met since the last call: who waits for what stands still now is told."""
        halted = self._pipeline.core.halted
        if halted != self._halted:
            self._halted = halted
            for name in self._waiters.names():
                damage = self._pipeline.core.damage_of(name)
                if damage is not None:
                    self._tell_damage(name, damage)

    def _tell_damage(self, id: str, damage: StoreDamaged) -> None:
        """Notify the waits for the end of a damaged procedure, but for callbacks and futures."""
        error = quarantined(id, damage)
        self._waiters.fail(id, error, Patience.PARKED)
        self._parked_waits.log_waiting(id, str(error))

    def subscribe(self, message: Subscribe) -> None:
        """Begin to tell a watcher what changes, between two commits."""
        self._pipeline.between_commits(lambda: self._subscribe(message))

    def _subscribe(self, message: Subscribe) -> None:
        if message.subscription.is_over:
            settle_future(message.future, None)
            return  # who asked was interrupted while this waited for a commit, and has told so already
        name = message.subscription.id
        record, parked = None, None
        try:
            if name is not None:
                record = self._store.procedure(name)
                if record is None:
                    fail_future(message.future, UnknownProcedure(f"no procedure has the id {name!r}"))
                    return
                phase, reason = self._pipeline.core.phase(record)
                parked = reason if phase is Phase.PARKED else None
        except EngineError as error:
            fail_future(message.future, error)
            return
        self._change_feed.subscribe(message.subscription, message.since, record, parked)
        settle_future(message.future, None)

    def metrics(self, message: TakeMetrics) -> None:
        """Copy the counters."""
        core, counters = self._pipeline.core, self._counters
        entries = [entry for entry in self._in_flight.entries.values() if not entry.dead]
        found = ManagerMetrics(
            uptime=self._clock.monotonic() - self._started,
            procedures=counters.procedures(),
            steps=counters.steps(),
            named_steps=counters.named_steps(),
            histograms=counters.histograms(),
            replayed=counters.replayed,
            stale_results=core.stale_results,
            lost_commits=counters.lost_commits,
            clock_jumps=clock_jumps(self._clock),
            commits=self._pipeline.commits,
            queued=core.queued,
            in_hand=core.in_hand,
            lock_waiting=len(core.lock_waiters()),
            workers=len(entries),
            workers_busy=sum(bool(entry.queue) for entry in entries),
            watchers=self._change_feed.watchers,
            events_lost=self._change_feed.events_lost,
            retention=self._retention(),
            deaths=counters.deaths(),
            host_losses=counters.host_losses,
            adopted_steps=counters.adopted_steps,
            queue_age=core.queue_age(self._clock.wall()),
        )
        settle_future(message.future, found)

    def describe(self, message: Describe) -> None:
        """Stored heads as they are now."""
        try:
            settle_future(message.future, tuple(self._described(record) for record in message.records))
        except Exception as error:  # noqa: BLE001 - heads may come from other processes: those are no reason to end
            fail_future(message.future, UsageError(f"these are no heads of procedures of this store: {error!r}"))

    def _described(self, record: ProcedureRecord) -> Described:
        if record.state in TERMINAL and not record.undoing:
            return Described(record, Phase.DONE, None, None)
        live = self._pipeline.core.view(record.id)
        # A live head that is terminal is decided but not durable: the stored head is still the truth.
        if live is not None and live.state not in TERMINAL:
            record = copy.copy(live)
        if live is not None and live.state in TERMINAL and record.state not in TERMINAL:
            return Described(record, *last_phase(record), *self._in_flight.progress(record.id))
        phase, reason = self._pipeline.core.phase(record)
        if live is None and phase in _IN_MEMORY:  # no more: it ended, or came to rest, since this head was read
            record = self._stored_now(record)
            phase, reason = self._pipeline.core.phase(record)
        progress, said = self._in_flight.progress(record.id) if phase in _AT_WORK else (None, None)
        return Described(record, phase, reason, progress, said)

    def glance(self, message: Glance) -> None:
        """State of a procedure, with the parked one that keeps it from ending, if there is one, in the reason."""
        try:
            record = self._store.procedure(message.id)
            seen = None if record is None else self._described(record)
        except EngineError:
            seen = None
        if seen is not None and seen.phase not in {Phase.DONE, Phase.PARKED}:
            obstacle = self._pipeline.core.obstacle_of(message.id)
            if obstacle is not None:
                reason = f"{obstacle.record.id} is parked: {obstacle.reason}"
                seen = replace(seen, reason=f"{seen.reason}; {reason}" if seen.reason else reason)
        settle_future(message.future, seen)

    def _stored_now(self, record: ProcedureRecord) -> ProcedureRecord:
        """The head as it is stored now; the one that was read before, when the store cannot say, or has it no more."""
        try:
            return self._store.procedure(record.id) or record
        except EngineError:
            return record

    def list_waiters(self, message: ListWaiters) -> None:
        """Waiters for locks, in the order of the queue."""
        settle_future(message.future, self._pipeline.core.lock_waiters())

    def find_dangling(self, message: FindDangling) -> None:
        """Compare the stored locks with memory, which is ahead of the store by what is not committed yet."""
        if self._outage.lasts:
            fail_future(message.future, self._outage.refusal())
            return
        pipeline = self._pipeline
        try:
            stored = pipeline.locks_once_committed(self._store.locks())
            found = dangling(stored, pipeline.core.lock_holders(), self._head)
        except EngineError as error:
            fail_future(message.future, error)
        else:
            settle_future(message.future, found)

    def _head(self, id: str) -> ProcedureRecord | None:
        return self._pipeline.core.view(id) or self._store.procedure(id)

    def info(self, record: ProcedureRecord) -> ProcedureInfo:
        """The public view of a stored head, for a step that asks."""
        seen = self._described(record)
        children = children_by_state(self._store, seen.record)
        exposed = self._store.exposed((record.id,)).get(record.id, ()) if seen.record.exposes else ()
        return info_of(seen.record, seen.phase, seen.reason, children, seen.progress, seen.message, exposed)

    def report(self, message: ReportStatus) -> None:
        """The manager's own report."""
        now = self._clock.monotonic()
        trouble = self._outage.error
        found = ManagerStatus(
            workers=self._in_flight.status(now),
            storage_error=str(trouble) if trouble is not None else None,
            storage_down_for=now - self._outage.since if trouble is not None else None,
            commits=self._pipeline.commits,
            last_commit=self._pipeline.last_commit,
            slowest_commit=self._pipeline.slowest_commit,
            stale_results=self._pipeline.core.stale_results,
            damaged=self._pipeline.core.damaged,
            schedules=tuple(self._pipeline.core.faulty_schedules),
            enqueued=self._enqueued(),
            dispatching=self._pipeline.dispatching,
            paused=self._pipeline.core.paused,
            gated=self._pipeline.gated,
            running=self._in_flight.running(),
            vacated=self._pipeline.core.vacated,
            types=self._pipeline.core.known_types,
            retention=self._retention(),
            other_code=self._other_code(),
        )
        settle_future(message.future, found)
