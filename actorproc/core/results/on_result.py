"""Handling of a worker's answer: the next step, a wait, an end, a retry, or a failure."""

from __future__ import annotations

from msgspec.structs import replace

from actorproc.core.lifecycle import renewal
from actorproc.core.lifecycle.attempts import note_attempt
from actorproc.core.lifecycle.children import problem_with, suspend
from actorproc.core.lifecycle.finish import end, settle_bypass
from actorproc.core.lifecycle.late_step import last_step, note_interrupted, stop_late
from actorproc.core.lifecycle.signals import take_buffered
from actorproc.core.lifecycle.step_record import close_step, commit_step
from actorproc.core.lifecycle.step_requests import problem_with_requests
from actorproc.core.lock_manager import acquire
from actorproc.core.lock_manager.poison import poison
from actorproc.core.queues import backoff
from actorproc.core.queues.worker_table import InHand, Worker
from actorproc.core.results.abort import ask_again, begin_abort, may_abort
from actorproc.core.results.due_times import deadline_error, end_forced
from actorproc.core.results.postponed_steps import put_off_or_park
from actorproc.core.rollback import undo_step
from actorproc.core.rollback.failure_scope import aborted_error, fail, look_again
from actorproc.core.scheduler.cancellation import KILLED, stop_forced, stop_next
from actorproc.core.scheduler.dedicated import say_goodbye
from actorproc.core.scheduler.pick import on_suspended
from actorproc.core.scheduler.schedule import wake
from actorproc.core.state import head
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.parts.workers import WorkerState
from actorproc.core.state.step_limits import backoff_of
from actorproc.core.state.transitions import Trigger, move
from actorproc.model.ids import Mode, StepToken
from actorproc.model.messages.commands import SendAgain
from actorproc.model.messages.events import StepDelayed, StepEnded, StepReturned
from actorproc.model.messages.outcomes import (
    Advanced,
    Answered,
    Failed,
    Finished,
    Outcome,
    Poisoned,
    Refused,
    Renewed,
    Slept,
    Suspended,
    Waited,
)
from actorproc.model.policies import Backoff, LockKey
from actorproc.model.rows.asks import settled
from actorproc.model.rows.records import ErrorInfo, Interrupted, ProcedureRecord
from actorproc.model.rows.writes import DeleteUndo
from actorproc.model.states import TERMINAL, ProcedureState

__all__ = ["MAX_STUCK_PAUSE", "look_after", "on_delayed", "on_ended", "on_returned", "on_step_error"]

MAX_STUCK_PAUSE = 60.0
"""Seconds between attempts, at most, of a fatal failure after the point of no return."""
# Looked up once: CPython 3.11 runs Python code for every member that is taken from its enum.
_ROLLBACK, _ASK_ABORT = Mode.ROLLBACK, Mode.ASK_ABORT
_FINISHED = Trigger.FINISHED
_OUTCOME_NAMES = {Advanced: "executing", Suspended: "suspended", Slept: "sleep", Waited: "wait"}


def on_ended(state: EngineState, event: StepEnded) -> None:
    """Take a worker's answer; one whose token is not current is dropped and counted."""
    token, outcome = event.token, event.outcome
    kind = type(outcome)
    found = state.workers.table.answer(token, state.decision.now, outcome.elapsed)
    if found is None:
        state.counters.count_stale()
        return
    worker, item = found
    record = state.residents.procs.get(token.procedure)
    if record is None:
        look_after(state, worker)  # it ended, and left memory, while it was asked `abort`
        return
    state.residents.trees[record.root].running.discard(record.id)
    if state.workers.suspects:
        state.workers.suspects.discard(record.id)
    look_after(state, worker)
    if token.mode is _ASK_ABORT and not record.aborting:
        ask_again(state, record)
        return
    _note_object(state.workers, token, outcome)
    if record.bypassing:
        settle_bypass(state, record)
        return
    if kind is not Refused and kind is not Answered and not (kind is Advanced and outcome.placed):  # type: ignore[union-attr]
        record.epoch = state.counters.epoch
    if kind is Refused:
        put_off_or_park(state, record, token.mode, outcome)  # type: ignore[arg-type]
    elif token.mode is _ROLLBACK:
        undo_step.after_rollback(state, record, item, outcome)
    elif token.mode is _ASK_ABORT:
        _after_asking(state, record, outcome)
    else:
        _after_execution(state, record, item, outcome)
    if record.deadline is not None:
        _look_at_deadline(state, record, item)
    if record.rolling or token.mode is _ROLLBACK or token.mode is _ASK_ABORT:  # it may have ended while it was asked
        look_again(state, record)


