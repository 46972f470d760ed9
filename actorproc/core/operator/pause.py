"""Pauses: of one procedure with all that is below it, and of the whole manager. Both are durable.

A running step goes on to its end, and its result counts; then nothing of the subtree is handed out, neither forward
nor back, until the pause is lifted. Time goes on: a sleep or a wait that is over stays over, a deadline is a deadline.
Locks that are held stay held; a paused waiter leaves the queue, so that it holds up no other, and joins it again.
"""

from __future__ import annotations

from actorproc.core.lock_manager import acquire
from actorproc.core.scheduler.cancellation import take_back
from actorproc.core.scheduler.schedule import go_on
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.quarantine import error_of
from actorproc.errors import UnknownProcedure
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.events import PauseRequested, ResumeRequested
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import TERMINAL

__all__ = ["request_pause", "request_resume"]

_NO_REASON = "on request"


def request_pause(book: EngineState, event: PauseRequested) -> None:
    """Hand out nothing more of a procedure and what is below it, or of all; False when the procedure has ended."""
    if event.id is None:
        book.paused = event.reason or _NO_REASON
        book.audit(None, "pause", event.reason)
        book.command(Reply(event.reply, value=True))
        return
    record = _find(book, event.id, event.reply)
    if record is None:
        return
    if record.state in TERMINAL:
        book.command(Reply(event.reply, value=False))
        return
    tree = book.tree_of(record)
    record.paused = event.reason or _NO_REASON
    tree.note_still(record)
    book.audit(record, "pause", event.reason)
    for member in tree.below(record.id):
        book.ready.discard(member.id)
        if book.locks.is_waiting(member.id):
            acquire.withdraw(book, member)
            member.ticket = 0
            book.touch(member)
        take_back(book, member)
    book.command(Reply(event.reply, value=True))


def request_resume(book: EngineState, event: ResumeRequested) -> None:
    """Lift a pause; False when there was none. A pause of an ancestor, or of the whole manager, is another one."""
    if event.id is None:
        was_paused = book.paused is not None
        book.paused = None
        if was_paused:
            book.audit(None, "resume", event.reason)
        book.command(Reply(event.reply, value=was_paused))
        return
    record = _find(book, event.id, event.reply)
    if record is None:
        return
    was_paused = record.paused is not None
    if was_paused:
        tree = book.tree_of(record)
        record.paused = None
        tree.note_still(record)
        book.audit(record, "resume", event.reason)
        acquire.has_retaken(book, tree)
        go_on(book, tree, record.id)
    book.command(Reply(event.reply, value=was_paused))


def _find(book: EngineState, id: str, reply: int) -> ProcedureRecord | None:
    record = book.procs.get(id)
    if record is None:
        error = error_of(book, id) or UnknownProcedure(f"no procedure has the id {id!r}")
        book.command(Reply(reply, error=error))
    return record
