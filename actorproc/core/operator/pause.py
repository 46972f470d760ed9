"""Pauses: of one procedure with all that is below it, and of the whole manager. Both are durable.

A running step goes on to its end, and its result counts; then nothing of the subtree is handed out, neither forward
nor back, until the pause is lifted. Time goes on: a sleep or a wait that is over stays over, a deadline is a deadline.
Locks that are held stay held; a paused waiter leaves the queue, so that it holds up no other, and joins it again.
"""

from __future__ import annotations

from actorproc.core.lock_manager import acquire
from actorproc.core.scheduler.cancellation import take_back
from actorproc.core.scheduler.schedule import end_debounces, go_on
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.quarantine import error_of
from actorproc.errors import UnknownProcedure
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.events import PauseRequested, ResumeRequested
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import TERMINAL

__all__ = ["request_pause", "request_resume"]

_NO_REASON = "on request"


def request_pause(state: EngineState, event: PauseRequested) -> None:
    """Hand out nothing more of a procedure and what is below it, or of all; False when the procedure has ended."""
    if event.id is None:
        state.switches.pause(event.reason or _NO_REASON)
        state.audit(None, "pause", event)
        state.decision.command(Reply(event.reply, value=True))
        return
    record = _find(state, event.id, event.reply)
    if record is None:
        return
    if record.state in TERMINAL:
        state.decision.command(Reply(event.reply, value=False))
        return
    tree = state.residents.tree_of(record)
    record.paused = event.reason or _NO_REASON
    tree.note_still(record)
    state.audit(record, "pause", event)
    for member in tree.below(record.id):
        state.queues.run_queue.discard(member.id)
        if state.locks.table.is_waiting(member.id):
            acquire.withdraw(state, member)
            member.ticket = 0
            state.decision.touch(member)
        take_back(state, member)
    state.decision.command(Reply(event.reply, value=True))


def request_resume(state: EngineState, event: ResumeRequested) -> None:
    """Lift a pause; False when there was none. A pause of an ancestor, or of the whole manager, is another one."""
    if event.id is None:
        was_paused = state.switches.paused is not None
        state.switches.pause(None)
        if was_paused:
            state.audit(None, "resume", event)
        if state.switches.hands_out:
            end_debounces(state)
        state.decision.command(Reply(event.reply, value=was_paused))
        return
    record = _find(state, event.id, event.reply)
    if record is None:
        return
    was_paused = record.paused is not None
    if was_paused:
        tree = state.residents.tree_of(record)
        record.paused = None
        tree.note_still(record)
        state.audit(record, "resume", event)
        acquire.has_retaken(state, tree)
        go_on(state, tree, record.id)
    state.decision.command(Reply(event.reply, value=was_paused))


def _find(state: EngineState, id: str, reply: int) -> ProcedureRecord | None:
    record = state.residents.procs.get(id)
    if record is None:
        error = error_of(state.damage, id) or UnknownProcedure(f"no procedure has the id {id!r}")
        state.decision.command(Reply(reply, error=error))
    return record
