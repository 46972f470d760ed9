"""The reading side of a manager: what is stored, joined with what only the live engine knows."""

from __future__ import annotations

import functools
import itertools
import platform
from collections.abc import Container, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from actorproc.api.deploys.code_files import in_words as files_changed
from actorproc.api.deploys.unfinished import unfinished_figures
from actorproc.core.locks.explain import WaitersByNode
from actorproc.core.locks.request import LockWaiter
from actorproc.engine.messages import Described, Ending, ManagerMetrics, ManagerStatus, SlotStatus
from actorproc.errors import (
    ActorprocError,
    EngineError,
    InternalError,
    ManagerStopped,
    StoreDamaged,
    UnknownProcedure,
)
from actorproc.model.ids import StepToken, WorkerId, check_id
from actorproc.model.policies import LockMode
from actorproc.model.reports import Looked
from actorproc.model.rows.enqueued import no_procedure
from actorproc.model.rows.records import LockRecord, NoteRecord, ProcedureRecord, StepRecord
from actorproc.model.states import Phase
from actorproc.report.audit import AuditInfo, audit_log, audit_of
from actorproc.report.health import Health, RetentionHealth, SlotHealth
from actorproc.report.hosts import HostInfo
from actorproc.report.info import (
    EnqueuedInfo,
    LockInfo,
    LockWaiterInfo,
    PoisonInfo,
    ProcedureInfo,
    ProcedureTree,
    ScheduleInfo,
    SignalInfo,
    enqueued_info_of,
    info_of,
    lock_info_of,
    mode_name,
    poison_info_of,
    schedule_info_of,
    signal_info_of,
)
from actorproc.report.listing import ListFilter, children_by_state
from actorproc.report.metrics import Metrics
from actorproc.report.step_log import AttemptInfo, StepInfo, attempt_info_of, step_infos_of
from actorproc.store.base import RecordStore
from actorproc.workers.base import HostJoined, WorkerInfo
from actorproc.workers.output.spool import spooled
from actorproc.workers.protocol.log_entry import LogEntry

__all__ = ["Engine", "Queries", "Source", "StoredQueries", "Workers"]

_DEEPEST = 200
"""Levels of a tree that is shown: each is one in another, and code that goes through them has a limit."""
_CHUNK = 256
"""Heads described in one message to the manager, so that a long list does not hold it up."""


class Source(Protocol):
    """A store, and what is known of its procedures besides."""

    @property
    def store(self) -> RecordStore:
        """Store of the procedures."""
        ...

    def describe(self, records: tuple[ProcedureRecord, ...]) -> tuple[Described, ...]:
        """These heads with what they are doing."""
        ...

    def lock_waiters(self) -> list[LockWaiter]:
        """Procedures that wait for locks, in the order of the queue."""
        ...


class Workers(Protocol):
    """The workers of a running engine, as queries use them."""

    def facts(self) -> dict[WorkerId, WorkerInfo]:
        """Live workers."""
        ...

    def stack(self, token: StepToken) -> str:
        """The Python stack of a running step."""
        ...

    def logs(self, procedure: str) -> list[LogEntry]:
        """Prints and log records of a procedure."""
        ...


class Engine(Source, Protocol):
    """A running engine, as queries use it; in this process or in another one."""

    @property
    def pool(self) -> Workers:
        """Its workers."""
        ...

    @property
    def host(self) -> HostJoined:
        """The machine of the manager."""
        ...

    def dangling_locks(self) -> list[tuple[LockRecord, str]]:
        """Stored locks that no procedure will give up or that memory does not know so, with the reason."""
        ...

    def manager_status(self) -> ManagerStatus | None:
        """The manager's report; None when it does not answer."""
        ...

    def metrics(self) -> ManagerMetrics:
        """The manager's counters."""
        ...

    def slots(self) -> tuple[SlotStatus, ...]:
        """The supervisor's report; empty when it does not answer."""
        ...

    def hosts(self) -> tuple[HostInfo, ...]:
        """The worker hosts that have joined."""
        ...


