"""Old and new code side by side, while workers are replaced one by one.

A procedure whose step was handed to a worker with new code goes to no worker with the old. The old code may be unable
to read its state, or its notes. New is whichever worker came after the beginning; when the older code comes back, it
is the new one. When the replacement is given up half-way, nothing waits for a worker that may never come: what the old
code cannot read is parked then. Nothing here is stored: after a restart all workers are alike. Memory that is made anew
after a failed commit takes it over from the one before, as its workers live on.
"""

from __future__ import annotations

from actorproc.core.queues.worker_table import Worker
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.workers import WorkerState
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.events import ReloadBegan

__all__ = ["begin", "gone", "open_to", "take_over"]


def begin(state: EngineState, event: ReloadBegan) -> None:
    """All workers that are there now have old code; or that matters no more."""
    state.workers.begin_reload(() if event.is_over else (one.id for one in state.workers.table.workers.values()))
    state.decision.command(Reply(event.reply, value=True))


def gone(workers: WorkerState, worker: Worker) -> None:
    """A worker is gone; with the last one of old code no procedure needs to be kept from any."""
    workers.outdated.discard(worker.id)
    if not workers.outdated:
        workers.renewed.clear()


def take_over(workers: WorkerState, before: EngineState) -> None:
    """Take over which workers have old code, and which procedures new code was handed, from the memory before."""
    workers.begin_reload(before.workers.outdated, before.workers.renewed)


def open_to(workers: WorkerState, procedure: str, among: list[Worker] | None) -> list[Worker] | None:
    """Of these workers (None: all) those that may get a step of this procedure."""
    if procedure not in workers.renewed:
        return among
    found = workers.table.workers.values() if among is None else among
    return [worker for worker in found if worker.id not in workers.outdated]
