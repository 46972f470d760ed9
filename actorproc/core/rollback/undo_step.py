"""Handling of a rollback step's answer: a recorded undo, another step of it, a retry, or giving up."""

from __future__ import annotations

from actorproc.core.lock_manager import acquire
from actorproc.core.queues import backoff
from actorproc.core.queues.worker_table import InHand
from actorproc.core.rollback.failure_scope import drop_unit, give_up
from actorproc.core.scheduler.schedule import wake
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.skipped_undo import skip
from actorproc.model.messages.outcomes import Advanced, Failed, Finished, Outcome
from actorproc.model.rows.records import ErrorInfo, ProcedureRecord, StepKind, StepRecord
from actorproc.model.rows.writes import PutStep

__all__ = ["after_rollback", "on_rollback_error"]


def after_rollback(book: EngineState, record: ProcedureRecord, item: InHand, outcome: Outcome) -> None:
    """Take a worker's answer to a rollback step; the unit is given up only with the record of its undo."""
    tree = book.tree_of(record)
    if isinstance(outcome, Finished | Advanced):
        unit = tree.units[record.undoing]
        record.records += 1
        record.state_at = 0
        record.undone += 1
        _note_reverted(book, tree.scope_of(record.id))
        book.write(
            PutStep(
                StepRecord(
                    procedure=record.id,
                    number=record.records,
                    kind=StepKind.ROLLBACK,
                    at=book.now,
                    state=outcome.state,
                    codec=outcome.codec or book.types[record.type_name].codec,
                    version=outcome.version or book.types[record.type_name].version,
                    outcome="undone" if isinstance(outcome, Finished) else "undoing",
                    label=unit.label,
                    attempts=record.attempt,
                    slot=item.token.worker.slot,
                    incarnation=item.token.worker.incarnation,
                    elapsed=outcome.elapsed,
                    pid=item.pid,
                    crash=_death_on_the_way(record),
                )
            )
        )
        record.attempt = record.errors = record.crashes = record.undo_step = 0
        record.first_error_at = record.undo_error = None
        book.touch(record)
        acquire.end_of_step(book, record)
        if isinstance(outcome, Finished):
            drop_unit(book, tree, unit)
        else:
            record.due_at = book.now + outcome.after if outcome.after > 0 else None
            wake(book, record)
    else:
        error = outcome.error if isinstance(outcome, Failed) else _not_an_undo(record, outcome)
        on_rollback_error(book, record, error, retryable=isinstance(outcome, Failed) and outcome.retryable)


def _death_on_the_way(record: ProcedureRecord) -> ErrorInfo | None:
    """The last death of a worker in the undo step that ends now, for its record: the head forgets it."""
    error = record.undo_error
    return error if error is not None and error.crash is not None else None


def _note_reverted(book: EngineState, top: str | None) -> None:
    """Something of this failure scope is undone: from here on there is no way forward for it."""
    if top is not None and not book.procs[top].reverted:
        book.procs[top].reverted = True
        book.touch(book.procs[top])


def _others_run(book: EngineState, record: ProcedureRecord) -> bool:
    """True if a wider failure took this undo over while steps of its own still run: it ends only after them."""
    tree = book.tree_of(record)
    top = tree.scope_of(record.id)
    return top is not None and tree.runs_below(top)


def on_rollback_error(book: EngineState, record: ProcedureRecord, error: ErrorInfo, *, retryable: bool) -> None:
    """A rollback step failed: again with backoff, or give the whole scope up."""
    policy = book.types[record.type_name].rollback_retry
    record.errors += 1
    if record.first_error_at is None:
        record.first_error_at = book.now
    book.touch(record)
    is_spent = not retryable or backoff.is_exhausted(
        policy, errors=record.errors, first_error_at=record.first_error_at, now=book.now
    )
    if is_spent and not _others_run(book, record):
        if book.types[record.type_name].best_effort:
            _skip(book, record, error)
        else:
            give_up(book, record, error)
        return
    record.undo_error = error
    record.due_at = book.now + backoff.delay(policy, procedure=record.id, step=record.records, errors=record.errors)
    wake(book, record)


def _skip(book: EngineState, record: ProcedureRecord, error: ErrorInfo) -> None:
    """A best-effort rollback goes on with the unit before this one, and says what it left behind."""
    tree = book.tree_of(record)
    unit = tree.units[record.undoing]
    top = tree.scope_of(record.id)
    assert top is not None, record.id
    _note_reverted(book, top)
    skip(book, record, unit, error, book.procs[top])
    acquire.end_of_step(book, record)
    drop_unit(book, tree, unit)
    book.scopes_to_advance[top] = None


def _not_an_undo(record: ProcedureRecord, outcome: Outcome) -> ErrorInfo:
    message = f"rollback() answered {type(outcome).__name__.lower()}; it may return None, done or executing"
    return ErrorInfo("invalid-status", "InvalidStatus", message, procedure=record.id, step=record.records)
