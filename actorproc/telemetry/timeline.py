"""From commits to spans: which attempts and waits of traced procedures are under way, and which have ended.

Heads and records come here after they are durable, in their order, on the thread of the recorder. The knowledge of the
attempts under way may be lost (a full queue, a restart). Then the records tell of an attempt nearly as much.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import TypeVar

import msgspec

from actorproc.core.results.adoption import handed_out
from actorproc.core.state.phases import is_interrupted, is_waiting_for_locks
from actorproc.model.ids import Mode, StepToken
from actorproc.model.messages.commands import RunStep
from actorproc.model.messages.events import WorkerLost
from actorproc.model.rows.records import (
    WITH_SLOT,
    AttemptRecord,
    ErrorInfo,
    ProcedureRecord,
    StepKind,
    StepRecord,
    Trace,
)
from actorproc.model.states import TERMINAL, ProcedureState
from actorproc.model.trace_context import is_sampled
from actorproc.telemetry.spans import (
    Attribute,
    SpanFacts,
    attempt_facts,
    ended_attempt,
    failed_attempt,
    lost_facts,
    procedure_facts,
    wait_facts,
)

__all__ = ["SHORTEST_WAIT", "SpanTimeline", "TracedCommit", "trace_of"]

SHORTEST_WAIT = 0.1
"""Seconds that a wait takes at least to be a span."""
_MOST = 50_000
"""Procedures of which it is known what is under way; the oldest are forgotten first."""
_T = TypeVar("_T")


class TracedCommit(msgspec.Struct, frozen=True, gc=False):
    """The part of a commit that is about procedures whose trace is recorded."""

    heads: tuple[tuple[ProcedureRecord, bool], ...] = ()
    """Heads in their order, and for each whether the procedure had ended before."""
    steps: tuple[StepRecord, ...] = ()
    """Records of steps that workers ended, without states and outputs."""
    failed: tuple[AttemptRecord, ...] = ()
    runs: tuple[RunStep, ...] = ()
    lost: tuple[WorkerLost, ...] = ()


class _Open(msgspec.Struct, gc=False):
    """An attempt that is under way."""

    record: ProcedureRecord
    """The head as it was when the attempt was handed out."""
    trace: Trace
    token: StepToken
    name: str | None
    since: float | None
    """Time of the hand-out; None: not known."""
    queued: float = 0.0
    began: float | None = None
    """As the worker says, by its own clock; None: it has not said."""
    refused: float | None = None
    """Time at which its worker refused it, which is no answer; None: it is under way."""
    words: str = "the attempt has no answer that counts: its worker was stopped or gave it up; the step runs again"


class _Idle(msgspec.Struct, gc=False):
    """A wait that is under way."""

    kind: str
    since: float
    detail: dict[str, Attribute]


def trace_of(record: ProcedureRecord) -> Trace | None:
    """The place of a procedure in a trace that is recorded; None: there is none."""
    past = record.past
    trace = past.trace if past is not None else None
    return trace if trace is not None and is_sampled(trace.context) else None


class SpanTimeline:
    """Attempts and waits that are under way. For one thread."""

    def __init__(self) -> None:
        self._open: dict[str, _Open] = {}
        self._idle: dict[str, _Idle] = {}

    def forget(self) -> None:
        """Commits were left out: what is under way is not known any more."""
        self._open.clear()
        self._idle.clear()

    def recovered(self, heads: Iterable[ProcedureRecord], failed: Collection[AttemptRecord] = ()) -> None:
        """Take up what an earlier manager left under way.

        Args:
            heads: Heads of procedures as they were found at the start.
            failed: Failed attempts of theirs; such an attempt is not under way, whatever its head says.
        """
        over = {(one.procedure, *_number(failed_attempt(one))) for one in failed}
        for record in heads:
            trace = trace_of(record)
            if trace is None or record.state in TERMINAL:
                continue
            token = handed_out(record) if is_interrupted(record) else None
            if token is not None and (record.id, *_number(token)) not in over:
                words = (
                    "the manager ended, killed or stopped, before an answer of this attempt was stored; the attempt "
                    "was found at the restart, and the step runs again"
                )
                self._open[record.id] = _Open(record, trace, token, record.current_name, record.updated_at, words=words)
            else:
                self._wait(record, record.updated_at)

    def began(self, token: StepToken, at: float) -> None:
        """Note when a step began.

        Args:
            token: The attempt.
            at: Epoch seconds by the clock of its worker.
        """
        found = self._open.get(token.procedure)
        if found is not None and found.token == token:
            found.began = at

    def committed(self, commit: TracedCommit) -> list[SpanFacts]:
        """Take a commit; the spans that have ended with it.

        Args:
            commit: The commit.

        Returns:
            The facts of the spans.
        """
        newest = {record.id: record for record, _ in commit.heads}
        spans = [self._failed(failed, newest[failed.procedure]) for failed in commit.failed]
        for step in commit.steps:
            spans += self._ended(step, newest[step.procedure])
        for event in commit.lost:
            self._lost(event)
        running = {run.token.procedure for run in commit.runs}
        for record, had_ended in commit.heads:
            if (trace := trace_of(record)) is not None:
                spans += self._head(record, trace, had_ended=had_ended)
        over = {(one.procedure, *_number(failed_attempt(one))) for one in commit.failed}
        for run in commit.runs:
            if (run.token.procedure, *_number(run.token)) in over:
                continue  # its worker died before the commit that hands it out
            if run.token.mode is not Mode.ASK_ABORT and (head := newest.get(run.token.procedure)) is not None:
                spans += self._handed_out(run, head)
        for name in running:
            self._idle.pop(name, None)
        _shorten(self._open)
        _shorten(self._idle)
        return spans

    # ------------------------------------------------------------ attempts
    def _handed_out(self, run: RunStep, head: ProcedureRecord) -> list[SpanFacts]:
        trace = trace_of(head)
        if trace is None:
            return []
        before = self._open.get(head.id)
        spans = []
        if before is not None and _number(before.token) != _number(run.token):
            spans.append(self._given_up(before, head.updated_at))
        spans += self._end_wait(head, trace, head.updated_at)
        self._open[head.id] = _Open(head, trace, run.token, run.step_name, head.updated_at, run.queued)
        return spans

    def _given_up(self, attempt: _Open, at: float) -> SpanFacts:
        at = at if attempt.refused is None else attempt.refused
        error = ErrorInfo("crash", "AttemptLost", attempt.words, procedure=attempt.record.id, step=attempt.token.step)
        more: dict[str, Attribute] = {"actorproc.crash.kind": "lost"}
        return _facts_of(attempt, at, pid=0, error=error, more=more)

    def _lost(self, event: WorkerLost) -> None:
        for attempt in self._open.values():
            if attempt.token.worker == event.worker and attempt.refused is None:
                attempt.words = f"its worker ended, though not for this step: {event.report.message}; it runs again"

    def _failed(self, failed: AttemptRecord, head: ProcedureRecord) -> SpanFacts:
        attempt = self._taken(failed_attempt(failed), head, failed.error.step_name or None)
        if attempt.began is None:
            attempt.began = failed.started_at
        return _facts_of(attempt, failed.ended_at, pid=failed.pid, error=failed.error, more=lost_facts(failed))

    def _ended(self, step: StepRecord, head: ProcedureRecord) -> list[SpanFacts]:
        known = self._open.get(head.id)
        token = ended_attempt(step, head.step - step.steps)
        if known is not None and known.token.worker == token.worker and known.token.attempt == token.attempt:
            token = known.token
        attempt = self._taken(token, head, step.label if step.kind is StepKind.ROLLBACK else None)
        # By the clock of its worker, as the spans of its code are: so these lie within.
        end = step.at if attempt.began is None else attempt.began + step.elapsed
        if attempt.began is None:
            attempt.began = step.at - step.elapsed
        more: dict[str, Attribute] = {"actorproc.step.outcome": step.outcome}
        if step.steps > 1:
            more["actorproc.step.count"] = step.steps
        if step.outcome == "placed":  # it ran nothing
            return []
        spans = [_facts_of(attempt, end, pid=step.pid, error=step.error, more=more)]
        if step.outcome == "again" and attempt.trace is not trace_of(head):
            spans.append(procedure_facts(attempt.record, attempt.trace, max(end, step.at), ended=False))
        return spans

    def _taken(self, token: StepToken, head: ProcedureRecord, name: str | None) -> _Open:
        """The attempt, which has ended; made from its records where it is not known."""
        known = self._open.get(head.id)
        if known is not None and _number(known.token) == _number(token):
            del self._open[head.id]
            if known.token.worker != token.worker and token.worker.slot >= 0:
                known.token = msgspec.structs.replace(known.token, worker=token.worker)  # adopted from a host
            return known
        trace = trace_of(head)
        assert trace is not None
        return _Open(head, trace, token, name, None)

    # ------------------------------------------------------------ waits and ends
    def _head(self, record: ProcedureRecord, trace: Trace, *, had_ended: bool) -> list[SpanFacts]:
        if record.state in TERMINAL and not record.undoing:
            spans = self._end_wait(record, trace, record.updated_at)
            left = self._open.pop(record.id, None)
            if left is not None and left.token.mode is not Mode.ASK_ABORT:
                spans.append(self._given_up(left, record.updated_at))
            if not had_ended:
                end = record.finished_at if record.finished_at is not None else record.updated_at
                spans.append(procedure_facts(record, trace, end, ended=True))
            return spans
        open_one = self._open.get(record.id)
        if open_one is not None and open_one.refused is None:
            if record.parked is None:
                return []
            open_one.refused = record.updated_at
            open_one.words = f"no worker can run the step as it is: {record.parked}"
        kind, _ = _waits_for(record)
        known = self._idle.get(record.id)
        if known is not None and known.kind == kind:
            return []
        spans = self._end_wait(record, trace, record.updated_at)
        self._wait(record, record.updated_at)
        return spans

    def _wait(self, record: ProcedureRecord, since: float) -> None:
        kind, detail = _waits_for(record)
        self._idle[record.id] = _Idle(kind, since, detail)

    def _end_wait(self, record: ProcedureRecord, trace: Trace, at: float) -> list[SpanFacts]:
        known = self._idle.pop(record.id, None)
        if known is None or at - known.since < SHORTEST_WAIT:
            return []
        return [wait_facts(record, trace, known.kind, known.since, at, known.detail)]


def _facts_of(
    attempt: _Open, end: float, *, pid: int, error: ErrorInfo | None, more: dict[str, Attribute]
) -> SpanFacts:
    start = attempt.since if attempt.began is None else attempt.began
    if attempt.queued:
        more = more | {"actorproc.step.queued": attempt.queued}
    return attempt_facts(
        attempt.record,
        attempt.trace,
        attempt.token,
        name=attempt.name,
        start=end if start is None else start,
        end=end,
        pid=pid,
        error=error,
        woken_by=_sender(attempt),
        more=more,
    )


def _sender(attempt: _Open) -> bytes:
    """Context of the signal that woke the step; b"": none did. An undo is woken by none."""
    has_signal = attempt.record.payload is not None and attempt.token.mode is not Mode.ROLLBACK
    return attempt.trace.woken_by if has_signal else b""


def _number(token: StepToken) -> tuple[Mode, int, int]:
    return token.mode, token.step, token.attempt


def _waits_for(record: ProcedureRecord) -> tuple[str, dict[str, Attribute]]:
    """The reason why a procedure does not run its next step: in one word, and in detail."""
    if record.paused is not None:
        return "pause", {}
    if record.parked is not None:
        return "class", {}
    if is_waiting_for_locks(record):
        return "lock", {"actorproc.lock.path": tuple(key.path for key in record.locks)}
    if record.event is not None and record.state is not ProcedureState.RUNNABLE:
        return "event", {"actorproc.event.name": record.event}
    if record.state is ProcedureState.WAITING and not record.rolling:
        return "child", {}
    if record.due_at is not None:
        error = record.undo_error if record.undoing else record.error
        return ("retry", {"actorproc.retry.error": error.type_name}) if error is not None else ("timer", {})
    if record.limit_keys and record.admitted not in WITH_SLOT:
        return "slot", {"actorproc.limit.keys": record.limit_keys}
    if record.rolling and not record.undoing:
        return "undo", {}
    return "worker", {}


def _shorten(known: dict[str, _T]) -> None:
    while len(known) > _MOST:
        del known[next(iter(known))]
