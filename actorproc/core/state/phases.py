"""Phase of a procedure, read from its head and three facts; the same for the engine and for a mere reader.

The running engine knows the facts. A reader that sees only the store knows as much of them as the head says. The
activity of a step, and the procedure that blocks another one, are in no record.
"""

from __future__ import annotations

from actorproc.core.state.head import runs_alone
from actorproc.model.rows.cold_trees import debounce_of, is_debounced
from actorproc.model.rows.records import ProcedureRecord
from actorproc.model.states import TERMINAL, Phase, ProcedureState

__all__ = ["is_interrupted", "is_waiting_for_locks", "last_phase", "phase_of", "reason_of", "seen_in_store"]

_NAMED = 5
"""Keys named in a sentence."""


def phase_of(record: ProcedureRecord, *, running: bool, waits_for_locks: bool, stands_still: bool = False) -> Phase:
    """Phase of a procedure.

    `running`: a worker has its step in hand. `waits_for_locks`: it stands in a queue for locks. `stands_still`: its
    class is not known, or its records are damaged.
    """
    if record.state in TERMINAL and not record.undoing:
        return Phase.DONE
    if record.parked is not None or stands_still:
        return Phase.PARKED
    if record.paused is not None and not running:
        return Phase.PAUSED
    if record.rolling or record.undoing:
        return Phase.ROLLING_BACK
    if running:
        return Phase.RUNNING
    if record.state is ProcedureState.WAITING_TIMEOUT and record.event is None:
        return Phase.SLEEPING
    if record.event is not None:
        return Phase.WAITING
    if record.state is ProcedureState.WAITING:
        return Phase.SUSPENDED
    if waits_for_locks:
        return Phase.LOCKED_OUT
    if record.errors or record.crashes:
        return Phase.STUCK if record.stuck == record.step else Phase.RETRYING
    return Phase.QUEUED


def last_phase(record: ProcedureRecord) -> tuple[Phase, str | None]:
    """Phase and reason of a stored head whose end has been decided and is not stored yet.

    A step that was handed out counts as running until then, so that a phase never goes back to an earlier one.
    """
    phase = phase_of(record, running=is_interrupted(record), waits_for_locks=is_waiting_for_locks(record))
    return phase, reason_of(record, phase)


def reason_of(record: ProcedureRecord, phase: Phase) -> str | None:
    """Reason for this phase, in words, as far as its head says."""
    if phase is Phase.PARKED:
        return record.parked
    if phase is Phase.PAUSED:
        return record.paused
    if phase is Phase.ROLLING_BACK and record.undoing and record.undo_error is not None:
        return f"its undo fails: {record.undo_error.message}"
    if phase in {Phase.ROLLING_BACK, Phase.RETRYING, Phase.STUCK}:
        return record.error.message if record.error else None
    if phase is Phase.WAITING:
        return f"for the event {record.event!r}"
    if phase is Phase.QUEUED and (mark := debounce_of(record)) is not None and is_debounced(record):
        return f"for further submits of {mark.key!r} (debounce)"
    if phase is Phase.SUSPENDED:
        return f"for {record.pending} of its children"
    if phase is Phase.RUNNING and runs_alone(record):
        return "runs alone: its host was lost three times"
    return None


def is_waiting_for_locks(record: ProcedureRecord) -> bool:
    """Its head says that it asked for locks and does not have them all."""
    return not record.locked and record.ticket > 0 and record.due_at is None


def is_interrupted(record: ProcedureRecord) -> bool:
    """Its head says that the present step was handed out and not answered: it runs, or its worker or host is gone."""
    return record.attempt > record.errors + record.crashes + record.host_losses and record.due_at is None


def seen_in_store(record: ProcedureRecord, *, is_owned: bool) -> tuple[Phase, str | None]:
    """The phase and its reason, concluded from the head alone; `is_owned`: a manager has the store open."""
    phase = phase_of(
        record,
        running=is_owned and is_interrupted(record),
        waits_for_locks=is_waiting_for_locks(record),
    )
    if phase is Phase.LOCKED_OUT:
        keys = ", ".join(f"{key.mode.name.lower()} of {key.path!r}" for key in record.locks[:_NAMED])
        return phase, f"waits for {keys}"
    return phase, reason_of(record, phase)
