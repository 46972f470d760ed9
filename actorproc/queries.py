"""The reading side of a manager: what is stored, joined with what only the live engine knows."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterable
from typing import Protocol

from actorproc.actors.callers import children_by_state
from actorproc.actors.messages import Described, Ending, ManagerStatus, SlotStatus
from actorproc.core.lock_report import WaitersByNode
from actorproc.core.lock_table import LockWaiter
from actorproc.errors import ActorprocError, EngineError, InternalError, StoreDamaged, UnknownProcedure
from actorproc.info import (
    Health,
    LockInfo,
    LockWaiterInfo,
    PoisonInfo,
    ProcedureInfo,
    SlotHealth,
    info_of,
    lock_info_of,
    mode_name,
    poison_info_of,
)
from actorproc.model.ids import check_id
from actorproc.model.records import LockRecord, ProcedureRecord, StepRecord
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.store.base import ProcedureStore
from actorproc.workers.base import WorkerInfo, WorkerPool

__all__ = ["Engine", "Queries"]

_CHUNK = 256
"""Heads described in one message to the manager, so that a long list does not hold it up."""


class Engine(Protocol):
    """A running engine, as queries use it."""

    store: ProcedureStore
    pool: WorkerPool

    def describe(self, records: tuple[ProcedureRecord, ...]) -> tuple[Described, ...]:
        """The live view of these heads."""
        ...

    def lock_waiters(self) -> list[LockWaiter]:
        """Procedures that wait for locks, in the order of the queue."""
        ...

    def dangling_locks(self) -> list[tuple[LockRecord, str]]:
        """Stored locks that nobody will give up or that memory does not know so, with the reason."""
        ...

    def manager_status(self) -> ManagerStatus | None:
        """The manager's report; None when it does not answer."""
        ...

    def slots(self) -> tuple[SlotStatus, ...]:
        """The supervisor's report; empty when it does not answer."""
        ...


class Queries:
    """Reads for callers, in their own threads."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._store = engine.store

    def head(self, id: str) -> ProcedureRecord:  # noqa: A002 - a procedure id
        """The stored head; raises `UnknownProcedure`, and `InvalidId` for what can be no id."""
        record = self._store.procedure(check_id(id))
        if record is None:
            msg = f"no procedure has the id {id!r}"
            raise UnknownProcedure(msg)
        return record

    def ending(self, id: str) -> Ending | None:  # noqa: A002
        """How a procedure ended; None when it has not, or when the store cannot say so now."""
        try:
            record = self._store.procedure(id)
            if record is None or record.state not in TERMINAL:
                return None
            return Ending(record, self._store.step(id, record.records))
        except EngineError:
            return None

    def info(self, id: str) -> ProcedureInfo:  # noqa: A002
        """One procedure as it is now."""
        return self._infos((self.head(id),))[0]

    def listed(
        self,
        *,
        state: ProcedureState | None,
        type_name: str | None,
        root: str | None,
        tag: str | None,
        owner: str | None,
        limit: int | None,
        after: str | None,
    ) -> list[ProcedureInfo]:
        """Procedures in submit order that match all given filters."""
        _check_filters(limit, {"type_name": type_name, "tag": tag, "owner": owner})
        for name in (root, after):
            if name is not None:
                check_id(name)
        heads: Iterable[ProcedureRecord] = self._store.scan(
            state=state, type_name=type_name, root=root, tag=tag, after=after, skip_damaged=True
        )
        if owner is not None:
            heads = (head for head in heads if head.owner == owner)
        found = list(itertools.islice(heads, limit))
        infos: list[ProcedureInfo] = []
        for start in range(0, len(found), _CHUNK):
            infos += self._infos(tuple(found[start : start + _CHUNK]))
        return infos

    def _infos(self, records: tuple[ProcedureRecord, ...]) -> list[ProcedureInfo]:
        return [
            info_of(seen.record, seen.phase, seen.reason, children_by_state(self._store, seen.record), seen.progress)
            for seen in self._engine.describe(records)
        ]

    def steps(self, id: str) -> list[StepRecord]:  # noqa: A002
        """The step log."""
        self.head(id)
        return self._store.steps(id)

    def locks(self, now: float) -> list[LockInfo]:
        """The lock table at `now`, with the live queues."""
        queue = WaitersByNode(self._engine.lock_waiters())
        head_of = functools.cache(self._head_or_none)
        return [
            lock_info_of(
                lock,
                head_of(lock.holder),
                now,
                waiters=tuple(
                    LockWaiterInfo(waiter.procedure, mode_name(mode), waiter.ticket) for waiter, mode in queue.of(lock)
                ),
            )
            for lock in self._store.locks()
        ]

    def dangling_locks(self, now: float) -> list[LockInfo]:
        """Locks that nobody will give up, or of which store and memory disagree, each with its reason."""
        return [
            lock_info_of(lock, self._head_or_none(lock.holder), now, reason=reason)
            for lock, reason in self._engine.dangling_locks()
        ]

    def _head_or_none(self, id: str) -> ProcedureRecord | None:  # noqa: A002
        """The stored head; None too when it cannot be read."""
        try:
            return self._store.procedure(id)
        except StoreDamaged:
            return None

    def poisons(self) -> list[PoisonInfo]:
        """The poisoned keys."""
        return [poison_info_of(poison) for poison in self._store.poisons()]

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
        parked = [slot for slot in slots if slot.state == "parked"]
        if manager is None:
            if failure is None:
                problems.append("the manager does not answer")
            status = "broken"
        elif manager.storage_error is not None:
            down = manager.storage_down_for or 0.0
            problems.append(f"commits are refused since {down:.1f} s and retried: {manager.storage_error}")
            status = "storage-trouble" if failure is None else status
        elif not manager.dispatching and failure is None:
            status = "paused"
        for reason in manager.damaged if manager is not None else ():
            problems.append(reason)
            status = "degraded" if status == "running" else status
        for slot in parked:
            problems.append(f"worker slot {slot.slot} is parked: {slot.reason}")
            status = "degraded" if status in {"running", "paused"} else status
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
        )


def _check_filters(limit: object, texts: dict[str, object]) -> None:
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 0):
        msg = f"list(limit=…) is a number of procedures, at least 0, or None, not {limit!r:.60}"
        raise ValueError(msg)
    for name, text in texts.items():
        if text is not None and not isinstance(text, str):
            msg = f"list({name}=…) is a string or None, not {text!r:.60}"
            raise TypeError(msg)
