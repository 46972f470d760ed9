"""Worker message handler, for messages and deaths: the manager's dealings with the processes that run steps.

They are handled at once, or kept until the store can be written again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from actorproc.core.scheduler.cancellation import KILLED
from actorproc.engine.callers.change_feed import ChangeFeed
from actorproc.engine.callers.counters import Counters
from actorproc.engine.callers.log_forwarder import LogForwarder
from actorproc.engine.end_waiters import fail_future, settle_future
from actorproc.engine.messages import ClaimHost, Gone, Succeeded
from actorproc.engine.pipeline.command_executor import CommandExecutor
from actorproc.engine.pipeline.commit_pipeline import CommitPipeline
from actorproc.engine.pipeline.in_flight import InFlightTable
from actorproc.engine.pipeline.step_reports import StepReports
from actorproc.engine.pipeline.store_outage import StoreOutage
from actorproc.engine.runtime.gc_pause import collector_paused_for
from actorproc.engine.runtime.type_table import TypeTable
from actorproc.engine.workers.absent_hosts import AbsentHosts
from actorproc.engine.workers.crash_verdict import judge
from actorproc.engine.workers.dedicated_workers import DedicatedWorkers
from actorproc.engine.workers.host_code import HostCode
from actorproc.engine.workers.step_queries import StepQueries
from actorproc.engine.workers.worker_events import WorkerEvents
from actorproc.errors import InternalError, StorageUnavailable
from actorproc.model.crash_report import CrashReport
from actorproc.model.ids import WorkerId
from actorproc.model.messages.definitions import Definition
from actorproc.model.messages.events import (
    HostAdded,
    HostClaimed,
    HostDraining,
    HostRemoved,
    NoteMade,
    ReloadBegan,
    Resized,
    StepDelayed,
    StepEnded,
    StepReported,
    StepReturned,
    TypeRegistered,
    WorkerLeaving,
    WorkerLost,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Suspended
from actorproc.model.slots import host_of, is_dedicated
from actorproc.report.changes import HostEventKind
from actorproc.support.clock import Clock
from actorproc.support.engine_log import engine_logger
from actorproc.workers.base import (
    HostDrains,
    HostJoined,
    HostLeft,
    PoolFailed,
    WorkerBooted,
    WorkerDied,
    WorkerMessages,
)
from actorproc.workers.protocol.frames import (
    Ask,
    Began,
    CancelBegan,
    Ended,
    Exposed,
    FromWorker,
    Heartbeat,
    Leaving,
    LogLine,
    NeedState,
    Returned,
)

if TYPE_CHECKING:
    from actorproc.telemetry.recorder import Recorder

__all__ = ["WorkerMessageHandler"]

logger = engine_logger("actorproc")


class WorkerMessageHandler:
    """Turns messages of workers into events. Needs the manager's turn (`CombiningInbox`)."""

    def __init__(
        self,
        *,
        pipeline: CommitPipeline,
        in_flight: InFlightTable,
        types: TypeTable,
        host_code: HostCode,
        counters: Counters,
        change_feed: ChangeFeed,
        news: WorkerEvents,
        dispatcher: CommandExecutor,
        dedicated: DedicatedWorkers,
        step_queries: StepQueries,
        reports: StepReports,
        outage: StoreOutage,
        clock: Clock,
        patience: float,
        recorder: Recorder | None,
        post: Callable[[Callable[[], object]], None],
        on_gone: Callable[[Gone], None],
    ) -> None:
        self._pipeline = pipeline
        self._in_flight = in_flight
        self._types = types
        self._host_code = host_code
        self._counters = counters
        self._change_feed = change_feed
        self._news = news
        self._dispatcher = dispatcher
        self._dedicated = dedicated
        self._step_queries = step_queries
        self._reports = reports
        self._outage = outage
        self._clock = clock
        self._log_lines = LogForwarder(post)
        self._on_gone = on_gone
        self.absent = AbsentHosts(in_flight, counters, news, clock, patience)
        self._hosts: dict[int, HostJoined] = {}
        """The hosts that have joined, by number."""
        self._recorder = recorder

    # ------------------------------------------------------------ entrance
    def messages(self, message: WorkerMessages) -> None:
        """A worker spoke."""
        if not self._outage.lasts:
            for one in message.messages:
                if type(one) is Ended:
                    self.ended(one)
                else:
                    self.hear(message.worker, one)
            self._pipeline.decide()
            return
        late = [one for one in message.messages if self.heard_in_trouble(message.worker, one)]
        if late:
            self._outage.defer(WorkerMessages(message.worker, late))

    def died(self, message: WorkerDied) -> None:
        """A worker is dead."""
        lost = self._lost(message)
        if lost is not None:
            self.changed(lost)

    def booted(self, message: WorkerBooted) -> None:
        """A worker takes steps now."""
        self.changed(self.joined(message))

    def succeeded(self, message: Succeeded) -> None:
        """A worker is dead, and a spare has its place."""
        self.died(message.died)
        self.booted(message.booted)

    def claim_host(self, message: ClaimHost) -> None:
        """Say what counts of that which a host has in hand, which may be of an earlier leader."""
        if self._outage.lasts:
            fail_future(message.future, StorageUnavailable("the store is away; ask again"))
            return
        now = self._clock.monotonic()
        found = self._pipeline.core.claimable(message.host, message.slots, message.held)
        workers = []
        for bare, commands in found:
            ready = msgspec.structs.replace(bare, host=message.name)
            self._in_flight.adopt(ready, commands, now)
            if ready.reserved is not None:
                self._dedicated.adopt(ready.worker, ready.reserved)
            workers.append((ready, tuple(command.token for command in commands)))
        self.absent.joined(message.host)
        self._pipeline.handle(HostClaimed(message.host, tuple(workers)))
        tokens = tuple(token for _, some in workers for token in some)
        self._counters.adopted_steps += len(tokens)
        settle_future(message.future, (tuple(ready.worker for ready, _ in workers), tokens))

    def host_joined(self, message: HostJoined) -> None:
        """A host offers workers."""
        self._hosts[message.host] = message
        if message.host:
            self._news_of(message.host, "host-joined", message.slots, None)
        self._dedicated.hosts[message.name] = message.host
        self.changed(self._host_code.joined(message))

    def host_drains(self, message: HostDrains) -> None:
        """A host is to get no further step."""
        name = self._name_of(message.host)
        if name:
            self._news_of(message.host, "host-drains", None, message.reason)
        self._dedicated.hosts.pop(name, None)
        self.changed(HostDraining(name))

    def host_left(self, message: HostLeft) -> None:
        """A host is gone; the deaths of its workers come behind this."""
        if message.host in self._hosts:
            self._counters.host_losses += message.is_lost
            self._news_of(message.host, "host-lost" if message.is_lost else "host-left", None, message.reason)
            name = self._hosts.pop(message.host).name
            self._host_code.left(message.host)
            self._dedicated.left(name, message.host)
            self.changed(HostRemoved(name))

    def _name_of(self, number: int) -> str:
        """Name of a host that has joined; "": this machine, or one that has not."""
        host = self._hosts.get(number)
        return "" if host is None else host.name

    def _news_of(self, number: int, kind: HostEventKind, workers: int | None, why: str | None) -> None:
        entries = self._in_flight.entries.items()  # those of the dead too, until that is stored
        there = [entry for worker, entry in entries if host_of(worker.slot) == number and not entry.dead]
        host, steps = self._hosts[number], sum(len(entry.queue) for entry in there)
        self._news.host(kind, host.name, host.machine, len(there) if workers is None else workers, steps, why)

    def changed(
        self,
        event: StepReported | WorkerLost | WorkerReady | HostAdded | HostDraining | HostRemoved | Resized | ReloadBegan,
    ) -> None:
        """Handle who came, who went, and how many there are to be, in that order also when it has to be deferred.

        A death comes after everything its worker answered, and before the next worker of its slot. Otherwise the core
        would see a new worker in a slot whose worker it knows to be alive, and the steps of the dead one would be
        lost.
        """
        if self._outage.lasts:
            self._outage.defer(event)
        else:
            self._pipeline.handle(event)

    @staticmethod
    def pool_failed(message: PoolFailed) -> None:
        """No message of a worker comes any more, and none can be started: fail all that wait."""
        msg = f"the worker pool failed: {type(message.error).__name__}: {message.error}"
        raise InternalError(msg) from message.error

    # ------------------------------------------------------------ messages
    def heard_in_trouble(self, worker: WorkerId, message: FromWorker) -> bool:
        """Take from a message what needs no store; whether the rest of it must wait for that.

        An answer counts as answered, so that no time limit kills its step meanwhile, and a step that waits for its
        state does not run. Messages about running steps are taken at once: they would be wrong after the answers, and
        a step may send many while a disk is full.
        """
        kind = type(message)
        if kind is Began or kind is CancelBegan or kind is Heartbeat or kind is Exposed or kind is LogLine:
            self.hear(worker, message)
            return False
        if isinstance(message, Ended):
            if message.definitions:
                self._learn(message)  # while it is known whose step it is
            self.answered(message)
        elif isinstance(message, Returned):
            self._in_flight.answered(message.token, self._clock.monotonic())
        elif isinstance(message, NeedState):
            self._in_flight.lacks(message.token, self._clock.monotonic())
        return True

    def hear(self, worker: WorkerId, message: FromWorker) -> None:
        """Take one message of a worker."""
        kind = type(message)
        if kind is Ended:
            self.ended(message)  # type: ignore[arg-type]
        elif kind is Ask:
            self._ask(message)  # type: ignore[arg-type]
        elif isinstance(message, Returned):
            self._in_flight.answered(message.token, self._clock.monotonic())
            if message.other_code:
                self._has_other_code(worker, message.other_code)
            self._pipeline.handle(StepReturned(message.token))
        elif isinstance(message, NeedState):
            self._need_state(message)
        elif isinstance(message, Began):
            self._began(worker, message)
        elif isinstance(message, CancelBegan):
            self._in_flight.heard(message.token)
        elif isinstance(message, Leaving):
            self.leaving(worker, message.reason)
        elif isinstance(message, Heartbeat | Exposed):
            self._reported(worker, message)
        elif isinstance(message, LogLine):
            self._logged(worker, message)

    def _began(self, worker: WorkerId, message: Began) -> None:
        entry = self._in_flight.entries.get(worker)
        if entry is None or message.token not in entry.queue:
            return
        if message.in_code:
            entry.heard[message.token] = self._clock.monotonic()
        else:
            entry.begun[message.token] = (message.thread, self._clock.monotonic())

    def _logged(self, worker: WorkerId, message: LogLine) -> None:
        entry = self._in_flight.entries.get(worker)
        command = entry.queue.get(message.token) if entry is not None and message.token is not None else None
        self._log_lines.put(message, worker, command, entry.ready.pid if entry is not None else 0)

    def _has_other_code(self, worker: WorkerId, type_name: str) -> None:
        """A worker of a host gives a step back, as it has other code: the step is to go to another host."""
        number = host_of(worker.slot)
        event = self._host_code.returned(number, type_name)
        if event is not None:
            logger.warning("host %s has other code of %s than this manager", self._name_of(number), type_name)
            self.changed(event)

    def registered(self, definition: Definition) -> None:
        """A type is known now, or anew: what waited for it goes on, and hosts may have other code of it.

        Args:
            definition: Its definition.
        """
        for event in self._host_code.registered(definition):
            self.changed(event)
        self._pipeline.handle(TypeRegistered(definition.meta))

    def _reported(self, worker: WorkerId, message: Heartbeat | Exposed) -> None:
        """A running step shows something of itself."""
        token, entry = message.token, self._in_flight.entries.get(worker)
        if entry is None or token not in entry.queue:
            return
        if isinstance(message, Exposed):
            self._reports.expose(token, message.key, message.value)
            return
        entry.said[token] = message.progress, message.message
        if entry.queue[token].heartbeat is not None:
            entry.heard[token] = self._clock.monotonic()
        if message.details is not None:
            self._reports.heartbeat(token, message.details, message.key, message.step)
        self._change_feed.heartbeat(token, message.progress, message.message)

    def ended(self, message: Ended) -> None:
        """Take the answer of a step; the pipeline is to `decide` when all that came with it is heard."""
        if message.definitions:
            self._pipeline.decide()  # a class that is registered may move others than this worker's steps
            self._learn(message)
        self.answered(message)
        if message.began and self._recorder is not None:
            self._recorder.began(message.token, message.began)
        if self._reports.due_at is not None and (report := self._reports.take(message.token)) is not None:
            self._pipeline.handle(report)
        outcome = message.outcome
        if type(outcome) is Suspended:
            with collector_paused_for(len(outcome.children)):
                self._pipeline.handle(StepEnded(message.token, outcome))
        else:
            self._pipeline.take(StepEnded(message.token, outcome))

    def _learn(self, message: Ended) -> None:
        """A step brings classes of its children."""
        entry = self._in_flight.entries.get(message.token.worker)
        command = entry.queue.get(message.token) if entry is not None else None
        for definition in message.definitions:
            if self._types.learn(definition, command.type_name if command is not None else ""):
                self.registered(definition)

    def answered(self, message: Ended) -> None:
        """Note that a step has its answer, whatever becomes of it."""
        command = self._in_flight.answered(message.token, self._clock.monotonic())
        if command is not None:
            self._counters.step_ended(command, message.outcome)

    def _ask(self, message: Ask) -> None:
        if message.kind == "remember":
            self._pipeline.handle(NoteMade(message.token, message.key, message.value, message.request, message.step))
            return
        worker = message.token.worker
        try:
            answer = self._step_queries.answer(message)
        except StorageUnavailable:
            self._outage.defer(WorkerMessages(worker, [message]))
        else:
            self._dispatcher.post(worker, answer)

    def _need_state(self, message: NeedState) -> None:
        self._in_flight.lacks(message.token, self._clock.monotonic())
        entry = self._in_flight.entries.get(message.token.worker)
        if entry is not None and message.token in entry.lacking:
            self._pipeline.handle(StepDelayed(message.token))

    # ------------------------------------------------------------ life and death
    def joined(self, message: WorkerBooted) -> WorkerReady:
        """A worker takes steps now; returns what the core is to be told."""
        self._dedicated.booted(message.worker)
        ready = WorkerReady(
            message.worker,
            reserved=self._dedicated.procedure_of(message.worker),
            pid=message.pid,
            host=self._name_of(host_of(message.worker.slot)),
        )
        self._in_flight.join(ready)
        return ready

    def leaving(self, worker: WorkerId, reason: str) -> None:
        """A worker is to be replaced, of its own wish or of an operator's."""
        entry = self._in_flight.entries.get(worker)
        if entry is not None:
            logger.info("worker %d.%d is replaced: %s", worker.slot, worker.incarnation, reason)
            entry.ready = msgspec.structs.replace(entry.ready, leaving=True)
            self._pipeline.handle(WorkerLeaving(worker))

    def _lost(self, message: WorkerDied) -> WorkerLost | None:
        """A worker is dead: tell those who keep workers; returns what the core is to be told."""
        worker = message.worker
        entry = self._in_flight.die(worker)
        if entry is None:
            self._count_death(message.report)
            self._news.never_booted(worker, message.report)
            self._tell_gone(Gone(worker, message.report, message.booted, message.booted, message.successor))
            return None
        for token in entry.queue:
            report = self._reports.take(token)
            if report is not None:
                self.changed(report)
        orders = self._in_flight.forget_orders(entry)
        verdict = judge(entry, message.report, self._clock.monotonic(), orders)
        blamed, crashed = verdict.blamed, verdict.crashed
        self._count_death(verdict.report)
        self._news.died(entry, verdict)
        if crashed and (died_in := entry.queue[blamed] if blamed is not None else entry.running) is not None:
            self._counters.step_lost(died_in, by_operator=verdict.report.kind == KILLED)
        is_idle = not entry.queue and entry.killed is None
        self._tell_gone(Gone(worker, verdict.report, message.booted, is_idle, message.successor))
        first = entry.running
        return WorkerLost(
            worker, verdict.report, crashed=crashed, blamed=blamed, first=first.token if first is not None else None
        )

    def _count_death(self, report: CrashReport) -> None:
        if report.kind != "stopped":
            self._counters.worker_died(report.kind)

    def _tell_gone(self, gone: Gone) -> None:
        """Tell the one who keeps workers of this kind."""
        if is_dedicated(gone.worker.slot):
            self._dedicated.died(gone.worker, gone.report, booted=gone.booted)
        else:
            self._on_gone(gone)
