"""Workers coming and going: what a death costs, and whom it is charged to.

The first unanswered step of a dead worker ran when it died and is charged. The steps behind it may have begun; they go
back to the queue uncharged, as replayed ones. A host restart charges no step.
"""

from __future__ import annotations

from actorproc.core.lifecycle.attempts import note_attempt
from actorproc.core.lifecycle.finish import settle_bypass
from actorproc.core.queues.worker_table import InHand
from actorproc.core.results.abort import ask_again, begin_abort, may_abort
from actorproc.core.results.due_times import end_forced
from actorproc.core.results.on_result import look_after, on_step_error
from actorproc.core.rollback.failure_scope import aborted_error, fail, look_again
from actorproc.core.rollback.undo_step import on_rollback_error
from actorproc.core.scheduler.cancellation import ABORTED, KILLED
from actorproc.core.scheduler.dedicated import join, was_lost
from actorproc.core.scheduler.reload import gone
from actorproc.core.scheduler.scaling import joined, left
from actorproc.core.scheduler.schedule import wake
from actorproc.core.state import head
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.workers import WorkerState
from actorproc.core.state.step_limits import limits_of, retries_overtime
from actorproc.model.crash_report import HOST_LOST, CrashReport
from actorproc.model.ids import Mode
from actorproc.model.messages.events import StepEnded, WorkerLost, WorkerReady
from actorproc.model.names import step_in_words
from actorproc.model.rows.records import ErrorInfo, ProcedureRecord
from actorproc.model.states import TERMINAL

__all__ = ["on_lost", "on_ready", "on_stopped"]

_OVERTIME = ("timeout", "cpu-limit", "heartbeat-limit")
"""Kinds of reports of workers that were killed because a step took too long."""


def on_ready(state: EngineState, event: WorkerReady) -> None:
    """A worker takes steps now."""
    record = join(state, event)
    joined(state, event)
    if record is not None:
        wake(state, record, to_the_front=True)


def on_lost(state: EngineState, event: WorkerLost) -> None:
    """A worker is dead: charge the step it died in, hand everything it had to others."""
    worker = state.workers.table.find(event.worker)
    if worker is None:
        return
    # A procedure that ended while it was asked `abort` may have left memory.
    items = [item for item in state.workers.table.lose(worker) if item.token.procedure in state.residents.procs]
    was_lost(state, worker)
    left(state.workers, worker)
    if state.workers.outdated:
        gone(state.workers, worker)
    for item in items:
        state.residents.tree_of(state.residents.procs[item.token.procedure]).running.discard(item.token.procedure)
    is_host_lost = event.report.kind == HOST_LOST and event.crashed
    guilty = None if is_host_lost else _guilty(state.workers, items, event)
    lost_with_host = _begun(items, event) if is_host_lost else []
    # What a dead worker had in hand goes first again, in its old order.
    for item in reversed(items):
        record = state.residents.procs[item.token.procedure]
        state.workers.warm.pop(record.id, None)
        if head.leave_host(record):
            state.decision.touch(record)
        if record.bypassing:
            settle_bypass(state, record)
        elif record.state in TERMINAL and not record.undoing:
            pass  # it ended while it was asked, or a moment ago, bypassed with one below it that was in hand as well
        elif item in lost_with_host:
            _lost_with_host(state, record, item, event.report)
        elif item is guilty:
            _charge(state, record, item, event.report)
        else:
            _give_back(state, record, item)
        look_again(state, record)


def on_stopped(state: EngineState, event: StepEnded, report: CrashReport) -> None:
    """An async step was cancelled: as if it were killed, but for its worker and the steps beside it."""
    token = event.token
    found = state.workers.table.answer(token, state.decision.now, event.outcome.elapsed)
    if found is None:
        state.counters.count_stale()
        return
    worker, item = found
    state.workers.suspects.discard(token.procedure)
    record = state.residents.procs.get(token.procedure)
    look_after(state, worker)
    if record is None:
        return  # it ended, and left memory, while it was asked `abort`
    state.residents.tree_of(record).running.discard(record.id)
    state.workers.warm.pop(record.id, None)
    if head.leave_host(record):
        state.decision.touch(record)
    if record.bypassing:
        settle_bypass(state, record)
    elif record.state in TERMINAL and not record.undoing:
        pass  # it ended while it was asked
    else:
        _charge(state, record, item, report)
    look_again(state, record)


def _guilty(workers: WorkerState, items: list[InHand], event: WorkerLost) -> InHand | None:
    if event.blamed is not None:
        return next((item for item in items if item.token == event.blamed), None)
    if not items or not event.crashed:
        return None
    if len(items) > 1 and items[0].threads > 1:
        # Any of them may have done it. Each runs alone next, and then there is no doubt.
        workers.suspects.update(item.token.procedure for item in items)
        return None
    return next((item for item in items if item.token == event.first), items[0])


def _begun(items: list[InHand], event: WorkerLost) -> list[InHand]:
    """Steps that ran in a worker when its host was lost."""
    if len(items) > 1 and items[0].threads > 1:
        return items
    return [item for item in items if item.token == event.first] or items[:1]


