"""Lanes in which procedures wait: they change when a type is registered, or when other hosts have its code."""

from __future__ import annotations

from operator import attrgetter

from actorproc.core.scheduler.dedicated import join_host, leave_host
from actorproc.core.scheduler.schedule import wake
from actorproc.core.state.engine_state import EngineState
from actorproc.model.messages.events import HostAdded, HostRemoved

__all__ = ["on_joined", "on_left", "queue_again"]


def on_joined(state: EngineState, event: HostAdded) -> None:
    """A host is there, or offers something else now: what waits for that can be handed out."""
    join_host(state, event)
    _divide(state)


def on_left(state: EngineState, event: HostRemoved) -> None:
    """A host is gone; of some types all others may have the code."""
    leave_host(state, event)
    _divide(state)


def _divide(state: EngineState) -> None:
    """Types that not all hosts have the code of wait for one that has; their cold procedures when it is their turn."""
    divided = state.workers.table.hosts.divided
    if divided != state.types.divided:
        for type_name in state.types.divide(divided):
            queue_again(state, type_name, with_cold=False)


def queue_again(state: EngineState, type_name: str, *, with_cold: bool = True) -> None:
    """A class is of another class of work now, or has its own workers: what waits for one waits with that."""
    cold = state.queues.run_queue.cold.values() if with_cold else ()
    left_alone = [record for record in cold if record.type_name == type_name]
    for record in left_alone:
        state.residents.make_resident(record)
    names = (*state.queues.run_queue.names(), *state.queues.key_limits.names(), *state.queues.awaiting_worker.names())
    waiting = [record for name in names if (record := state.residents.procs[name]).type_name == type_name]
    if left_alone:  # one of them may stand in the queue, behind newcomers
        waiting += [state.residents.procs[record.id] for record in left_alone]
        waiting.sort(key=attrgetter("seq"))
    for record in waiting:
        state.queues.run_queue.discard(record.id)
        wake(state, record)
