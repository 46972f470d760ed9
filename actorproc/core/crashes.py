"""Workers coming and going: what a death costs, and whom it is charged to.

The first unanswered step of a dead worker ran when it died and is charged; the steps behind it may have
been begun and go back to the queue uncharged, as replayed ones. A host restart charges nobody.
"""

from __future__ import annotations

from actorproc.core.book import Book
from actorproc.core.failing import aborted_error, fail, look_again
from actorproc.core.queueing import wake
from actorproc.core.staff import InHand
from actorproc.core.stepping import on_step_error
from actorproc.core.undoing import on_rollback_error
from actorproc.core.verbs import end_forced
from actorproc.model.events import WorkerLost, WorkerReady
from actorproc.model.ids import Mode
from actorproc.model.records import ErrorInfo, ProcedureRecord

__all__ = ["on_lost", "on_ready"]


def on_ready(book: Book, event: WorkerReady) -> None:
    """A worker takes steps now."""
    book.staff.add(event.worker, book.now)


def on_lost(book: Book, event: WorkerLost) -> None:
    """A worker is dead: charge the step it died in, hand everything it had to others."""
    worker = book.staff.find(event.worker)
    if worker is None:
        return
    items = book.staff.lose(worker)
    for item in items:
        book.tree_of(book.procs[item.token.procedure]).running.discard(item.token.procedure)
    guilty = _guilty(items, event)
    # What a dead worker had in hand goes first again, in its old order.
    for item in reversed(items):
        record = book.procs[item.token.procedure]
        book.warm.pop(record.id, None)
        if item is guilty:
            _charge(book, record, item, event)
        else:
            _give_back(book, record, item)
        look_again(book, record)


def _guilty(items: list[InHand], event: WorkerLost) -> InHand | None:
    if event.blamed is not None:
        return next((item for item in items if item.token == event.blamed), None)
    return items[0] if items and event.crashed else None


def _give_back(book: Book, record: ProcedureRecord, item: InHand) -> None:
    if item.token.mode is Mode.ASK_ABORT:
        book.asking[record.id] = None
    elif item.forced is not None:
        end_forced(book, record, item)
    else:
        wake(book, record, to_the_front=True)


def _charge(book: Book, record: ProcedureRecord, item: InHand, event: WorkerLost) -> None:
    report = event.report
    details = "\n".join(part for part in (report.stack.rstrip(), report.stderr.rstrip()) if part)
    if item.token.mode is Mode.ASK_ABORT and not book.has_no_return(record):
        # A procedure that dies over the question is not asked twice.
        fail(book, record, aborted_error(record))
    elif item.token.mode is Mode.ASK_ABORT or item.forced is not None:
        end_forced(book, record, item)
    elif event.blamed is not None:
        error = ErrorInfo("timeout", "StepTimeout", report.message, details, record.id, item.token.step)
        if item.token.mode is Mode.ROLLBACK:
            on_rollback_error(book, record, error, retryable=True)
        else:
            on_step_error(book, record, error, retryable=True)
    else:
        _count_crash(book, record, item, f"its worker crashed: {report.message}", details)


def _count_crash(book: Book, record: ProcedureRecord, item: InHand, message: str, details: str) -> None:
    record.crashes += 1
    book.touch(record)
    limit = book.types[record.type_name].crashes
    in_words = f"{message}, for the {_ordinal(record.crashes)} time in step {item.token.step}"
    error = ErrorInfo("crash", "WorkerCrashed", in_words, details, record.id, item.token.step)
    if record.crashes < limit:
        if not record.rolling and not record.undoing:
            record.error = error
        wake(book, record, to_the_front=True)
    elif item.token.mode is Mode.ROLLBACK:
        on_rollback_error(book, record, error, retryable=False)
    else:
        on_step_error(book, record, error, retryable=False)


def _ordinal(number: int) -> str:
    if number % 100 in (11, 12, 13):
        return f"{number}th"
    return f"{number}{ {1: 'st', 2: 'nd', 3: 'rd'}.get(number % 10, 'th') }"
