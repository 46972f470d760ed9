"""Changes of a head's fields that belong together, each in one place; `transitions` changes its state.

The counters of attempts, errors and crashes, the error, the due time and the interrupted step are assigned here and
nowhere else in the core. A test looks for such assignments. A caller that changes a head also calls `touch`.
"""

from __future__ import annotations

from msgspec.structs import replace

from actorproc.model.rows.record_parts import Past
from actorproc.model.rows.records import ErrorInfo, Interrupted, ProcedureRecord
from actorproc.model.states import ProcedureState

__all__ = [
    "LOSSES_OF_HOSTS",
    "OWNED",
    "begin_step",
    "begin_undo_step",
    "begin_unit",
    "came_from",
    "count_attempt",
    "count_crash",
    "count_error",
    "count_host_loss",
    "end_debounce",
    "end_last_step",
    "fail_with",
    "forget_error",
    "interrupt",
    "is_plain",
    "keep_attempts",
    "leave_host",
    "limit_lock_wait",
    "note_host",
    "note_searchable",
    "reset_errors",
    "runs_alone",
    "take_back_attempt",
    "take_interrupted",
    "take_up_unit",
    "wait_no_longer",
    "wait_until",
]

LOSSES_OF_HOSTS = 3
"""Hosts in a row that a step may be lost with; then it runs alone on its host, whose loss is its failure."""
OWNED = ("attempt", "errors", "crashes", "first_error_at", "error", "due_at", "interrupted")
"""Fields that only this module assigns."""

_RUNNABLE = ProcedureState.RUNNABLE


def is_plain(record: ProcedureRecord) -> bool:
    """True if it goes forward, waits for nothing, counts for no limit, and nothing was asked of it or befell it.

    Both fast paths begin with this: the head says nothing that the long way would have to see to.
    """
    return not (
        record.state is not _RUNNABLE
        or record.rolling
        or record.undoing
        or record.aborting
        or record.bypassing
        or record.error is not None
        or record.parked is not None
        or record.due_at is not None
        or record.event is not None
        or record.pending
        or record.limit_keys
        or record.admitted
        or record.stuck
        or record.run > 1
        or not record.locked
    )


# ---------------------------------------------------------------------- attempts, errors, crashes
def begin_step(record: ProcedureRecord, attempt: int) -> None:
    """A step is recorded: the next one has counters of its own, and `attempt` attempts."""
    record.attempt = attempt
    record.errors = record.crashes = 0
    if record.past is not None and record.past.host_losses:
        _forget_losses(record)
    record.first_error_at = None
    record.interrupted = None
    if not record.rolling:
        record.error = None


def end_last_step(record: ProcedureRecord) -> None:
    """The last step ended well: nothing counts any more."""
    record.attempt = record.errors = record.crashes = 0
    if record.past is not None and record.past.host_losses:
        _forget_losses(record)
    record.error = None


def reset_errors(record: ProcedureRecord) -> None:
    """Its errors and crashes are counted from here."""
    record.errors = record.crashes = 0
    if record.past is not None and record.past.host_losses:
        _forget_losses(record)
    record.first_error_at = None


def begin_undo_step(record: ProcedureRecord) -> None:
    """An undo step is recorded: the next one has counters of its own."""
    reset_errors(record)
    record.attempt = record.undo_step = 0
    record.undo_error = None


def take_up_unit(record: ProcedureRecord, sequence: int) -> None:
    """Count attempts for this undo unit; one that was set aside, or is retried, may have half run and goes on."""
    if record.tried != sequence:
        record.tried = sequence
        record.attempt = record.undo_step = 0


def begin_unit(record: ProcedureRecord, sequence: int) -> None:
    """The undo of this unit begins, or goes on, at once."""
    take_up_unit(record, sequence)
    reset_errors(record)
    record.undo_error = None
    record.due_at = None


def count_attempt(record: ProcedureRecord) -> None:
    """The step is handed out once more."""
    record.attempt += 1


