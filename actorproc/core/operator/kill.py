"""End of one attempt, on an operator's word: the worker of a running step is killed, and the step runs again.

It is charged to no counter and undoes nothing. A step that waits in a worker behind another is taken back instead.
"""

from __future__ import annotations

from actorproc.core.scheduler.cancellation import KILLED, stop_forced
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.quarantine import error_of
from actorproc.errors import UnknownProcedure
from actorproc.model.ids import Mode
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.events import KillRequested
from actorproc.model.names import step_in_words

__all__ = ["request_kill"]


def request_kill(state: EngineState, event: KillRequested) -> None:
    """End the attempt that a worker has in hand; False when there is none."""
    record = state.residents.procs.get(event.id)
    if record is None:
        error = error_of(state.damage, event.id) or UnknownProcedure(f"no procedure has the id {event.id!r}")
        state.decision.command(Reply(event.reply, error=error))
        return
    worker = state.workers.table.in_hand.get(record.id)
    item = None if worker is None else worker.queue[record.id]
    if worker is None or item is None or item.token.mode is Mode.ASK_ABORT:
        state.decision.command(Reply(event.reply, value=False))
        return
    token = item.token
    where = f"{step_in_words(token.step, record.current_name)}, attempt {token.attempt}"
    state.audit(record, "kill", event, where)
    if item.forced is None:  # else it ends for another reason, which decides what comes next
        item.forced = KILLED
        stop_forced(state, worker, item)
    state.decision.command(Reply(event.reply, value=True))
