"""Requests of people and of running steps: aborts, write-ahead notes; and what time brings."""

from __future__ import annotations

from actorproc.core.book import Book
from actorproc.core.cancelling import cancel_step, kill_cancelled, kill_outstaying, stop_forced
from actorproc.core.damage import error_of
from actorproc.core.failing import aborted_error, fail
from actorproc.core.lifecycle import Trigger, move
from actorproc.core.queueing import note_unbegun, park, wake
from actorproc.core.staff import InHand
from actorproc.errors import UnknownProcedure
from actorproc.model.commands import AnswerWorker, AskAbort, Reply
from actorproc.model.events import AbortRequested, NoteMade, PoisonCleared
from actorproc.model.ids import Mode
from actorproc.model.outcomes import Refused
from actorproc.model.records import ErrorInfo, NoteRecord, ProcedureRecord
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.model.writes import DeletePoison, PutNote

__all__ = [
    "ask_again",
    "begin_abort",
    "clear_poison",
    "may_abort",
    "note",
    "on_due",
    "on_refused",
    "press_abort",
    "request_abort",
]


# ---------------------------------------------------------------------- abort
def request_abort(book: Book, event: AbortRequested) -> None:
    """Ask a procedure to abort; the request is durable and False means it has ended already."""
    record = book.procs.get(event.id)
    if record is None:
        unknown = UnknownProcedure(f"no procedure has the id {event.id!r}")
        book.command(Reply(event.reply, error=error_of(book, event.id) or unknown))
        return
    if record.state in TERMINAL or record.bypassing:
        book.command(Reply(event.reply, value=False))
        return
    record.aborting = True
    record.forced = record.forced or event.force
    book.audit(record, "abort", event.reason, "by force" if event.force else "")
    press_abort(book, record)
    book.command(Reply(event.reply, value=True))


def press_abort(book: Book, record: ProcedureRecord) -> None:
    """Have a procedure answer for the abort it was asked for; by force its steps and those below it are killed.

    Past the point of no return the wish is recorded and has no effect. During a rollback force alone has one: it kills
    forward steps that the rollback waits for.
    """
    if may_abort(book, record):
        _decide_or_ask(book, record)
    if record.forced and record.rolling and not record.bypassing:
        kill_cancelled(book, record)


def _decide_or_ask(book: Book, record: ProcedureRecord) -> None:
    worker = book.staff.in_hand.get(record.id)
    if worker is None:
        begin_abort(book, record)
        return
    item = worker.queue[record.id]
    meta = book.meta(record)
    if item.token.mode is Mode.ASK_ABORT:
        if record.forced:
            item.forced = "aborted"
            stop_forced(book, worker, item)
    elif not record.forced and (meta is None or meta.asks_abort):
        # It decides when its step has ended and it was asked; until then its descendants know nothing.
        book.command(AskAbort(item.token))
    elif _has_open_children(book, record):
        fail(book, record, aborted_error(record))
    else:
        # Alone, a last step that ends well after all has ended the procedure: there is nothing to undo it for.
        cancel_step(book, record)
        if record.forced:
            item.forced = "aborted"
            stop_forced(book, worker, item)


def _has_open_children(book: Book, record: ProcedureRecord) -> bool:
    if not record.children:
        return False
    tree = book.tree_of(record)
    return any(tree.members[name].state not in TERMINAL for name in tree.children.get(record.id, ()))


def may_abort(book: Book, record: ProcedureRecord) -> bool:
    """Whether an abort it was asked for could have an effect now: it goes forward, and may turn back."""
    if record.rolling or record.bypassing or record.state in TERMINAL:
        return False
    return not book.has_no_return(record)


def begin_abort(book: Book, record: ProcedureRecord) -> None:
    """Ask one that `may_abort` and is in nobody's hands; a class without `abort` is not asked, nor one nobody knows."""
    meta = book.meta(record)
    was_executed = record.step > 1 or record.attempt > 0
    may_refuse = book.unattended if meta is None else meta.asks_abort
    if record.forced or not was_executed or not may_refuse:
        fail(book, record, aborted_error(record))
    else:
        book.asking[record.id] = None


def need_not_ask(book: Book, type_name: str) -> None:
    """This class, registered anew, has no `abort` any more: who waits for a worker to be asked is aborted at once."""
    for name in list(book.asking):
        record = book.procs.get(name)
        if record is None or record.type_name != type_name or name in book.staff.in_hand:
            continue
        if may_abort(book, record) and not book.tree_of(record).is_still(name):
            begin_abort(book, record)


