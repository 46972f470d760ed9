"""Placement: which workers a step may go to that asks for labels or resources of a host.

Steps of one demand wait in a lane of their own. While no host has room for it the lane is passed over, and keeps none
of the others waiting: neither in the run queue nor for slots. When a host has room and only a worker is missing, one
worker of such a host gets nothing else until it is free.
"""

from __future__ import annotations

from actorproc.core.queues.host_table import Demand, demand_of
from actorproc.core.queues.run_queue import OWN_CLASS
from actorproc.core.queues.worker_table import InHand, Worker
from actorproc.core.scheduler.lone_steps import has_host_alone
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.workers import WorkerState
from actorproc.model.rows.records import ProcedureRecord

__all__ = [
    "could_go_to",
    "demand_in",
    "is_passed_over",
    "keep_worker_for",
    "labels_alone",
    "lane_of",
    "leave_to_others",
    "note_demand",
    "on_hosts",
    "share_of",
]

_SEPARATOR = "\0"


def lane_of(work_class: str, demand: Demand) -> str:
    """The lane in which steps of a class of work with this demand wait."""
    return f"{work_class}{_SEPARATOR}{demand.key}"


def share_of(lane: str) -> str:
    """The class of work, which has a share of the workers, of those in this lane."""
    return lane.partition(_SEPARATOR)[0]


def demand_in(lane: str) -> str:
    """The key of the demand of those in this lane; empty when they have none."""
    return "" if lane == OWN_CLASS else lane.partition(_SEPARATOR)[2]


def note_demand(state: EngineState, demand: Demand, record: ProcedureRecord) -> None:
    """A procedure with this demand waits; if no host offers it, that is to be told."""
    if state.workers.table.hosts.note(demand, record.id):
        state.types.count_parking()


def is_passed_over(state: EngineState, lane: str) -> bool:
    """True while no host has room for the steps in this lane."""
    key = demand_in(lane)
    if not key:
        return False
    hosts = state.workers.table.hosts
    lone = hosts.lone.get(key)
    if lone is not None:
        return not has_host_alone(state.workers, lone.alone)
    if not hosts.is_blocked(key):
        return False
    if key not in hosts.unoffered:  # it may have been offered when those in the lane came
        first = state.queues.run_queue.peek(lane) or state.queues.key_limits.peek(lane, state.decision.now)
        if first is not None and hosts.note_again(key, first[1]):
            state.types.count_parking()
    return True


def on_hosts(workers: WorkerState, demand: Demand, among: list[Worker] | None) -> list[Worker]:
    """Of these workers (None: all) those on hosts that have room for such a step."""
    if among is None:
        first = workers.table.first_idle()
        if first is not None and workers.table.hosts.has_room(first.host, demand):
            return [first]
        for host, there in workers.table.by_host.items():
            if workers.table.hosts.has_room(host, demand):
                idle = [one for one in there.values() if not one.queue and not one.leaving and one.reserved is None]
                if idle:
                    return idle
    found = workers.table.workers.values() if among is None else among
    rooms: dict[str, bool] = {}
    for worker in found:
        if worker.host not in rooms:
            rooms[worker.host] = workers.table.hosts.has_room(worker.host, demand)
    return [worker for worker in found if rooms[worker.host]]


def labels_alone(workers: WorkerState, demand: Demand | None) -> Demand | None:
    """The demand of a question about an abort: the labels and the code of its step, if any host has them."""
    if demand is None or not (demand.labels or demand.code):
        return None
    asked = demand_of(sorted(demand.labels), {}, demand.code)
    return asked if asked is not None and workers.table.hosts.is_offered(asked) else None


def leave_to_others(
    workers: WorkerState, record: ProcedureRecord, kept: dict[str, int], among: list[Worker] | None
) -> list[Worker] | None:
    """Of these workers (None: all) those for a step that runs anywhere.

    Not those that are kept for others; and, while they are idle, rather those on hosts that offer nothing.
    """
    hosts = workers.table.hosts
    if kept or hosts.kept:
        slots = set(kept.values())
        found = workers.table.workers.values() if among is None else among
        among = [one for one in found if one.id.slot not in slots and not hosts.is_kept_from(one.host, record.id)]
    if not hosts.differ:
        return among
    warm = workers.warm.get(record.id)
    if warm is not None and (there := workers.table.find(warm)) is not None and not there.queue:
        return among
    found = workers.table.workers.values() if among is None else among
    idle = [
        worker
        for worker in found
        if not worker.queue and worker.reserved is None and not worker.leaving and hosts.is_plain(worker.host)
    ]
    return idle or among


def keep_worker_for(workers: WorkerState, lane: str, demand: Demand, kept: dict[str, int]) -> None:
    """A step waits only for a worker: keep the one for it, on a host that has room, that has least to do."""
    if lane in kept:
        return
    slots = set(kept.values())
    found = [
        worker
        for worker in on_hosts(workers, demand, workers.table.for_all())
        if worker.id.slot not in slots and not worker.threaded
    ]
    if found:
        kept[lane] = min(found, key=lambda worker: (worker.load, worker.id.slot)).id.slot


def could_go_to(workers: WorkerState, item: InHand, holder: Worker, other: Worker) -> bool:
    """True if a step that one worker has in hand may be given to another one."""
    demand = item.demand
    if demand is None:
        return not workers.table.hosts.is_kept_from(other.host, item.token.procedure)
    if other.host == holder.host:
        return True
    return workers.table.hosts.has_room(other.host, demand)
