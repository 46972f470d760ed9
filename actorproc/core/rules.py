"""Deciding: who answers for each event, and what that sets off until nothing moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actorproc.core.lifecycle import removal, renewal, signals, step_record, submit
from actorproc.core.lock_manager import acquire, poison
from actorproc.core.operator import bypass, pause, retry
from actorproc.core.results import abort, due_times, on_result, victims, worker_loss
from actorproc.core.rollback import failure_scope
from actorproc.core.scheduler import dedicated, reload, scaling, schedule
from actorproc.core.state.engine_state import EngineState
from actorproc.model.messages.commands import Decision
from actorproc.model.messages.events import (
    AbortRequested,
    Acknowledged,
    BypassRequested,
    DeleteRequested,
    Event,
    NoteMade,
    PauseRequested,
    PoisonCleared,
    Published,
    ReloadBegan,
    RemovalContinued,
    Resized,
    ResultsTaken,
    ResumeRequested,
    RetryRequested,
    RollbackRequested,
    Signalled,
    SignalsExpired,
    SignalsWithdrawn,
    StepDelayed,
    StepEnded,
    StepReturned,
    Submitted,
    Tick,
    TreesExpired,
    TypeRegistered,
    WorkerLeaving,
    WorkerLost,
    WorkerReady,
)

__all__ = ["HANDLERS", "follow_up", "settle"]


def settle(book: EngineState) -> Decision:
    """Follow up what an event set off; then fill the workers and close the decision."""
    follow_up(book)
    while not _staffs(book):
        follow_up(book)
    if book.shedding:
        renewal.shed(book)
    return book.close()


def follow_up(book: EngineState) -> None:
    """Carry out all that an event set off without a worker: grants, victims, failing scopes. Empties the agenda."""
    while True:
        if book.locks.has_news:
            for record in acquire.note_grants(book):
                schedule.wake(book, record)
        elif book.bereft:
            acquire.demote(book)
        elif book.retaken:
            retried = book.trees[book.retaken.popitem()[0]]
            schedule.go_on(book, retried, retried.root)
        elif book.refused or book.orphaned or book.outlived or book.victims:
            victims.fail_next(book)
        elif (top := failure_scope.next_scope(book)) is not None:
            failure_scope.advance(book, top)
        elif book.searches:
            victims.search_stalled(book)
        elif book.lobby.capacity is not None and book.lobby.has_news:
            schedule.let_in(book)
        elif book.overdue:
            _end_overdue(book)
        else:
            return


def _end_overdue(book: EngineState) -> None:
    """Procedures whose turn came after their deadline; by now it may have ended with its tree, for that of a relative.

    Or a relative was handed a step from which there is no way back: then it goes forward, late as it is.
    """
    record = book.procs[book.overdue.popitem()[0]]
    if book.is_late(record):
        due_times.miss_deadline(book, record)
    else:
        schedule.wake(book, record)


def _staffs(book: EngineState) -> bool:
    """Give the workers what they have room for; True when that set off nothing else."""
    if book.hired:
        dedicated.let_finished_go(book)
    schedule.fill(book)
    return not book.overdue and not book.refused


def _register(book: EngineState, event: TypeRegistered) -> None:
    known = book.types.get(event.meta.type_name)
    book.know(event.meta)
    if known is not None and (known.work_class, known.dedicated) != (event.meta.work_class, event.meta.dedicated):
        schedule.queue_again(book, event.meta.type_name)
    if book.asking and not event.meta.asks_abort:
        abort.need_not_ask(book, event.meta.type_name)
    for name in book.parked.pop(event.meta.type_name, ()):
        record = book.procs.get(name)
        if record is None or (record.parked is None and record.type_name != event.meta.type_name):
            continue  # it has ended, or goes on already since its own type was registered
        if record.parked is not None:
            record.parked = None
            book.touch(record)
        if record.aborting and abort.may_abort(book, record):
            abort.begin_abort(book, record)
        schedule.wake(book, record)


def _tick(book: EngineState, _event: Tick) -> None:
    for name in book.timers.pop_due(book.now):
        record = book.procs.get(name)
        if record is not None:
            due_times.on_due(book, record)
    book.slots.pass_time(book.now)
    schedule.steal(book)
    scaling.look_after(book)


HANDLERS: dict[type[Event], Callable[[EngineState, Any], None]] = {
    StepEnded: on_result.on_ended,
    Submitted: submit.submit,
    StepReturned: on_result.on_returned,
    StepDelayed: on_result.on_delayed,
    WorkerReady: worker_loss.on_ready,
    WorkerLeaving: dedicated.on_leaving,
    WorkerLost: worker_loss.on_lost,
    TypeRegistered: _register,
    AbortRequested: abort.request_abort,
    RetryRequested: retry.request_retry,
    RollbackRequested: retry.request_rollback,
    BypassRequested: bypass.request_bypass,
    PauseRequested: pause.request_pause,
    ResumeRequested: pause.request_resume,
    Signalled: signals.signal,
    Published: signals.publish,
    SignalsWithdrawn: signals.withdraw,
    SignalsExpired: signals.expire,
    NoteMade: step_record.note,
    PoisonCleared: poison.clear,
    Acknowledged: removal.acknowledge,
    DeleteRequested: removal.delete,
    ResultsTaken: removal.take,
    TreesExpired: removal.expire,
    RemovalContinued: removal.continue_removal,
    Resized: scaling.resize,
    ReloadBegan: reload.begin,
    Tick: _tick,
}
"""Handlers by type of event; a test compares it with the vocabulary."""