class StoredQueries:
    """Questions that any store answers, whether its engine runs here, elsewhere, or not at all."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._store = source.store

    def spooled_logs(self, id: str, directory: Path | None) -> list[LogEntry]:
        """Output that the log spool keeps; none when there is no spool."""
        record = self.head(id)
        kept = [] if directory is None else spooled(directory, id)
        return [entry for entry in kept if _belongs(entry, record)]

    def head(self, id: str) -> ProcedureRecord:
        """The stored head; raises `UnknownProcedure`, and `InvalidId` for what can be no id."""
        record = self._store.procedure(check_id(id))
        if record is None:
            raise UnknownProcedure(no_procedure(id, self._store.enqueued_under(id)))
        return record

    def ending(self, id: str) -> Ending | None:
        """End of a procedure; None when it has not ended, or when the store cannot say so now."""
        try:
            found = self._store.ending(id)
        except EngineError:
            return None
        return None if found is None else Ending.of(*found)

    def info(self, id: str) -> ProcedureInfo:
        """One procedure as it is now."""
        return self._infos((self.head(id),))[0]

    def listed(self, wanted: ListFilter, looked: Looked | None = None) -> list[ProcedureInfo]:
        """Procedures in submit order, or newest first, that match all filters, as far as a bound allows."""
        heads = wanted.heads(self._store, looked)
        infos: list[ProcedureInfo] = []
        while wanted.limit is None or len(infos) < wanted.limit:
            room = _CHUNK if wanted.limit is None or wanted.phases else min(_CHUNK, wanted.limit - len(infos))
            chunk = tuple(itertools.islice(heads, room))
            if not chunk:
                break
            infos += self._infos(chunk, wanted.phases)
        return infos[: wanted.limit]

    def _infos(
        self, records: tuple[ProcedureRecord, ...], phases: frozenset[Phase] | None = None
    ) -> list[ProcedureInfo]:
        described = self._source.describe(records)
        showing = [seen.record.id for seen in described if seen.record.exposes]
        exposed = self._store.exposed(showing) if showing else {}
        return [
            info_of(
                seen.record,
                seen.phase,
                seen.reason,
                children_by_state(self._store, seen.record),
                seen.progress,
                seen.message,
                exposed.get(seen.record.id, ()),
            )
            for seen in described
            if phases is None or seen.phase in phases
        ]

    def tree(self, id: str, limit: int) -> ProcedureTree:
        """A procedure and at most `limit` - 1 of those below it, level by level, in at most `_DEEPEST` levels."""
        if isinstance(limit, bool) or not isinstance(limit, int) or limit < 1:
            msg = f"tree(limit=…) is a number of procedures, at least 1, not {limit!r:.60}"
            raise ValueError(msg)
        heads = {id: self.head(id)}
        levels = {id: 1}
        below: dict[str, list[str]] = {}
        omitted: dict[str, int] = {}
        for name in _growing(heads):
            if not heads[name].children:
                continue
            if len(heads) >= limit or levels[name] >= _DEEPEST:
                omitted[name] = heads[name].children
                continue
            links = self._store.children(name)
            shown = below[name] = []
            for link in links[: max(0, limit - len(heads))]:
                child = self._head_or_none(link.child)
                if child is not None and link.child not in heads:  # else links of a damaged store lead in a circle
                    heads[link.child] = child
                    levels[link.child] = levels[name] + 1
                    shown.append(link.child)
            omitted[name] = len(links) - len(shown)
        infos: dict[str, ProcedureInfo] = {}
        for chunk in _chunks(list(heads.values())):
            infos.update((info.id, info) for info in self._infos(chunk))
        trees: dict[str, ProcedureTree] = {}
        for name in reversed(heads):  # children come after their parents
            children = tuple(trees[child] for child in below.get(name, ()))
            trees[name] = ProcedureTree(info=infos[name], children=children, omitted=omitted.get(name, 0))
        return trees[id]

    def steps(self, id: str) -> list[StepInfo]:
        """The step log."""
        return step_infos_of(*self.log(id))

    def log(self, id: str) -> tuple[ProcedureRecord, list[StepRecord]]:
        """The head and all records of one generation."""
        head = self.head(id)
        while True:
            records = self._store.steps(id)
            before, head = head, self.head(id)
            if head.generation == before.generation:
                return head, records

    def notes(self, id: str, step: int) -> list[NoteRecord]:
        """Notes that the step of this number has written so far."""
        return self._store.notes(id, step)

    def attempts(self, id: str, step: int | None) -> list[AttemptInfo]:
        """Failed attempts of a procedure, of one step when given, in order of time."""
        return [attempt_info_of(record) for record in self._store.attempts(self.head(id).id, step)]

    def locks(self, now: float) -> list[LockInfo]:
        """The lock table at `now`, with the live queues."""
        queue = WaitersByNode(self._source.lock_waiters(), _shown_waiter)
        head_of = functools.cache(self._head_or_none)
        return [lock_info_of(lock, head_of(lock.holder), now, waiters=queue.of(lock)) for lock in self._store.locks()]

    def _head_or_none(self, id: str) -> ProcedureRecord | None:
        """The stored head; None too when it cannot be read."""
        try:
            return self._store.procedure(id)
        except StoreDamaged:
            return None

    def audit(self, id: str | None) -> list[AuditInfo]:
        """Requests of operators, in order: for a procedure, or (None) for the manager."""
        if id is None:
            return audit_log(self._store, manager_only=True)[::-1]
        return audit_of(self._store, check_id(id))

    def audit_log(self) -> list[AuditInfo]:
        """Requests of operators for all procedures and for the manager, the newest first."""
        return audit_log(self._store)

    def poisons(self) -> list[PoisonInfo]:
        """The poisoned keys."""
        return [poison_info_of(poison) for poison in self._store.poisons()]

    def schedules(self) -> list[ScheduleInfo]:
        """The schedules, by id."""
        epoch, records = self._store.schedules()
        return [schedule_info_of(record, epoch) for record in records]

    def enqueued(self) -> list[EnqueuedInfo]:
        """Procedures that applications enqueued: those that wait, then those that were refused."""
        return [enqueued_info_of(row) for refused in (False, True) for row in self._store.enqueued(refused=refused)]

    def check_schedules(self) -> None:
        """Read the row of each schedule. Raises `StoreDamaged`."""
        self._store.schedules()

    def schedule(self, id: str) -> ScheduleInfo | None:
        """One schedule; None: there is none of this id."""
        epoch, record = self._store.schedule(check_id(id))
        return None if record is None else schedule_info_of(record, epoch)

    def signals(self, target: str | None) -> list[SignalInfo]:
        """Signals and events that no procedure has taken, of one target or of all, the oldest first."""
        kept = sorted(self._store.kept_signals(target), key=lambda row: (row.at, row.target, row.number))
        return [signal_info_of(row) for row in kept]


class Queries(StoredQueries):
    """Reads of a running engine for callers, in their own threads."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._engine = engine

    def dangling_locks(self, now: float) -> list[LockInfo]:
        """Locks that no procedure will give up, or of which store and memory disagree, each with its reason."""
        return [
            lock_info_of(lock, self._head_or_none(lock.holder), now, reason=reason)
            for lock, reason in self._engine.dangling_locks()
        ]

    def stack(self, id: str) -> str:
        """The Python stack of the running step; "" when none runs. Raises `ManagerStopped` when nothing answers."""
        self.head(id)
        status = self._engine.manager_status()
        if status is None:
            msg = "the manager does not answer, so it is not known what runs: actorproc doctor"
            raise ManagerStopped(msg)
        for token in status.running:
            if token.procedure == id:
                return self._engine.pool.stack(token)
        return ""

    def logs(self, id: str) -> list[LogEntry]:
        """Output that is kept."""
        record = self.head(id)
        return [entry for entry in self._engine.pool.logs(id) if _belongs(entry, record)]

    def workers(self) -> list[WorkerInfo]:
        """Every worker process and the step in it."""
        facts = self._engine.pool.facts()
        status = self._engine.manager_status()
        lines = {line.worker: line for line in status.workers} if status is not None else {}
        slots = {slot.slot: slot for slot in self._engine.slots()}
        infos = []
        for worker, fact in sorted(facts.items()):
            line = lines.get(worker)
            slot = slots.get(worker.slot)
            busy = line is not None and line.procedure is not None
            infos.append(
                WorkerInfo(
                    slot=worker.slot,
                    incarnation=worker.incarnation,
                    pid=fact.pid,
                    state=("busy" if busy else "idle") if line is not None and fact.state != "stopping" else fact.state,
                    procedure=line.procedure if line is not None else None,
                    type_name=line.type_name if line is not None else None,
                    step=line.step if line is not None else None,
                    attempt=line.attempt if line is not None else None,
                    step_name=line.step_name if line is not None else None,
                    queued=line.queued if line is not None else 0,
                    step_age=line.step_age if line is not None else None,
                    age=fact.age,
                    restarts=slot.restarts if slot is not None else 0,
                    cpu=fact.cpu,
                    rss=fact.rss,
                    progress=line.progress if line is not None else None,
                    message=line.message if line is not None else None,
                )
            )
        return infos

    def health(self, failure: ActorprocError | None) -> Health:
        """A report of a running engine; `failure` is why it is beyond help, if it is."""
        manager = self._engine.manager_status()
        slots = self._engine.slots()
        problems = [str(failure)] if failure is not None else []
        status = "running" if failure is None else "broken" if isinstance(failure, InternalError) else "failed"
        unwanted = manager.vacated if manager is not None else ()
        parked = _parked(slots, unwanted)
        if manager is None:
            if failure is None:
                problems.append("the manager does not answer")
            status = "broken"
        elif manager.storage_error is not None:
            down = manager.storage_down_for or 0.0
            problems.append(f"commits are refused since {down:.1f} s and retried: {manager.storage_error}")
            status = "storage-trouble" if failure is None else status
        elif failure is not None:
            pass
        elif not manager.dispatching:
            status = "stopping"
        elif manager.gated:
            status = "gated"
        elif manager.paused is not None:
            status = "paused"
        for reason in manager.damaged if manager is not None else ():
            problems.append(reason)
            status = "degraded" if status == "running" else status
        runs = status in {"running", "paused", "gated", "degraded"}
        for problem in _lacks(slots, parked, runs=runs):
            problems.append(problem)
            status = "degraded" if runs else status
        if manager is not None and manager.changed:
            problems.append(files_changed(manager.changed))
        problems += (*manager.schedules, *manager.enqueued) if manager is not None else ()
        retention = manager.retention if manager is not None else RetentionHealth()
        if retention.is_behind:
            problems.append(retention.in_words())
        hosts = self._engine.hosts()
        problems += [
            f"host {host.in_words()} has been silent for {host.silent_for:.0f} s"
            for host in hosts
            if host.state == "silent"
        ]
        return Health(
            status=status,
            problems=tuple(problems),
            slots=tuple(
                SlotHealth(
                    slot=slot.slot,
                    state=slot.state,
                    incarnation=slot.incarnation,
                    restarts=slot.restarts,
                    reason=slot.reason,
                )
                for slot in slots
            ),
            busy=sum(line.procedure is not None for line in manager.workers) if manager is not None else 0,
            queued=sum(line.queued for line in manager.workers) if manager is not None else 0,
            commits=manager.commits if manager is not None else 0,
            last_commit=manager.last_commit if manager is not None else 0.0,
            slowest_commit=manager.slowest_commit if manager is not None else 0.0,
            stale_results=manager.stale_results if manager is not None else 0,
            paused=manager.paused if manager is not None else None,
            limits=self._engine.host.limits,
            process_limits=self._engine.host.process_limits,
            types=manager.types if manager is not None else (),
            retention=retention,
            hosts=hosts,
        )

    def metrics(self, now: float, failure: ActorprocError | None, *, whole: bool) -> Metrics:
        """All counters at `now`; `whole`: with what takes a look at all procedures that have not ended."""
        found = self._engine.metrics()
        size = self._store.size()
        manager, slots = self._engine.manager_status(), self._engine.slots()
        workers = {id.slot: fact for id, fact in sorted(self._engine.pool.facts().items()) if id.slot >= 0}
        unfinished = unfinished_figures(self._store, now) if whole else None
        health = self.health(failure)
        return Metrics(
            at=now,
            uptime=found.uptime,
            procedures=found.procedures,
            steps=found.steps,
            named_steps=found.named_steps,
            replayed=found.replayed,
            stale_results=found.stale_results,
            lost_commits=found.lost_commits,
            epoch=self._store.epoch,
            leads=found.lead.leads,
            takeovers=found.lead.takeovers,
            deposed=found.lead.deposed,
            late_renewals=found.lead.late_renewals,
            regained_locks=found.lead.regained_locks,
            store_round_trip=found.lead.store_round_trip,
            hosts=health.hosts,
            host_losses=found.host_losses,
            adopted_steps=found.adopted_steps,
            link_resumes=found.link_resumes,
            spans_dropped=found.spans_dropped,
            clock_jumps=found.clock_jumps,
            commits=found.commits,
            queued=found.queued,
            in_hand=found.in_hand,
            lock_waiting=found.lock_waiting,
            workers=found.workers,
            workers_busy=found.workers_busy,
            worker_restarts=sum(slot.restarts for slot in slots),
            slots_parked=len(_parked(slots, manager.vacated if manager is not None else ())),
            store_bytes=size.file,
            store_used_bytes=size.used,
            store_procedures=size.procedures,
            watchers=found.watchers,
            events_lost=found.events_lost,
            retention_backlog=found.retention.backlog,
            retention_lag=found.retention.lag,
            version=_version(),
            python=platform.python_version(),
            health=health.status,
            commit_trouble=(manager.storage_down_for or 0.0) if manager is not None else 0.0,
            poisoned_keys=len(self._store.poisons()),
            queue_age=found.queue_age,
            control_clients=found.clients,
            worker_deaths=found.deaths,
            worker_cpu={slot: fact.cpu for slot, fact in workers.items() if fact.cpu is not None},
            worker_resident={slot: fact.rss for slot, fact in workers.items() if fact.rss is not None},
            states={str(state): count for state, count in self._store.count_states().items()} if whole else None,
            phases=unfinished.phases if unfinished is not None else None,
            oldest_unfinished=unfinished.oldest if unfinished is not None else None,
            **found.histograms,
        )


