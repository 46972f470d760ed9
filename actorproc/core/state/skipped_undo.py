"""Remains of a rollback: undos that a best-effort rollback skipped, and members that have no rollback.

Listed where they happened and at the top of the failing scope, durably. A head lists a limited number of them; the
step log has all.
"""

from __future__ import annotations

from actorproc.core.state import head
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.decision import PendingDecision
from actorproc.core.state.rollback_record import write_rollback
from actorproc.model.rows.records import ErrorInfo, Leftover, ProcedureRecord, UndoRecord

__all__ = ["MAX_LEFTOVERS", "has_own", "list_no_rollback", "skip"]

MAX_LEFTOVERS = 100
"""Leftovers listed in one head."""
_LONGEST_REASON = 300


def skip(state: EngineState, record: ProcedureRecord, unit: UndoRecord, error: ErrorInfo, top: ProcedureRecord) -> None:
    """Record that an undo gave up and that the rollback goes on without it, from the state there is."""
    write_rollback(state, record, "skipped", label=unit.label, attempts=record.attempt, error=error)
    head.begin_undo_step(record)
    reason = f"{error.type_name}: {error.message}"[:_LONGEST_REASON]
    _add(state.decision, record, top, Leftover(record.id, unit.label, reason))


def list_no_rollback(decision: PendingDecision, record: ProcedureRecord, top: ProcedureRecord) -> None:
    """A member ran and has no rollback: the top of its scope lists it."""
    if record is not top:
        _add(decision, top, top, Leftover(record.id, "", f"{record.type_name} has no rollback"))


def has_own(record: ProcedureRecord) -> bool:
    """True if something of this very procedure was left behind."""
    return bool(record.leftovers) and any(left.procedure == record.id for left in record.leftovers)


def _add(decision: PendingDecision, record: ProcedureRecord, top: ProcedureRecord, left: Leftover) -> None:
    for listing in {record.id: record, top.id: top}.values():
        if len(listing.leftovers) < MAX_LEFTOVERS:
            listing.leftovers += (left,)
        decision.touch(listing)
