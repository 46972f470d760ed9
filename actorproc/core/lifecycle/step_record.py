"""The record that a step leaves, from which the next one runs, and the notes that a step stores while it runs."""

from __future__ import annotations

from msgspec.structs import replace

from actorproc.core.lifecycle.finish import forget_listening
from actorproc.core.lifecycle.step_requests import grant
from actorproc.core.lock_manager import acquire
from actorproc.core.lock_manager.poison import update_poisons
from actorproc.core.queues.worker_table import InHand
from actorproc.core.state.engine_state import EngineState
from actorproc.core.state.head import begin_step, end_last_step, note_searchable
from actorproc.core.state.parts.decision import PendingDecision
from actorproc.core.state.signal_ids import settle_ask
from actorproc.model.messages.commands import AnswerWorker
from actorproc.model.messages.events import NoteMade, StepReported
from actorproc.model.messages.outcomes import Advanced, Finished, Outcome, Renewed, Waited
from actorproc.model.rows.records import (
    ErrorInfo,
    ExposedRecord,
    NoteRecord,
    Past,
    ProcedureRecord,
    StepKind,
    StepRecord,
    StepTerms,
)
from actorproc.model.rows.writes import PutExposed, PutNote, PutStep, TrimLog

__all__ = ["close_step", "commit_step", "death_on_the_way", "may_have_gone_on", "note", "report"]

# Looked up once: CPython 3.11 runs Python code for every member that is taken from its enum.
_STEP, _COMMIT = StepKind.STEP, StepKind.COMMIT


def commit_step(
    state: EngineState,
    record: ProcedureRecord,
    item: InHand,
    outcome: Outcome,
    name: str,
    error: ErrorInfo | None,
    next_attempt: int = 0,
) -> None:
    """Write the record from which the next step runs, and give the next step fresh counters.

    `next_attempt`: the next step goes out with this very decision, as this attempt.
    """
    attempts = record.attempt
    crash = death_on_the_way(record) if record.error is not None else None
    record.step += outcome.steps
    # Not the same number as the step's after a retry: the records of the failed run stay.
    record.records += outcome.steps
    record.state_at = 0
    requests = outcome.requests
    if requests is not None or record.past is not None:
        note_searchable(record, () if requests is None else requests.searchable)
    worker = item.token.worker
    version = outcome.version or state.types.metas[record.type_name].version
    is_plain = not (
        record.locks
        or record.poisons
        or outcome.poisons
        or outcome.no_return
        or (type(outcome) is Advanced and outcome.acquire)
        or (requests is not None and requests.searchable)
    )
    state.decision.writes.append(
        PutStep(
            StepRecord(  # by position: half the time, and this one is made for nearly every step
                record.id,
                record.records,
                _STEP,
                state.decision.now,
                outcome.state,
                outcome.codec or state.types.metas[record.type_name].codec,
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
                outcome.step_name,
                record.payload,
                outcome.event if type(outcome) is Waited else None,
                outcome.fence,
                None if is_plain else _terms_after(record, outcome),
            )
        )
    )
    if version != record.version:
        record.version = version
        record.digest = b""  # of the state it began with, as another version of the class dumped it
    record.unit = outcome.unit
    record.step_name = outcome.step_name
    record.unit_no_return = outcome.no_return
    # A step that may follow without a record may have begun in an attempt before this one: it is a repetition.
    begin_step(record, next_attempt or int(attempts > 1 and may_have_gone_on(outcome)))
    record.awaiting = 0
    if record.payload is not None:
        if error is None and not (type(outcome) is Advanced and outcome.placed):
            settle_ask(state, record, outcome)
        record.payload = None
    if record.event is not None:
        forget_listening(state.signals, record)
    if outcome.poisons is not None and (outcome.poisons or record.poisons):  # the same again: one may have been cleared
        update_poisons(state, record, outcome.poisons)
    if record.locks:
        acquire.end_of_step(state, record)
    _trim(state, record, record.records - outcome.steps)
    state.decision.touch(record)
    if requests is not None:
        grant(state, record, requests)


def _terms_after(record: ProcedureRecord, outcome: Outcome) -> StepTerms | None:
    """Terms of the step that comes after this outcome."""
    locks = outcome.locks if type(outcome) is Renewed else record.locks
    if type(outcome) is Advanced and outcome.acquire:
        locks = tuple(dict.fromkeys((*locks, *outcome.acquire)))
    poisons = record.poisons if outcome.poisons is None else outcome.poisons
    return StepTerms(locks, poisons, outcome.no_return, record.searchable)


