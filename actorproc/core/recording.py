"""The record that a step leaves, from which the next one runs."""

from __future__ import annotations

from actorproc.core import locking
from actorproc.core.book import Book
from actorproc.core.ending import forget_listening
from actorproc.core.poisoning import update_poisons
from actorproc.core.staff import InHand
from actorproc.model.outcomes import Advanced, Outcome
from actorproc.model.records import ErrorInfo, ProcedureRecord, StepKind, StepRecord
from actorproc.model.writes import PutStep

__all__ = ["commit_step", "death_on_the_way", "may_have_gone_on"]

# Looked up once: CPython 3.11 runs Python code for every member that is taken from its enum.
_STEP = StepKind.STEP


def commit_step(
    book: Book, record: ProcedureRecord, item: InHand, outcome: Outcome, name: str, error: ErrorInfo | None
) -> None:
    """Write the record from which the next step runs, and give the next step fresh counters."""
    attempts = record.attempt
    crash = death_on_the_way(record) if record.error is not None else None
    record.step += outcome.steps
    # Not the same number as the step's after a retry: the records of the failed run stay.
    record.records += outcome.steps
    record.state_at = 0
    record.interrupted = None
    worker = item.token.worker
    version = outcome.version or book.types[record.type_name].version
    book.writes.append(
        PutStep(
            StepRecord(  # by position: half the time, and this one is made for nearly every step
                record.id,
                record.records,
                _STEP,
                book.now,
                outcome.state,
                outcome.codec or book.types[record.type_name].codec,
                version,
                name,
                outcome.unit,
                attempts,
                worker.slot,
                worker.incarnation,
                error,
                b"",  # no output
                outcome.elapsed,
                item.pid,
                crash,
                outcome.steps,
            )
        )
    )
    if version != record.version:
        record.version = version
        record.digest = b""  # of the state it began with, as another version of the class dumped it
    record.unit = outcome.unit
    record.unit_no_return = outcome.no_return
    # A step that may follow without a record may have begun in an attempt before this one: it is a repetition.
    record.attempt = int(attempts > 1 and may_have_gone_on(outcome))
    record.errors = record.crashes = 0
    record.first_error_at = None
    record.awaiting = 0
    record.payload = None
    if not record.rolling:
        record.error = None
    if record.event is not None:
        forget_listening(book, record)
    if outcome.poisons is not None and (outcome.poisons or record.poisons):  # the same again: one may have been cleared
        update_poisons(book, record, outcome.poisons)
    if record.locks:
        locking.end_of_step(book, record)
    book.touch(record)


def may_have_gone_on(outcome: Outcome) -> bool:
    """Whether a worker may begin the next step at once, before this one is recorded (`persist=False`)."""
    if type(outcome) is not Advanced or outcome.persist:
        return False
    waits = outcome.unit or outcome.yield_ or outcome.after or outcome.acquire or outcome.no_return or outcome.poisons
    return not waits


def death_on_the_way(record: ProcedureRecord) -> ErrorInfo | None:
    """The last death of a worker in the step that ends now, for its record: the head forgets it."""
    error = record.error
    if error is None or error.crash is None or error.procedure != record.id or error.step != record.step:
        return None
    return error
