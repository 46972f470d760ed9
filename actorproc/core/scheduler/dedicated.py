"""Workers that belong to one procedure, and workers that leave.

A procedure with ``Limits.dedicated`` runs its steps in a worker that runs nothing else. The worker is asked for when
the first step is due, stays while the procedure waits or sleeps, and is stopped at its end. When it dies, another one
is asked for with the next step. There are at most ``Quotas.dedicated`` of them; the others wait in the order they
came. None of this is stored: after a restart the workers are asked for again.
"""

from __future__ import annotations

import msgspec

from actorproc.core.queues.host_table import ANY_HOST, Demand
from actorproc.core.queues.worker_table import Worker
from actorproc.core.scheduler.lone_steps import is_host_free_for
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.decision import PendingDecision
from actorproc.core.state.parts.residents import ResidentSet
from actorproc.core.state.step_limits import known_limits_of
from actorproc.model.ids import WorkerId
from actorproc.model.messages.commands import StartWorker, StopWorker, TakeBack
from actorproc.model.messages.events import HostAdded, HostDraining, HostRemoved, WorkerLeaving, WorkerReady
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import TERMINAL

__all__ = [
    "can_go_on",
    "hire_for",
    "join",
    "join_host",
    "leave_host",
    "let_finished_go",
    "on_draining",
    "on_leaving",
    "own_worker",
    "say_goodbye",
    "was_lost",
]


def join(state: EngineState, event: WorkerReady) -> ProcedureRecord | None:
    """A worker takes steps now; the procedure that waited for this one, if any.

    A worker for a procedure that has ended meanwhile is stopped again.
    """
    worker = state.workers.table.add(
        event.worker, state.decision.now, event.pid, reserved=event.reserved, leaving=event.leaving, host=event.host
    )
    if state.workers.table.hosts.is_draining(event.host):
        _dismiss(state.decision, worker)
    procedure = event.reserved
    if procedure is None:
        return None
    state.workers.asked_of.pop(procedure, None)
    record = state.residents.procs.get(procedure)
    if procedure not in state.workers.hired or record is None:
        state.workers.hired.pop(procedure, None)
        _dismiss(state.decision, worker)
        return None
    state.workers.hired[procedure] = worker.id
    if procedure not in state.queues.awaiting_worker:
        return None
    state.queues.awaiting_worker.discard(procedure)
    return record


def own_worker(state: EngineState, record: ProcedureRecord, demand: Demand | None = None) -> Worker | None:
    """The dedicated worker of a procedure, if it is there and may get a step; else one is asked for."""
    hired = state.workers.hired.get(record.id)
    worker = state.workers.table.find(hired) if hired is not None else None
    if worker is None:
        hire_for(state, record.id)
        return None
    if worker.leaving or worker.queue or not is_host_free_for(state.workers, worker.host, record.id):
        return None
    if demand is None or state.workers.table.hosts.has_room(worker.host, demand):
        return worker
    hosts = state.workers.table.hosts
    is_elsewhere = bool(demand.alone) and hosts.kept.get(demand.alone, worker.host) != worker.host
    if is_elsewhere or not hosts.offers(worker.host, demand):
        _dismiss(state.decision, worker)  # its host offered that once; another one is asked when it is gone
    return None


def can_go_on(state: EngineState, record: ProcedureRecord) -> bool:
    """True if one that waits for a worker of its own can have it now that hosts have changed; else one is asked for."""
    demand = _demand_of(state, record.id)
    hired = state.workers.hired.get(record.id)
    worker = state.workers.table.find(hired) if hired is not None else None
    if worker is None:
        hire_for(state, record.id)
        return False
    if worker.queue or worker.leaving or not is_host_free_for(state.workers, worker.host, record.id):
        return False
    return demand is None or state.workers.table.hosts.has_room(worker.host, demand)


def hire_for(state: EngineState, procedure: str) -> None:
    """Ask for a worker for this procedure, unless there is one, one is coming, or there are too many.

    Nor while no host offers what it asks for.
    """
    if procedure not in state.workers.hired and len(state.workers.hired) < state.settings.quotas.dedicated:
        state.workers.hired[procedure] = None
        _start(state, procedure)


def _start(state: EngineState, procedure: str) -> None:
    demand = _demand_of(state, procedure)
    hosts = state.workers.table.hosts
    if demand is None and hosts.is_draining(""):  # the manager's machine runs no steps
        demand = ANY_HOST
    host = "" if demand is None else hosts.best_for(demand)
    if host is None:
        del state.workers.hired[procedure]
        return
    if demand is not None:
        state.workers.asked_of[procedure] = host
    state.decision.command(StartWorker(procedure, host))


