"""Deciding: who answers for each event, and what that sets off until nothing moves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from actorproc.core import (
    aborting,
    bypassing,
    crashes,
    due,
    failing,
    locking,
    pausing,
    poisoning,
    queueing,
    recording,
    reloading,
    renewing,
    retention,
    retrying,
    signalling,
    staffing,
    stepping,
    submitting,
    victims,
    workforce,
)
from actorproc.core.book import Book
from actorproc.model.commands import Decision
from actorproc.model.events import (
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


def settle(book: Book) -> Decision:
    """Follow up what an event set off; then fill the workers and close the decision."""
    follow_up(book)
    while not _staffs(book):
        follow_up(book)
    if book.shedding:
        renewing.shed(book)
    return book.close()


def follow_up(book: Book) -> None:
    """Carry out all that an event set off without a worker: grants, victims, failing scopes. Empties the agenda."""
    while True:
        if book.locks.has_news:
            for record in locking.note_grants(book):
                queueing.wake(book, record)
        elif book.bereft:
            locking.demote(book)
        elif book.retaken:
            retried = book.trees[book.retaken.popitem()[0]]
            queueing.go_on(book, retried, retried.root)
        elif book.refused or book.orphaned or book.outlived or book.victims:
            victims.fail_next(book)
        elif (top := failing.next_scope(book)) is not None:
            failing.advance(book, top)
        elif book.searches:
            victims.search_stalled(book)
        elif book.lobby.capacity is not None and book.lobby.has_news:
            queueing.let_in(book)
        elif book.overdue:
            _end_overdue(book)
        else:
            return


def _end_overdue(book: Book) -> None:
    """Procedures whose turn came after their deadline; by now it may have ended with its tree, for that of a relative.

    Or a relative was handed a step from which there is no way back: then it goes forward, late as it is.
    """
    record = book.procs[book.overdue.popitem()[0]]
    if book.is_late(record):
        due.miss_deadline(book, record)
    else:
        queueing.wake(book, record)


def _staffs(book: Book) -> bool:
    """Give the workers what they have room for; True when that set off nothing else."""
    if book.hired:
        staffing.let_finished_go(book)
    queueing.fill(book)
    return not book.overdue and not book.refused


def _register(book: Book, event: TypeRegistered) -> None:
    known = book.types.get(event.meta.type_name)
    book.know(event.meta)
    if known is not None and (known.work_class, known.dedicated) != (event.meta.work_class, event.meta.dedicated):
        queueing.queue_again(book, event.meta.type_name)
    if book.asking and not event.meta.asks_abort:
        aborting.need_not_ask(book, event.meta.type_name)
    for name in book.parked.pop(event.meta.type_name, ()):
        record = book.procs.get(name)
        if record is None or (record.parked is None and record.type_name != event.meta.type_name):
            continue  # it has ended, or goes on already since its own type was registered
        if record.parked is not None:
            record.parked = None
            book.touch(record)
        if record.aborting and aborting.may_abort(book, record):
            aborting.begin_abort(book, record)
        queueing.wake(book, record)


def _tick(book: Book, _event: Tick) -> None:
    for name in book.timers.pop_due(book.now):
        record = book.procs.get(name)
        if record is not None:
            due.on_due(book, record)
    book.slots.pass_time(book.now)
    queueing.steal(book)
    workforce.look_after(book)


HANDLERS: dict[type[Event], Callable[[Book, Any], None]] = {
    StepEnded: stepping.on_ended,
    Submitted: submitting.submit,
    StepReturned: stepping.on_returned,
    StepDelayed: stepping.on_delayed,
    WorkerReady: crashes.on_ready,
    WorkerLeaving: staffing.on_leaving,
    WorkerLost: crashes.on_lost,
    TypeRegistered: _register,
    AbortRequested: aborting.request_abort,
    RetryRequested: retrying.request_retry,
    RollbackRequested: retrying.request_rollback,
    BypassRequested: bypassing.request_bypass,
    PauseRequested: pausing.request_pause,
    ResumeRequested: pausing.request_resume,
    Signalled: signalling.signal,
    Published: signalling.publish,
    SignalsWithdrawn: signalling.withdraw,
    SignalsExpired: signalling.expire,
    NoteMade: recording.note,
    PoisonCleared: poisoning.clear,
    Acknowledged: retention.acknowledge,
    DeleteRequested: retention.delete,
    ResultsTaken: retention.take,
    TreesExpired: retention.expire,
    RemovalContinued: retention.continue_removal,
    Resized: workforce.resize,
    ReloadBegan: reloading.begin,
    Tick: _tick,
}
"""Handlers by type of event; a test compares it with the vocabulary."""