def _give_back(state: EngineState, record: ProcedureRecord, item: InHand) -> None:
    if item.token.mode is Mode.ASK_ABORT:
        ask_again(state, record)
    elif item.forced is not None and item.forced != KILLED:
        end_forced(state, record, item)
    else:
        _run_again(state, record, item)


def _run_again(state: EngineState, record: ProcedureRecord, item: InHand) -> None:
    """A step whose worker is gone goes first again; a forward one whose abort was asked for is not begun once more."""
    if record.aborting and item.token.mode is not Mode.ROLLBACK and may_abort(state.residents, record):
        begin_abort(state, record)
    else:
        wake(state, record, to_the_front=True)


def _charge(state: EngineState, record: ProcedureRecord, item: InHand, report: CrashReport) -> None:
    details = "\n".join(part for part in (report.stack.rstrip(), report.stderr.rstrip()) if part)
    if record.state in TERMINAL and item.token.mode is Mode.ASK_ABORT:
        return  # it ended while it was asked
    if item.token.mode is Mode.ASK_ABORT and not record.aborting:
        ask_again(state, record)
    elif item.token.mode is Mode.ASK_ABORT and not state.residents.has_no_return(record):
        # A procedure that dies over the question is not asked twice.
        fail(state, record, aborted_error(record))
    elif _is_killed(item, report):
        # The undo of a failing scope may have been decided since.
        error = ErrorInfo("killed", "AttemptKilled", report.message, details, record.id, item.token.step, crash=report)
        note_attempt(state.decision, record, item, error, report.duration)
        _run_again(state, record, item)
    elif item.token.mode is Mode.ASK_ABORT or (item.forced is not None and item.forced != KILLED):
        end_forced(state, record, item)
    elif report.kind == ABORTED:
        _run_again(state, record, item)  # memory was lost since: what ended it is decided anew
    elif report.kind in _OVERTIME:
        error = ErrorInfo(
            "timeout",
            "StepTimeout",
            report.message,
            details,
            record.id,
            item.token.step,
            crash=report,
            step_name=record.current_name or "",
        )
        note_attempt(state.decision, record, item, error, report.duration)
        if item.token.mode is Mode.ROLLBACK:
            on_rollback_error(state, record, error, retryable=True)
        else:
            on_step_error(state, record, error, retryable=retries_overtime(state.types, record))
    else:
        _count_crash(state, record, item, report, details)


def _lost_with_host(state: EngineState, record: ProcedureRecord, item: InHand, report: CrashReport) -> None:
    """Count a loss, which is the fault of no step; but a step that eats memory takes one host after the other along."""
    if item.token.mode is Mode.ASK_ABORT or item.forced is not None:
        _give_back(state, record, item)
        return
    head.count_host_loss(record)
    state.decision.touch(record)
    step = step_in_words(item.token.step, record.current_name)
    in_words = f"its host was lost in {step}: {report.message}"
    if record.host_losses > 1:
        in_words = f"its host was lost for the {_ordinal(record.host_losses)} time in a row in {step}: {report.message}"
    is_last = record.host_losses > head.LOSSES_OF_HOSTS
    if is_last:
        in_words += "; it ran alone there, so it is not run any more: it may use more memory than any host has"
    elif head.runs_alone(record):
        state.types.note_choosy()
    error = ErrorInfo(
        "crash",
        "WorkerCrashed",
        in_words,
        "",
        record.id,
        item.token.step,
        crash=report,
        step_name=record.current_name or "",
    )
    note_attempt(state.decision, record, item, error, report.duration)
    if not is_last:
        _run_again(state, record, item)
    elif item.token.mode is Mode.ROLLBACK:
        on_rollback_error(state, record, error, retryable=False)
    else:
        on_step_error(state, record, error, retryable=False)


def _is_killed(item: InHand, report: CrashReport) -> bool:
    """True if an operator ended the attempt, also when its worker died by itself a moment before the kill struck.

    By the report alone where memory was lost since. A time limit that came first counts as one.
    """
    if item.forced == KILLED:
        return report.kind not in _OVERTIME
    return item.forced is None and report.kind == KILLED


def _count_crash(state: EngineState, record: ProcedureRecord, item: InHand, report: CrashReport, details: str) -> None:
    head.count_crash(record)
    state.decision.touch(record)
    limit = limits_of(state.types, record).crashes
    in_words = (
        f"its worker crashed: {report.message}, for the {_ordinal(record.crashes)} time in "
        f"{step_in_words(item.token.step, record.current_name)}"
    )
    error = ErrorInfo(
        "crash",
        "WorkerCrashed",
        in_words,
        details,
        record.id,
        item.token.step,
        crash=report,
        step_name=record.current_name or "",
    )
    note_attempt(state.decision, record, item, error, report.duration)
    if record.crashes < limit:
        if item.token.mode is Mode.ROLLBACK:
            record.undo_error = error
        elif not record.rolling and not record.undoing:
            head.fail_with(record, error)
        _run_again(state, record, item)
    elif item.token.mode is Mode.ROLLBACK:
        on_rollback_error(state, record, error, retryable=False)
    else:
        on_step_error(state, record, error, retryable=False)


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
