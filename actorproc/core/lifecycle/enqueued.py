"""Procedures that applications enqueued in transactions of their own: taken out, or kept with the reason.

A row is deleted in the commit that creates its procedure, so neither a death nor a change of leaders makes two of it,
or none.
"""

from __future__ import annotations

from msgspec.structs import replace

from actorproc.core.lifecycle.submit import judged, place, take_in, too_many
from actorproc.core.state.engine_state import EngineState
from actorproc.model.messages.commands import Reply
from actorproc.model.messages.events import EnqueuedFound, EnqueuedRemoved
from actorproc.model.rows.enqueued import EnqueuedRecord, refused_key
from actorproc.model.rows.records import NewProcedure
from actorproc.model.rows.writes import DeleteEnqueued, PutEnqueued

__all__ = ["remove", "take"]


def take(state: EngineState, event: EnqueuedFound) -> None:
    """Create the procedures of these rows, each for itself; a refused row is kept.

    Rows stay as they are where no more procedures may be unfinished, and where an earlier one of these has the id.
    """
    accepted: list[NewProcedure] = []
    restarted: list[str] = []
    names: set[str] = set()
    for row in event.rows:
        record, new = row.record, row.record.new
        if new is None or row.fault:
            _refuse(state, record, row.fault or record.refused, row.error or record.error)
            continue
        if new.id in names:
            continue
        names.add(new.id)
        error = judged(state, new)
        if error is not None:
            _refuse(state, record, str(error), type(error).__name__)
            continue
        before = len(accepted)
        place(state, new, accepted, restarted)
        if len(accepted) > before and too_many(state, len(accepted)) is not None:
            accepted.pop()
            if restarted and restarted[-1] == new.id:
                restarted.pop()
            break
        state.decision.write(DeleteEnqueued(record.key))
    take_in(state, accepted, restarted)


def remove(state: EngineState, event: EnqueuedRemoved) -> None:
    """Remove rows that were refused; the reply is their number."""
    for key in event.keys:
        state.decision.write(DeleteEnqueued(key))
    state.audit(None, "enqueued", event, f"{event.name}: {len(event.keys)} refused", event.name)
    state.decision.command(Reply(event.reply, value=len(event.keys)))


def _refuse(state: EngineState, record: EnqueuedRecord, reason: str, error: str) -> None:
    """Keep a row with the reason; of one that was refused before for the same reason nothing is written."""
    key = refused_key(record.key) if record.refused_at is None else record.key
    if key == record.key and record.refused == reason:
        return
    if key != record.key:
        state.decision.write(DeleteEnqueued(record.key))
    at = record.refused_at if record.refused_at is not None else state.decision.now
    state.decision.write(PutEnqueued(replace(record, key=key, refused=reason, error=error, refused_at=at)))