def _look_at_deadline(state: EngineState, record: ProcedureRecord, item: InHand) -> None:
    """Its answer came before the kill: the step counts, and no timer is left to end the procedure."""
    if state.is_late(record):
        fail(state, record, deadline_error(record))
    elif item.forced == "deadline" and record.deadline is not None:
        state.timers.add(record.deadline, record.id)  # the clock was set back since


def _note_object(workers: WorkerState, token: StepToken, outcome: Outcome) -> None:
    """Note the worker that holds the live object now: it lets go of one that is to wait, or is not as it was stored."""
    if type(outcome) is Advanced or (type(outcome) is Finished and token.mode is _ROLLBACK):
        workers.warm[token.procedure] = token.worker
    else:
        workers.warm.pop(token.procedure, None)


def look_after(state: EngineState, worker: Worker) -> None:
    """A worker has answered: it goes on to its next step, or leaves."""
    if worker.leaving:
        say_goodbye(state, worker.id)
    if worker.queue:
        stop_next(state, worker)


def on_returned(state: EngineState, event: StepReturned) -> None:
    """A prefetched step came back unbegun: it may go to another worker, under the same attempt."""
    item = state.workers.table.current(event.token)
    if item is None:
        state.counters.count_stale()
        return
    record = state.residents.procs.get(event.token.procedure)
    state.workers.table.take(event.token.procedure, state.decision.now)
    say_goodbye(state, event.token.worker)
    if record is None:
        return  # it ended, and left memory, while it was to be asked `abort`
    state.residents.tree_of(record).running.discard(record.id)
    if record.bypassing:
        settle_bypass(state, record)
        return
    # Its live object is with the worker it was taken from: to prefer that one would bring it straight back.
    state.workers.warm.pop(record.id, None)
    if event.token.mode is _ASK_ABORT:
        ask_again(state, record)
    else:
        head.take_back_attempt(record)
        state.decision.touch(record)
        if item.forced is not None and item.forced != KILLED:
            end_forced(state, record, item)
        elif item.told and may_abort(state.residents, record):
            begin_abort(state, record)
        else:
            wake(state, record)
    if record.rolling or event.token.mode is _ROLLBACK or event.token.mode is _ASK_ABORT:
        look_again(state, record)


def on_delayed(state: EngineState, event: StepDelayed) -> None:
    """A worker goes on with the steps behind this one: it is one of them that runs now, and would be to blame.

    It is sent again by a command, behind those that were decided before. Sent at once it would come to the worker
    before them. By their order the worker knows the steps that run and are to be killed, and those to be taken back.
    """
    found = state.workers.table.delay(event.token, state.decision.now)
    if found is None:
        state.counters.count_stale()
        return
    worker, item = found
    item.recalled = item.killed = False  # a request that came meanwhile has found nothing
    record = state.residents.procs.get(event.token.procedure)
    state.decision.command(
        SendAgain(event.token, item.told or (record is not None and state.residents.shows_abort(record)))
    )
    if item.forced is not None:
        stop_forced(state, worker, item)
    stop_next(state, worker)


# ---------------------------------------------------------------------- forward
def _after_execution(state: EngineState, record: ProcedureRecord, item: InHand, outcome: Outcome) -> None:
    if outcome.requests is not None and (refused := problem_with_requests(state, record, outcome.requests)) is not None:
        _refuse(state, record, item, outcome, refused)
    elif type(outcome) is Advanced and outcome.placed:
        _place(state, record, item, outcome)
    elif type(outcome) is Advanced and not record.rolling:  # most steps
        commit_step(state, record, item, outcome, "executing", None)
        _go_on(state, record, outcome)
        _after_step(state, record)
    elif isinstance(outcome, Failed):
        note_attempt(state.decision, record, item, outcome.error, outcome.elapsed)
        on_step_error(state, record, outcome.error, retryable=outcome.retryable, after=outcome.after)
    elif isinstance(outcome, Poisoned):
        _end_poisoned(state, record, item, outcome)
    elif isinstance(outcome, Finished):
        _finish(state, record, item, outcome)
    elif isinstance(outcome, Renewed):
        _begin_again(state, record, item, outcome)
    elif (problem := problem_with(state, record, outcome)) is not None:
        _refuse(state, record, item, outcome, problem)
    else:
        commit_step(state, record, item, outcome, _OUTCOME_NAMES[type(outcome)], None)
        if record.rolling:
            stop_late(state, record)
            note_interrupted(state, record, outcome)
        else:
            _go_on(state, record, outcome)
            _after_step(state, record)


