"""Number of workers: extra ones while all the others are stuck in long steps, and a resize of the pool.

When every worker has been in its step for `stuck_after` seconds and work waits, one more is started, up to
`max_workers`. A worker that had nothing to do for `extra_worker_idle` seconds is retired while there are too many
(HBase's and IoTDB's keep-alive workers). Workers are anonymous: it is the number that counts, so after a stuck spell
any idle one may go, the highest slot first. Nothing here is stored; a restart begins with `workers`.
All of this is about the manager's own machine: a host has as many workers as it offers.
"""

from __future__ import annotations

from msgspec.structs import replace

from actorproc.core.queues.worker_table import Worker
from actorproc.core.scheduler.pick import wants_another_worker
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.workers import WorkerState
from actorproc.model.messages.commands import AddWorker, Reply, RetireWorker
from actorproc.model.messages.events import Resized, WorkerReady
from actorproc.model.slots import host_of

__all__ = ["joined", "left", "look_after", "next_look", "resize"]


def joined(state: EngineState, event: WorkerReady) -> None:
    """A worker is ready: an extra one that was ordered, or the next one of a slot that is known."""
    slot_plan = state.workers.slot_plan
    if event.reserved is not None or host_of(event.worker.slot):
        return
    if event.worker.slot not in slot_plan.slots:
        slot_plan.slots.add(event.worker.slot)
        slot_plan.ordered = max(0, slot_plan.ordered - 1)
    worker = state.workers.table.find(event.worker)
    if worker is None or worker.leaving:
        return
    if event.worker.slot in slot_plan.vacated:
        slot_plan.vacated.discard(event.worker.slot)
        _retire(state, worker)
    elif slot_plan.unwanted:
        slot_plan.unwanted -= 1
        _retire(state, worker)


def left(workers: WorkerState, worker: Worker) -> None:
    """A worker is gone; the slot of one that was retired goes with it."""
    if worker.id in workers.slot_plan.retired:
        workers.slot_plan.retired.discard(worker.id)
        workers.slot_plan.slots.discard(worker.id.slot)


def next_look(state: EngineState) -> float | None:
    """Time of the next look whether a worker is to be added or retired; kept until then, so that it moves no alarm."""
    limits, slot_plan = state.settings.scheduling, state.workers.slot_plan
    if not limits.workers:
        return None
    if slot_plan.look_at is None and _is_short(state):
        slot_plan.look_at = _stuck_at(state)
    if not _has_spare(state):
        return slot_plan.look_at
    times = [worker.active_at + limits.extra_worker_idle for worker in _idle(state.workers)]
    if slot_plan.look_at is not None:
        times.append(slot_plan.look_at)
    return min(times, default=None)


def look_after(state: EngineState) -> None:
    """Time passed: add a worker when all are stuck, retire those that are not needed any more."""
    slot_plan = state.workers.slot_plan
    due = next_look(state)
    if due is None or due > state.decision.now:
        return
    if slot_plan.look_at is not None and slot_plan.look_at <= state.decision.now:
        slot_plan.look_at = None
        if _is_short(state):
            stuck_at = _stuck_at(state)
            if stuck_at <= state.decision.now and all(worker.queue for worker in state.workers.table.for_all()):
                _add(state)
                slot_plan.look_at = state.decision.now + state.settings.scheduling.stuck_after
            else:
                slot_plan.look_at = max(stuck_at, state.decision.now + state.settings.scheduling.stuck_after / 8)
    for worker in _idle(state.workers):
        if _has_spare(state) and worker.active_at + state.settings.scheduling.extra_worker_idle <= state.decision.now:
            _retire(state, worker)


def resize(state: EngineState, event: Resized) -> None:
    """An operator wants another number of workers. Steps that run are finished where they run."""
    limits = state.settings.scheduling
    maximum = event.max_workers if event.max_workers is not None else limits.max_workers
    state.settings.reschedule(replace(limits, workers=event.workers, max_workers=max(maximum, event.workers)))
    if state.workers.table.hosts.is_draining(""):  # it ran no steps so far
        state.workers.table.hosts.leave("")
        state.workers.table.hosts.join("", (), {})
    slot_plan = state.workers.slot_plan
    slot_plan.vacated.clear()
    for _ in range(event.workers - len(slot_plan.slots) - slot_plan.ordered + len(slot_plan.retired)):
        _add(state)
    # Who is not there goes first: a slot that cannot boot any more must not be kept in the place of one that works.
    too_many = max(0, _surplus(state) + slot_plan.ordered)
    there = {worker.id.slot for worker in state.workers.table.workers.values()}
    slot_plan.vacated.update(sorted(slot_plan.slots - there, reverse=True)[:too_many])
    too_many -= len(slot_plan.vacated)
    # Of those that are there idle ones do; the others end the step they are in and give back what they have not begun.
    leave_first = sorted(_local(state.workers), key=lambda worker: (bool(worker.queue), -worker.id.slot))
    going = leave_first[: max(0, too_many - slot_plan.ordered)]
    for worker in going:
        _retire(state, worker)
    # Those that are still to come are too many as well.
    slot_plan.unwanted = too_many - len(going)
    state.decision.command(Reply(event.reply, value=True))


def _stuck_at(state: EngineState) -> float:
    """Time at which the last of the workers will have been silent for too long."""
    last = max((worker.active_at for worker in state.workers.table.for_all()), default=state.decision.now)
    return last + state.settings.scheduling.stuck_after


def _idle(workers: WorkerState) -> list[Worker]:
    return sorted((worker for worker in _local(workers) if not worker.queue), key=lambda worker: -worker.id.slot)


def _local(workers: WorkerState) -> list[Worker]:
    """Workers of the manager's own machine: those of hosts come and go with them."""
    return [worker for worker in workers.table.for_all() if not host_of(worker.id.slot)]


def _surplus(state: EngineState) -> int:
    slot_plan = state.workers.slot_plan
    return len(slot_plan.slots) - len(slot_plan.vacated) - len(slot_plan.retired) - state.settings.scheduling.workers


def _has_spare(state: EngineState) -> bool:
    """True if an idle worker may go: as many as there should be are ready without it."""
    return _surplus(state) > 0 and len(_local(state.workers)) > state.settings.scheduling.workers


def _is_short(state: EngineState) -> bool:
    """One more worker may be added, and would have something to do."""
    slot_plan = state.workers.slot_plan
    may_add = len(slot_plan.slots) - len(slot_plan.vacated) + slot_plan.ordered < state.settings.scheduling.max_workers
    return may_add and state.switches.hands_out and wants_another_worker(state)


def _add(state: EngineState) -> None:
    state.workers.slot_plan.ordered += 1
    state.decision.command(AddWorker())


def _retire(state: EngineState, worker: Worker) -> None:
    worker.leaving = True
    worker.stopped = True
    state.workers.slot_plan.retired.add(worker.id)
    state.decision.command(RetireWorker(worker.id))