def _trim(state: EngineState, record: ProcedureRecord, below: int) -> None:
    """Remove records that neither recovery nor an undo reads: all but the first and the last `keep_steps`.

    They go in batches, so a log has between `keep_steps` and about twice as many records of done steps. A batch ends
    at the number of a record, so that what is left can be counted. `below` is the record before the newest: a retry
    may start from that one.
    """
    meta = state.types.metas[record.type_name]
    keep = meta.keep_steps
    if keep is None:
        if record.rollback_supported or state.settings.quotas.steps is None:
            return
        keep = state.settings.quotas.steps
    past = record.past
    if below - (1 if past is None else past.next) < keep:
        return
    past = past or Past()
    trimmed = past.next
    if trimmed > 1:
        step = max(0, record.step - (record.records - trimmed))
        state.decision.write(TrimLog(record.id, max(past.trimmed, 1) + 1, trimmed, step))
    record.past = replace(past, trimmed=trimmed if trimmed > 1 else 0, next=record.records)


def may_have_gone_on(outcome: Outcome) -> bool:
    """True if a worker may begin the next step at once, before this one is recorded (`persist=False`)."""
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


def close_step(state: EngineState, record: ProcedureRecord, item: InHand, outcome: Finished) -> None:
    """Write the closing record of a procedure whose last step ended well."""
    attempts = record.attempt
    crash = death_on_the_way(record) if record.error is not None else None
    record.step += outcome.steps
    record.records += outcome.steps
    record.state_at = 0
    end_last_step(record)
    record.step_name = None
    if outcome.requests is not None or record.past is not None:
        note_searchable(record, () if outcome.requests is None else outcome.requests.searchable)
    worker = item.token.worker
    # The closing record holds the output; the state is kept beside it, because a finished child may be undone.
    state.decision.writes.append(
        PutStep(
            StepRecord(  # by position, as in `commit_step`
                record.id,
                record.records,
                _COMMIT,
                state.decision.now,
                outcome.state,
                outcome.codec or state.types.metas[record.type_name].codec,
                outcome.version or state.types.metas[record.type_name].version,
                "done",
                None,  # no unit
                attempts,
                worker.slot,
                worker.incarnation,
                None,  # no error
                outcome.output,
                outcome.elapsed,
                item.pid,
                crash,
                outcome.steps,
                None,  # no step follows
                record.payload,
                None,  # it waits for nothing
                outcome.fence,
            )
        )
    )
    if record.payload is not None:
        settle_ask(state, record, outcome)
    if outcome.requests is not None:
        grant(state, record, outcome.requests)
    if outcome.is_spent and record.records == 2 and record.parent is None:
        _empty_first_record(state.decision, record, outcome)


def _empty_first_record(decision: PendingDecision, record: ProcedureRecord, outcome: Finished) -> None:
    """Keep of the state it was submitted with that there was one. The room of a long one is used again at once."""
    kind, codec, version = _STEP, outcome.codec, outcome.version or record.version
    decision.write(PutStep(StepRecord(record.id, 1, kind, record.created_at, b"", codec, version, "submitted")))


def note(state: EngineState, event: NoteMade) -> None:
    """Store a write-ahead note of a running step; the step goes on when it is durable."""
    if state.workers.table.current(event.token) is None:
        state.counters.count_stale()
        return
    step = max(event.step, event.token.step)
    state.decision.write(PutNote(NoteRecord(event.token.procedure, step, event.key, event.value)))
    state.decision.command(AnswerWorker(event.token, event.request))


def report(state: EngineState, event: StepReported) -> None:
    """Store what a running step shows of itself; its next attempt is given the details of the last heartbeat."""
    token = event.token
    record = state.residents.procs.get(token.procedure)
    if state.workers.table.current(token) is None or record is None:
        state.counters.count_stale()
        return
    if event.exposed and not record.exposes:
        record.past = replace(record.past or Past(), exposes=True)
        state.decision.touch(record)
    for key, value in event.exposed:
        state.decision.write(PutExposed(ExposedRecord(token.procedure, key, value, state.decision.now)))
    if event.details is not None:
        step = max(event.step, token.step)
        state.decision.write(PutNote(NoteRecord(token.procedure, step, event.key, event.details)))