def _refuse(state: EngineState, record: ProcedureRecord, item: InHand, outcome: Outcome, problem: str) -> None:
    """The engine cannot do what the step asked for: it counts as failed."""
    error = ErrorInfo(
        "usage", "UsageError", problem, procedure=record.id, step=record.step, step_name=record.step_name or ""
    )
    note_attempt(state.decision, record, item, error, outcome.elapsed)
    on_step_error(state, record, error, retryable=False)


def _place(state: EngineState, record: ProcedureRecord, item: InHand, outcome: Advanced) -> None:
    """No step ran: the code has changed, and another one comes next, which sees what this one would have seen."""
    tree = state.residents.tree_of(record)
    units = tree.units_of.get(record.id)
    if units and (units[-1].step, units[-1].attempt) == (record.step, record.attempt):
        # The undo of the step that was to come: that one was never begun.
        unit = units[-1]
        tree.pop(unit)
        state.decision.write(DeleteUndo(unit.root, unit.seq))
        record.last_unit = None
    awaiting, payload = record.awaiting, record.payload
    commit_step(state, record, item, outcome, "placed", None)
    record.awaiting, record.payload = awaiting, payload
    if record.rolling:
        stop_late(state, record)
    else:
        wake(state, record)
        _after_step(state, record)


def _end_poisoned(state: EngineState, record: ProcedureRecord, item: InHand, outcome: Poisoned) -> None:
    if not record.rolling and state.residents.has_no_return(record):
        # No way back, and no end without one: others are refused its keys, and the step runs again until it works.
        for path in outcome.keys:
            poison(state, path, record, outcome.error.message)
        note_attempt(state.decision, record, item, outcome.error, outcome.elapsed)
        on_step_error(state, record, outcome.error, retryable=False)
        return
    event, awaiting, payload = record.event, record.awaiting, record.payload
    error = _named(record, outcome.error)
    commit_step(state, record, item, outcome, "poisoned", error)
    for path in outcome.keys:
        poison(state, path, record, outcome.error.message)
    fail(state, record, error)
    # Should its root be retried, it runs again and sees what it saw; where it was `on_timeout`, it waits again.
    record.awaiting, record.payload = awaiting, payload
    if event is not None:
        head.interrupt(record, Interrupted(ProcedureState.WAITING, event))


def _go_on(state: EngineState, record: ProcedureRecord, outcome: Outcome) -> None:
    if isinstance(outcome, Advanced):
        if outcome.acquire:
            _add_locks(record, outcome.acquire)
        if outcome.after > 0:
            _sleep(state, record, outcome.after, Trigger.SLEPT)
        else:
            wake(state, record, to_the_back=outcome.yield_)
    elif isinstance(outcome, Slept):
        _sleep(state, record, outcome.pause(state.decision.now), Trigger.SLEPT)
    elif isinstance(outcome, Waited):
        _wait(state, record, outcome)
    elif isinstance(outcome, Suspended):
        suspend(state, record, outcome)


def _add_locks(record: ProcedureRecord, keys: tuple[LockKey, ...]) -> None:
    added = tuple(key for key in dict.fromkeys(keys) if key not in record.locks)
    if added:
        record.locks += added
        record.locked = False
        record.ticket = 0


def _sleep(state: EngineState, record: ProcedureRecord, seconds: float, trigger: Trigger) -> None:
    due_at = state.decision.now + seconds
    head.wait_until(record, due_at)
    state.timers.add(due_at, record.id)
    move(record, trigger)
    if record.pending:
        on_suspended(state, record)


def _wait(state: EngineState, record: ProcedureRecord, outcome: Waited) -> None:
    payload = take_buffered(state, record, outcome.event)
    if payload is not None:
        record.payload = payload
        wake(state, record)
        return
    record.event = outcome.event
    state.signals.subscribers.add(outcome.event, record.id)
    if outcome.timeout is None:
        move(record, Trigger.WAITED)
        if record.pending:
            on_suspended(state, record)
    else:
        _sleep(state, record, outcome.timeout, Trigger.WAITED_LIMITED)


