"""Steps that no worker could begin for a reason that may pass: an I/O error, files that are being replaced.

Such a step was not run: no error is counted, and it comes back with backoff. Its attempt has another number then, so
that an answer which comes twice is not taken for the next one's. A reason that lasts for a minute parks the procedure
like any other refusal. Nothing here is stored but the due time; a restart begins anew.
"""

from __future__ import annotations

from actorproc.core.results.abort import on_refused
from actorproc.core.scheduler.schedule import note_unbegun, wake
from actorproc.core.state import head
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.queues import PostponedStep, WorkQueues
from actorproc.model.ids import Mode
from actorproc.model.messages.outcomes import Refused
from actorproc.model.names import READ_LATER
from actorproc.model.rows.records import ProcedureRecord

__all__ = ["put_off_or_park", "why_put_off"]

_PAUSES = (0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds before each further look."""


def put_off_or_park(state: EngineState, record: ProcedureRecord, mode: Mode, outcome: Refused) -> None:
    """Have a step that no worker could begin again after a pause, or park it.

    Only steps and undos are put off. One that is to be stopped, or was asked about its abort, or waits for an event
    with a time limit has another use for its due time.
    """
    step = record.step, record.records
    known = state.queues.postponed.pop(record.id, None)
    tried = known.tried if known is not None and known.step == step else 0
    is_step = mode is Mode.EXECUTE and not record.rolling and record.event is None and not record.aborting
    is_undo = mode is Mode.ROLLBACK and bool(record.undoing)
    if tried >= len(_PAUSES) or not outcome.is_passing or not (is_step or is_undo):
        on_refused(state, record, outcome)
        return
    if is_step:
        note_unbegun(state, record)
    state.queues.postponed[record.id] = PostponedStep(step, tried + 1, outcome.reason)
    head.wait_until(record, state.decision.now + _PAUSES[tried])
    state.decision.touch(record)
    wake(state, record)


def why_put_off(queues: WorkQueues, record: ProcedureRecord) -> str | None:
    """Reason why a step that waits for its next attempt was put off; None when it was not."""
    known = queues.postponed.get(record.id)
    if known is None or record.due_at is None or known.step != (record.step, record.records):
        return None
    return f"{READ_LATER}: {known.reason}"
