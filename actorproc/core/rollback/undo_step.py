"""Handling of a rollback step's answer: a recorded undo, another step of it, a retry, or giving up."""

from __future__ import annotations

from msgspec.structs import replace

from actorproc.core.lifecycle.attempts import note_attempt
from actorproc.core.lifecycle.step_requests import grant, problem_with_requests
from actorproc.core.lock_manager import acquire
from actorproc.core.queues import backoff
from actorproc.core.queues.worker_table import InHand
from actorproc.core.rollback.failure_scope import drop_unit, give_up
from actorproc.core.scheduler.schedule import wake
from actorproc.core.state import head
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.residents import ResidentSet
from actorproc.core.state.rollback_record import write_rollback
from actorproc.core.state.skipped_undo import skip
from actorproc.model.messages.outcomes import Advanced, Failed, Finished, Outcome
from actorproc.model.rows.records import ErrorInfo, ProcedureRecord

__all__ = ["after_rollback", "on_rollback_error"]


def after_rollback(state: EngineState, record: ProcedureRecord, item: InHand, outcome: Outcome) -> None:
    """Take a worker's answer to a rollback step; the unit is given up only with the record of its undo."""
    tree = state.residents.tree_of(record)
    problem = None if outcome.requests is None else problem_with_requests(state, record, outcome.requests)
    if problem is None and isinstance(outcome, Finished | Advanced):
        unit = tree.units[record.undoing]
        record.undone += 1
        _note_reverted(state, tree.scope_of(record.id))
        write_rollback(
            state,
            record,
            "undone" if isinstance(outcome, Finished) else "undoing",
            state=outcome.state,
            codec=outcome.codec or state.types.metas[record.type_name].codec,
            version=outcome.version or state.types.metas[record.type_name].version,
            label=unit.label,
            attempts=record.attempt,
            slot=item.token.worker.slot,
            incarnation=item.token.worker.incarnation,
            elapsed=outcome.elapsed,
            pid=item.pid,
            crash=_death_on_the_way(record),
            fence=outcome.fence,
        )
        head.note_searchable(record, () if outcome.requests is None else outcome.requests.searchable)
        head.begin_undo_step(record)
        state.decision.touch(record)
        if outcome.requests is not None:
            grant(state, record, outcome.requests)
        acquire.end_of_step(state, record)
        if isinstance(outcome, Finished):
            drop_unit(state, tree, unit)
        else:
            head.wait_until(record, state.decision.now + outcome.after if outcome.after > 0 else None)
            wake(state, record)
    else:
        error = outcome.error if isinstance(outcome, Failed) else _not_an_undo(record, outcome, problem)
        note_attempt(state.decision, record, item, error, outcome.elapsed)
        on_rollback_error(state, record, error, retryable=isinstance(outcome, Failed) and outcome.retryable)


def _death_on_the_way(record: ProcedureRecord) -> ErrorInfo | None:
    """The last death of a worker in the undo step that ends now, for its record: the head forgets it."""
    error = record.undo_error
    return error if error is not None and error.crash is not None else None


def _note_reverted(state: EngineState, top: str | None) -> None:
    """Something of this failure scope is undone: from here on there is no way forward for it."""
    if top is not None and not state.residents.procs[top].reverted:
        state.residents.procs[top].reverted = True
        state.decision.touch(state.residents.procs[top])


def _others_run(residents: ResidentSet, record: ProcedureRecord) -> bool:
    """True if a wider failure took this undo over while steps of its own still run: it ends only after them."""
    tree = residents.tree_of(record)
    top = tree.scope_of(record.id)
    return top is not None and tree.runs_below(top)


def on_rollback_error(state: EngineState, record: ProcedureRecord, error: ErrorInfo, *, retryable: bool) -> None:
    """A rollback step failed: again with backoff, or give the whole scope up."""
    error = replace(error, step_name=error.step_name or record.undo_name or "")
    policy = state.types.metas[record.type_name].rollback_retry
    first_error_at = head.count_error(record, state.decision.now)
    state.decision.touch(record)
    is_spent = not retryable or backoff.is_exhausted(
        policy, errors=record.errors, first_error_at=first_error_at, now=state.decision.now
    )
    if is_spent and not _others_run(state.residents, record):
        if state.types.metas[record.type_name].best_effort:
            _skip(state, record, error)
        else:
            give_up(state, record, error)
        return
    record.undo_error = error
    pause = backoff.delay(policy, procedure=record.id, step=record.records, errors=record.errors)
    head.wait_until(record, state.decision.now + pause)
    wake(state, record)


def _skip(state: EngineState, record: ProcedureRecord, error: ErrorInfo) -> None:
    """A best-effort rollback goes on with the unit before this one, and says what it left behind."""
    tree = state.residents.tree_of(record)
    unit = tree.units[record.undoing]
    top = tree.scope_of(record.id)
    assert top is not None, record.id
    _note_reverted(state, top)
    skip(state, record, unit, error, state.residents.procs[top])
    acquire.end_of_step(state, record)
    drop_unit(state, tree, unit)
    state.follow_ups.scopes_to_advance[top] = None


def _not_an_undo(record: ProcedureRecord, outcome: Outcome, problem: str | None) -> ErrorInfo:
    if problem is not None:
        return ErrorInfo("usage", "UsageError", problem, procedure=record.id, step=record.records)
    message = f"rollback() answered {type(outcome).__name__.lower()}; it may return None, done or executing"
    return ErrorInfo("invalid-status", "InvalidStatus", message, procedure=record.id, step=record.records)