def _finish(state: EngineState, record: ProcedureRecord, item: InHand, outcome: Finished) -> None:
    if record.rolling:
        # The tree failed while its last step ran: it is undone like the others, as if one step were to come.
        began = last_step(record)
        attempts, kept, named = record.attempt, (record.awaiting, settled(record.payload)), record.poisons
        commit_step(state, record, item, outcome, "done", None)
        # A retry runs this very step once more: it sees what it saw, no number of an attempt is given twice, and the
        # keys that were named for it, which are sound now, are poisoned again.
        head.keep_attempts(record, attempts)
        record.awaiting, record.payload = kept
        record.poisons = tuple(dict.fromkeys((*named, *record.poisons)))
        head.interrupt(record, began)
        stop_late(state, record)
        return
    close_step(state, record, item, outcome)
    acquire.end_of_step(state, record)
    if record.pending and record.on_parent_end == "abort":
        state.follow_ups.orphaned[record.id] = None
    end(state, record, _FINISHED)


def _begin_again(state: EngineState, record: ProcedureRecord, item: InHand, outcome: Renewed) -> None:
    if record.rolling:
        _finish(state, record, item, outcome.as_last_step())
    elif (problem := renewal.problem_with(state.residents, record)) is not None:
        error = ErrorInfo(
            "invalid-status",
            "InvalidStatus",
            problem,
            procedure=record.id,
            step=record.step,
            step_name=record.step_name or "",
        )
        note_attempt(state.decision, record, item, error, outcome.elapsed)
        on_step_error(state, record, error, retryable=False)
    else:
        renewal.begin_again(state, record, item, outcome)
        _after_step(state, record)


def _after_step(state: EngineState, record: ProcedureRecord) -> None:
    """A step ended well: an abort asked meanwhile comes due now."""
    if record.aborting and may_abort(state.residents, record):
        begin_abort(state, record)


# ---------------------------------------------------------------------- errors
def on_step_error(
    state: EngineState, record: ProcedureRecord, error: ErrorInfo, *, retryable: bool, after: float | None = None
) -> None:
    """A forward step failed: try it again by the policy of its submit or class, or fail the procedure."""
    policy = backoff_of(state.types, record)
    error = _named(record, error)
    first_error_at = head.count_error(record, state.decision.now)
    if not record.rolling or record.error is None:
        head.fail_with(record, error)
    state.decision.touch(record)
    if record.rolling:
        stop_late(state, record)
        return
    acquire.end_of_step(state, record)
    is_spent = backoff.is_exhausted(policy, errors=record.errors, first_error_at=first_error_at, now=state.decision.now)
    has_way_back = not state.residents.has_no_return(record)
    if record.aborting and has_way_back and (record.forced or not state.types.metas[record.type_name].asks_abort):
        fail(state, record, aborted_error(record))
    elif retryable and not is_spent:
        _retry(state, record, policy, after)
    elif not has_way_back:
        pause = min(backoff.delay(policy, procedure=record.id, step=record.step, errors=record.errors), MAX_STUCK_PAUSE)
        record.stuck = record.step
        if record.event is None:
            _retry(state, record, policy, pause)
        else:
            _wait_on(state, record, record.event, pause)
    else:
        fail(state, record, error)


def _named(record: ProcedureRecord, error: ErrorInfo) -> ErrorInfo:
    """The error with the name of its step, unless that is a later one than the engine knows of."""
    if error.step_name or not record.step_name or error.step != record.step:
        return error
    return replace(error, step_name=record.step_name)


def _retry(state: EngineState, record: ProcedureRecord, policy: Backoff, after: float | None) -> None:
    if after is None:
        after = backoff.delay(policy, procedure=record.id, step=record.step, errors=record.errors)
    head.wait_until(record, state.decision.now + after)
    wake(state, record)
    if record.aborting:
        state.follow_ups.asking[record.id] = None


def _wait_on(state: EngineState, record: ProcedureRecord, event: str, pause: float) -> None:
    """Its `on_timeout` failed where there is no way back: it waits on, for the signal or for the next attempt."""
    payload = take_buffered(state, record, event)
    if payload is not None:  # it came meanwhile
        record.event, record.payload = None, payload
        wake(state, record)
        return
    state.signals.subscribers.add(event, record.id)
    _sleep(state, record, pause, Trigger.WAITED_LIMITED)


# ---------------------------------------------------------------------- asked to abort
def _after_asking(state: EngineState, record: ProcedureRecord, outcome: Outcome) -> None:
    if record.rolling or record.state in TERMINAL:
        return
    is_refused = isinstance(outcome, Answered) and not outcome.allowed
    if (is_refused and not record.forced) or state.residents.has_no_return(record):
        wake(state, record)
    else:
        fail(state, record, aborted_error(record))
