"""Due times: deadlines of procedures, and the ends of waits, sleeps, delays and backoffs."""

from __future__ import annotations

from actorproc.core.lifecycle import debounce
from actorproc.core.locks.explain import why_waiting
from actorproc.core.queues.worker_table import InHand
from actorproc.core.rollback.failure_scope import aborted_error, fail
from actorproc.core.scheduler.cancellation import kill_outstaying, stop_forced
from actorproc.core.scheduler.schedule import wake
from actorproc.core.state import head
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.transitions import Trigger, move
from actorproc.model.ids import Mode
from actorproc.model.rows.cold_trees import is_debounced
from actorproc.model.rows.records import ErrorInfo, ProcedureRecord
from actorproc.model.states import TERMINAL, ProcedureState

__all__ = ["deadline_error", "end_forced", "miss_deadline", "on_due"]


def on_due(state: EngineState, record: ProcedureRecord) -> None:
    """A timer of this procedure went off: its deadline, or the end of a wait, sleep, delay or backoff."""
    if record.state in TERMINAL and not record.undoing:
        return
    kill_outstaying(state, record)
    if state.is_late(record):
        miss_deadline(state, record)
        return
    if _runs_past_deadline(state, record):
        _kill_late(state, record)
        return
    if 0.0 < record.lock_due <= state.decision.now and state.locks.table.is_waiting(record.id):
        _end_lock_wait(state, record)
        return
    if record.due_at is None:
        return
    if record.due_at > state.decision.now:
        if is_debounced(record):
            debounce.shorten(state, record)
        return
    if record.state is ProcedureState.WAITING_TIMEOUT:
        head.wait_no_longer(record)
        state.decision.touch(record)
        _end_wait(state, record)
    else:
        wake(state, record)


def miss_deadline(state: EngineState, record: ProcedureRecord) -> None:
    """The deadline of a procedure passed: kill the step it runs, or fail it at once."""
    if record.id in state.workers.table.in_hand:
        _kill_late(state, record)
    else:
        fail(state, record, deadline_error(record))


def _runs_past_deadline(state: EngineState, record: ProcedureRecord) -> bool:
    """True if a forward step runs on though its tree has failed over the same deadline."""
    if record.deadline is None or record.deadline > state.decision.now or record.id not in state.workers.table.in_hand:
        return False
    return state.workers.table.in_hand[record.id].queue[record.id].token.mode is not Mode.ROLLBACK and record.rolling


def _kill_late(state: EngineState, record: ProcedureRecord) -> None:
    worker = state.workers.table.in_hand[record.id]
    item = worker.queue[record.id]
    if item.forced is None:
        item.forced = "deadline"
        stop_forced(state, worker, item)


def end_forced(state: EngineState, record: ProcedureRecord, item: InHand) -> None:
    """The step was killed or taken back. Where its tree fails already, or has no way back, that is all."""
    if record.rolling or state.residents.has_no_return(record):
        wake(state, record, to_the_front=True)
    else:
        fail(state, record, deadline_error(record) if item.forced == "deadline" else aborted_error(record))


def deadline_error(record: ProcedureRecord) -> ErrorInfo:
    """Error with which a procedure past its deadline fails."""
    return ErrorInfo(
        "deadline",
        "DeadlineExceeded",
        "the deadline passed",
        procedure=record.id,
        step=record.step,
        step_name=record.step_name or "",
    )


def _end_lock_wait(state: EngineState, record: ProcedureRecord) -> None:
    """It has waited for its locks as long as it may."""
    message = f"{why_waiting(state.locks.table, record.id)}, for longer than Limits(lock_wait=…) allows"
    error = ErrorInfo(
        "lock-timeout", "LockTimeout", message, procedure=record.id, step=record.step, step_name=record.step_name or ""
    )
    if state.residents.has_no_return(record):
        # No way back: it goes on waiting, and says what it waits for in vain.
        head.fail_with(record, error)
        state.decision.touch(record)
        return
    fail(state, record, error)


def _end_wait(state: EngineState, record: ProcedureRecord) -> None:
    if record.event is None:
        move(record, Trigger.DUE)
        wake(state, record)
        return
    meta = state.types.of(record)
    if meta is None or meta.has_on_timeout:
        # `event` stays set: it says that the next step calls on_timeout().
        state.signals.subscribers.discard(record.event, record.id)
        move(record, Trigger.DUE)
        wake(state, record)
        return
    message = f"no signal for {record.event!r} came in time"
    error = ErrorInfo(
        "wait-timeout", "WaitTimeout", message, procedure=record.id, step=record.step, step_name=record.step_name or ""
    )
    if state.residents.has_no_return(record):
        # No way back: it goes on waiting, and says what it waits for in vain.
        head.fail_with(record, error)
        return
    fail(state, record, error)