def _lacks(slots: Sequence[SlotStatus], parked: Sequence[SlotStatus], *, runs: bool) -> list[str]:
    """Sentences about workers that are not there; without a slot in a manager that `runs` its machine runs no steps."""
    if runs and not slots:
        return ["no host has joined, and this manager runs no steps itself (workers=0)"]
    return [f"worker slot {slot.slot} is parked: {slot.reason}" for slot in parked]


def _parked(slots: Iterable[SlotStatus], unwanted: Container[int]) -> list[SlotStatus]:
    """Slots that rest, as their workers failed too often, and that are wanted."""
    return [slot for slot in slots if slot.state == "parked" and slot.slot not in unwanted]


@functools.cache
def _version() -> str:
    """The version of this package, as it was installed."""
    from importlib import metadata  # noqa: PLC0415 - costs more than a look at a store

    try:
        return metadata.version("actorproc")
    except metadata.PackageNotFoundError:
        return "0+unknown"


def _shown_waiter(waiter: LockWaiter, mode: LockMode) -> LockWaiterInfo:
    return LockWaiterInfo(waiter.procedure, mode_name(mode), waiter.ticket)


def _growing(heads: dict[str, ProcedureRecord]) -> Iterator[str]:
    """The keys of a dictionary that grows meanwhile, in order."""
    seen = 0
    while seen < len(heads):
        for name in list(itertools.islice(heads, seen, None)):
            seen += 1
            yield name


def _chunks(records: list[ProcedureRecord]) -> Iterator[tuple[ProcedureRecord, ...]]:
    return (tuple(records[start : start + _CHUNK]) for start in range(0, len(records), _CHUNK))


def _belongs(entry: LogEntry, record: ProcedureRecord) -> bool:
    """Not to a procedure of the same id that was deleted; clocks may differ by a little."""
    return entry.at >= record.created_at - 1.0