def take_back_attempt(record: ProcedureRecord) -> None:
    """The step came back unbegun."""
    record.attempt -= 1
    leave_host(record)


def keep_attempts(record: ProcedureRecord, attempts: int) -> None:
    """The recorded step is to run once more, and goes on counting: no number of an attempt is given twice."""
    record.attempt = attempts


def count_error(record: ProcedureRecord, now: float) -> float:
    """The step, or its undo, failed once more; returns the time of the first of these errors."""
    record.errors += 1
    leave_host(record)
    if record.first_error_at is None:
        record.first_error_at = now
    return record.first_error_at


def count_crash(record: ProcedureRecord) -> None:
    """The step, or its undo, killed its worker once more."""
    record.crashes += 1


def count_host_loss(record: ProcedureRecord) -> None:
    """The host of the step, or of its undo, was lost once more."""
    record.past = replace(record.past or Past(), host_losses=record.host_losses + 1, host=0)


def runs_alone(record: ProcedureRecord) -> bool:
    """True of a procedure whose step was lost with so many hosts that it runs alone on the next one."""
    return record.past is not None and record.past.host_losses >= LOSSES_OF_HOSTS


def note_host(record: ProcedureRecord, host: int) -> None:
    """The step is handed to a worker of this host; 0: the manager's own machine."""
    past = record.past
    if host != (0 if past is None else past.host):
        record.past = replace(past or Past(), host=host)


def leave_host(record: ProcedureRecord) -> bool:
    """The step is in no worker's hands any more; True if it was in those of a host."""
    if record.past is None or not record.past.host:
        return False
    record.past = replace(record.past, host=0)
    return True


def limit_lock_wait(record: ProcedureRecord, due_at: float) -> None:
    """It waits for locks, until then at most; 0: it waits no more, or without limit."""
    past = record.past
    if due_at != (0.0 if past is None else past.lock_due):
        record.past = replace(past or Past(), lock_due=due_at)


def note_searchable(record: ProcedureRecord, texts: tuple[str, ...]) -> None:
    """Note the texts of the searchable fields of its new state."""
    past = record.past
    if texts != (() if past is None else past.searchable):
        record.past = replace(past or Past(), searchable=texts)


def _forget_losses(record: ProcedureRecord) -> None:
    assert record.past is not None
    record.past = replace(record.past, host_losses=0)


# ---------------------------------------------------------------------- traces
def came_from(record: ProcedureRecord, context: bytes) -> None:
    """The signal whose payload it has was sent in this context of a trace."""
    past = record.past
    if past is not None and past.trace is not None and (context or past.trace.woken_by):
        record.past = replace(past, trace=replace(past.trace, woken_by=context))


# ---------------------------------------------------------------------- the error
def fail_with(record: ProcedureRecord, error: ErrorInfo) -> None:
    """Note the reason for which it fails, or is tried again."""
    record.error = error


def forget_error(record: ProcedureRecord) -> None:
    """It goes on, or ended as if it had succeeded."""
    record.error = None


# ---------------------------------------------------------------------- waiting
def wait_until(record: ProcedureRecord, at: float | None) -> None:
    """It waits until then (epoch seconds) at the longest; None: without a limit. The timer is the caller's to set."""
    record.due_at = at


def wait_no_longer(record: ProcedureRecord) -> None:
    """Nothing is due for it any more."""
    record.due_at = None


def end_debounce(record: ProcedureRecord) -> None:
    """End its wait for further submits: none takes its place any more."""
    past = record.past
    if past is not None and past.debounce is not None:
        record.past = replace(past, debounce=replace(past.debounce, waits=False))


# ---------------------------------------------------------------------- what a failure interrupted
def interrupt(record: ProcedureRecord, intended: Interrupted | None) -> None:
    """Keep what it was about to do, for a retry that goes forward; None: its next step."""
    record.interrupted = intended


def take_interrupted(record: ProcedureRecord) -> Interrupted | None:
    """Forget and return the step or wait that it was about to do when its tree failed."""
    intended, record.interrupted = record.interrupted, None
    return intended