def _demand_of(state: EngineState, procedure: str) -> Demand | None:
    record = state.residents.procs.get(procedure)
    if record is None or (record.limits is None and record.type_name not in state.types.metas):
        return None
    demand = known_limits_of(state.types, record).demand
    if demand is not None and demand.alone and procedure in state.follow_ups.asking:
        return msgspec.structs.replace(demand, alone="")  # a question about its abort needs no host for itself
    return demand


def let_finished_go(state: EngineState) -> None:
    """A procedure that has ended needs its worker no more."""
    for procedure in [name for name in state.workers.hired if _has_ended(state.residents, name)]:
        hired = state.workers.hired.pop(procedure)
        state.workers.asked_of.pop(procedure, None)
        worker = state.workers.table.find(hired) if hired is not None else None
        if worker is not None:
            _dismiss(state.decision, worker)
        _hire_next(state)


def _has_ended(residents: ResidentSet, procedure: str) -> bool:
    # A tree that left memory is finished, or cold: then its worker waits with it.
    record = residents.procs.get(procedure)
    return record is not None and record.state in TERMINAL and not record.undoing


def was_lost(state: EngineState, worker: Worker) -> None:
    """A dedicated worker died: its procedure gets another one when it has something to do."""
    if worker.reserved in state.workers.hired and state.workers.hired[worker.reserved] is None:
        # It was told to stop when its procedure asked for one, and while it lived nothing came of asking.
        _start(state, worker.reserved)
    if worker.reserved is None or state.workers.hired.get(worker.reserved) != worker.id:
        return
    del state.workers.hired[worker.reserved]
    if worker.reserved in state.queues.awaiting_worker:
        hire_for(state, worker.reserved)
    _hire_next(state)


def on_leaving(state: EngineState, event: WorkerLeaving) -> None:
    """A worker asked to be replaced: it ends what it has begun, gives back the rest, and is stopped."""
    worker = state.workers.table.find(event.worker)
    if worker is not None and not worker.leaving:
        _leave(state, worker)


def on_draining(state: EngineState, event: HostDraining) -> None:
    """A host's workers take no further step; each ends what it has begun, gives back the rest, and is stopped."""
    state.workers.table.hosts.drain(event.host)
    for worker in list(state.workers.table.workers.values()):
        if worker.host == event.host and not worker.leaving:
            _leave(state, worker)


def join_host(state: EngineState, event: HostAdded) -> None:
    """A host is there, or offers something else now."""
    table = state.workers.table
    is_new = event.host not in table.hosts.hosts
    table.hosts.join(event.host, event.labels, event.resources, event.other_code)
    if is_new:  # workers that an earlier leader had come before their host, with steps in hand
        table.take_in_hand(event.host)


def leave_host(state: EngineState, event: HostRemoved) -> None:
    """A host is gone, and the deaths of its workers follow; those that it was asked for a worker for ask another."""
    state.workers.table.hosts.leave(event.host)
    for worker in state.workers.table.by_host.get(event.host, {}).values():
        worker.leaving = worker.stopped = True  # else what one of them is lost with goes to the next
    for procedure in [name for name, host in state.workers.asked_of.items() if host == event.host]:
        del state.workers.asked_of[procedure]
        if state.workers.hired.get(procedure, event) is None:
            del state.workers.hired[procedure]


def _leave(state: EngineState, worker: Worker) -> None:
    worker.leaving = True
    behind = state.workers.table.waiting_behind(worker)
    for item in behind:
        item.recalled = True
    if behind:
        state.decision.command(TakeBack(worker.id, tuple(item.token for item in behind)))
    _stop_when_empty(state.decision, worker)


def say_goodbye(state: EngineState, name: WorkerId) -> None:
    """A step left a worker's hands: one that is leaving and has nothing more is stopped."""
    worker = state.workers.table.find(name)
    if worker is not None and worker.leaving:
        _stop_when_empty(state.decision, worker)


def _stop_when_empty(decision: PendingDecision, worker: Worker) -> None:
    if not worker.queue and not worker.stopped:
        worker.stopped = True
        decision.command(StopWorker(worker.id))


def _dismiss(decision: PendingDecision, worker: Worker) -> None:
    worker.leaving = True
    _stop_when_empty(decision, worker)


def _hire_next(state: EngineState) -> None:
    for procedure in state.queues.awaiting_worker.names():
        hire_for(state, procedure)
