"""Steps that run alone on their host: those that were lost with three hosts in a row.

Such a step may be what takes its hosts along, by the memory that it uses. So a host is kept for it. Steps that run
there end first, those that have not begun are given back, and no others are handed out there until it has ended. The
machine of the manager is never taken: its loss would be the manager's.
"""

from __future__ import annotations

from actorproc.core.queues.host_table import Demand
from actorproc.core.queues.worker_table import Worker
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.head import runs_alone
from actorproc.core.state.parts.workers import WorkerState
from actorproc.model.messages.commands import TakeBack

__all__ = ["has_host_alone", "is_host_free_for", "seat_lone_steps", "why_alone"]


def seat_lone_steps(state: EngineState) -> None:
    """Keep a host for each step that is to run alone, where there is one; release those that are not waited for."""
    hosts = state.workers.table.hosts
    for key, demand in list(hosts.lone.items()):
        if not _is_wanted(state, demand.alone):
            del hosts.lone[key]
            hosts.release(demand.alone)
            continue
        if demand.alone in state.queues.key_limits and not _has_slots(state, demand.alone):
            hosts.release(demand.alone)
            continue
        name = hosts.kept.get(demand.alone)
        if name is not None and hosts.is_draining(name) and demand.alone not in state.workers.table.in_hand:
            hosts.release(demand.alone)
            name = None
        if name is None and (name := _best_host(state.workers, demand)) is not None:
            hosts.keep(name, demand.alone)
            _give_back_behind(state, name)


def _is_wanted(state: EngineState, procedure: str) -> bool:
    """It runs, or waits for nothing but a worker, a host or slots."""
    record, queues = state.residents.procs.get(procedure), state.queues
    if record is None or not runs_alone(record):
        return False
    return (
        procedure in state.workers.table.in_hand
        or procedure in queues.run_queue
        or procedure in queues.key_limits
        or procedure in queues.awaiting_worker
    )


def _has_slots(state: EngineState, procedure: str) -> bool:
    """True if the slots are free that this one waits for, and it is its turn: no host stays idle for it before."""
    limits = state.queues.key_limits
    turns = (limits.peek(lane, state.decision.now) for lane in limits.classes())
    return any(first is not None and first[1] == procedure for first in turns)


def _best_host(workers: WorkerState, demand: Demand) -> str | None:
    """The host that gets free first, as far as can be told: the one where the fewest steps run."""
    found = []
    for host in workers.table.hosts.hosts.values():
        there = [worker for worker in workers.table.by_host.get(host.name, {}).values() if not worker.leaving]
        if there and host.name and not (host.draining or host.kept_for) and host.offers(demand):
            found.append((sum(bool(worker.queue) for worker in there), host.name))
    return min(found)[1] if found else None


def _give_back_behind(state: EngineState, host: str) -> None:
    """Steps that workers of this host have in hand, and that have not begun, go elsewhere."""
    for worker in _on(state.workers, host):
        behind = state.workers.table.waiting_behind(worker)
        for item in behind:
            item.recalled = True
        if behind:
            state.decision.command(TakeBack(worker.id, tuple(item.token for item in behind)))


def _on(workers: WorkerState, host: str) -> list[Worker]:
    return list(workers.table.by_host.get(host, {}).values())


def has_host_alone(workers: WorkerState, procedure: str) -> bool:
    """True if a host is kept for this procedure, and no other one has a step there."""
    host = workers.table.hosts.kept.get(procedure)
    return host is not None and _steps_of_others(workers, host, procedure) == 0


def is_host_free_for(workers: WorkerState, host: str, procedure: str) -> bool:
    """True if a host is not kept for another procedure; nor for this one while steps of others still run there."""
    hosts = workers.table.hosts
    if not hosts.kept:
        return True
    if hosts.is_kept_from(host, procedure):
        return False
    return hosts.kept.get(procedure) != host or has_host_alone(workers, procedure)


def _steps_of_others(workers: WorkerState, host: str, procedure: str) -> int:
    return sum(len(worker.queue) - (procedure in worker.queue) for worker in _on(workers, host))


def why_alone(workers: WorkerState, demand: Demand) -> str:
    """The sentence about what keeps a step waiting that is to run alone."""
    hosts = workers.table.hosts
    wish = f"{demand.words} that it has for itself" if demand.words else "to itself"
    says = f"for a host {'with ' if demand.words else ''}{wish}: its host was lost three times, so it runs alone"
    name = hosts.kept.get(demand.alone)
    if name is None:
        return f"{says}; none has joined that is free for that, and the manager's machine is not taken"
    count = _steps_of_others(workers, name, demand.alone)
    return f"{says}; {count} step{'' if count == 1 else 's'} still run{'s' if count == 1 else ''} on host {name}"