def on_refused(book: Book, record: ProcedureRecord, outcome: Refused) -> None:
    """No worker can run its step as it is: it is set aside, unless it must not go on anyway, or has ended."""
    if record.state in TERMINAL and not record.undoing:
        return  # while it was to be asked about its abort
    if outcome.is_unbegun:
        note_unbegun(book, record)
    record.parked = outcome.reason
    book.touch(record)
    park(book, record, outcome.needs)
    book.parkings += 1  # also where another one of the same id was parked before
    if record.forced and may_abort(book, record):  # its answer came before the kill did
        fail(book, record, aborted_error(record))


def ask_again(book: Book, record: ProcedureRecord) -> None:
    """The question about its abort came back unanswered; force asks nobody."""
    if not record.aborting:
        wake(book, record)  # it was asked of another run, or of another procedure under this id
    elif record.forced and may_abort(book, record):
        fail(book, record, aborted_error(record))
    else:
        book.asking[record.id] = None


# ---------------------------------------------------------------------- poison keys
def clear_poison(book: Book, event: PoisonCleared) -> None:
    """An operator found the object behind a key to be sound; False means that the key is not poisoned.

    Whoever needed the key was refused, so nobody is there to be woken. A poisoner that still runs goes on, and
    may poison the key again with a later step.
    """
    is_poisoned = book.poisons.pop(event.path, None) is not None
    if is_poisoned:
        book.write(DeletePoison(event.path))
        book.audit(None, "clear-poison", event.reason, event.path)
    book.command(Reply(event.reply, value=is_poisoned))


# ---------------------------------------------------------------------- notes
def note(book: Book, event: NoteMade) -> None:
    """Store a write-ahead note of a running step; the step goes on when it is durable."""
    if book.staff.current(event.token) is None:
        book.stale_results += 1
        return
    step = max(event.step, event.token.step)
    book.write(PutNote(NoteRecord(event.token.procedure, step, event.key, event.value)))
    book.command(AnswerWorker(event.token, event.request))


# ---------------------------------------------------------------------- time
def on_due(book: Book, record: ProcedureRecord) -> None:
    """A timer of this procedure went off: its deadline, or the end of a wait, sleep, delay or backoff."""
    if record.state in TERMINAL and not record.undoing:
        return
    kill_outstaying(book, record)
    if book.is_late(record):
        miss_deadline(book, record)
        return
    if _runs_past_deadline(book, record):
        _kill_late(book, record)
        return
    if record.due_at is None or record.due_at > book.now:
        return
    if record.state is ProcedureState.WAITING_TIMEOUT:
        record.due_at = None
        book.touch(record)
        _end_wait(book, record)
    else:
        wake(book, record)


def miss_deadline(book: Book, record: ProcedureRecord) -> None:
    """The deadline of a procedure passed: kill the step it runs, or fail it at once."""
    if record.id in book.staff.in_hand:
        _kill_late(book, record)
    else:
        fail(book, record, deadline_error(record))


def _runs_past_deadline(book: Book, record: ProcedureRecord) -> bool:
    """Whether a forward step runs on though its tree has failed over the same deadline."""
    if record.deadline is None or record.deadline > book.now or record.id not in book.staff.in_hand:
        return False
    return book.staff.in_hand[record.id].queue[record.id].token.mode is not Mode.ROLLBACK and record.rolling


def _kill_late(book: Book, record: ProcedureRecord) -> None:
    worker = book.staff.in_hand[record.id]
    item = worker.queue[record.id]
    if item.forced is None:
        item.forced = "deadline"
        stop_forced(book, worker, item)


def end_forced(book: Book, record: ProcedureRecord, item: InHand) -> None:
    """The step was killed or taken back. Where its tree fails already, or has no way back, that is all."""
    if record.rolling or book.has_no_return(record):
        wake(book, record, to_the_front=True)
    else:
        fail(book, record, deadline_error(record) if item.forced == "deadline" else aborted_error(record))


def deadline_error(record: ProcedureRecord) -> ErrorInfo:
    """What a procedure past its deadline fails with."""
    return ErrorInfo("deadline", "DeadlineExceeded", "the deadline passed", procedure=record.id, step=record.step)


def _end_wait(book: Book, record: ProcedureRecord) -> None:
    if record.event is None:
        move(record, Trigger.DUE)
        wake(book, record)
        return
    meta = book.meta(record)
    if meta is None or meta.has_on_timeout:
        # `event` stays set: it says that the next step calls on_timeout().
        book.listeners.discard(record.event, record.id)
        move(record, Trigger.DUE)
        wake(book, record)
        return
    message = f"no signal for {record.event!r} came in time"
    error = ErrorInfo("wait-timeout", "WaitTimeout", message, procedure=record.id, step=record.step)
    if book.has_no_return(record):
        # No way back: it goes on waiting, and says what it waits for in vain.
        record.error = error
        return
    fail(book, record, error)
