"""Spans as facts: what is recorded of a procedure, an attempt or a wait, before it is a span of a library."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from actorproc.model.ids import Mode, StepToken, WorkerId
from actorproc.model.rows.records import AttemptRecord, ErrorInfo, ProcedureRecord, StepKind, StepRecord, Trace
from actorproc.model.slots import host_of
from actorproc.model.states import ProcedureState
from actorproc.model.trace_context import CONTEXT, attempt_span, procedure_context, procedure_span, span_of

__all__ = [
    "Attribute",
    "SpanFacts",
    "attempt_facts",
    "contexts_in",
    "ended_attempt",
    "failed_attempt",
    "lost_facts",
    "procedure_facts",
    "wait_facts",
]

Attribute = str | bool | int | float | Sequence[str]
_NAMES = {Mode.EXECUTE: "step", Mode.ON_TIMEOUT: "timeout", Mode.ROLLBACK: "undo"}


class SpanFacts(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One span that has ended."""

    name: str
    context: bytes
    """Trace, the span above (zeros: none), flags, ``tracestate``."""
    span: bytes
    start: float
    """Epoch seconds."""
    end: float
    attributes: dict[str, Attribute]
    links: tuple[bytes, ...] = ()
    error: ErrorInfo | None = None


def contexts_in(links: bytes) -> tuple[bytes, ...]:
    """The contexts that stand one behind the other in these bytes."""
    return tuple(links[at : at + CONTEXT] for at in range(0, len(links), CONTEXT))


def procedure_facts(record: ProcedureRecord, trace: Trace, end: float, *, ended: bool) -> SpanFacts:
    """The span of a procedure that has ended, or of a generation of it.

    Args:
        record: The head as it is at the end; of a generation, as it was during that.
        trace: Its place in a trace during that time.
        end: Time of the end, epoch seconds.
        ended: It has ended; False: another generation follows.

    Returns:
        The facts.
    """
    attributes = _of_procedure(record) | {"actorproc.procedure.state": str(record.state) if ended else "again"}
    if record.owner is not None:
        attributes["actorproc.procedure.owner"] = record.owner
    failed = ended and record.state is not ProcedureState.SUCCESS
    return SpanFacts(
        name=f"actorproc.procedure {record.type_name}",
        context=trace.context,
        span=procedure_span(record),
        start=trace.since or record.created_at,
        end=end,
        attributes=attributes,
        links=contexts_in(trace.links),
        error=(record.error or ErrorInfo("error", str(record.state), "it ended undone")) if failed else None,
    )


def attempt_facts(
    record: ProcedureRecord,
    trace: Trace,
    token: StepToken,
    *,
    name: str | None,
    start: float,
    end: float,
    pid: int,
    error: ErrorInfo | None = None,
    woken_by: bytes = b"",
    more: dict[str, Attribute] | None = None,
) -> SpanFacts:
    """The span of one attempt of a step or of an undo.

    Args:
        record: A head of the procedure; of its place only what does not change.
        trace: Its place in a trace during the attempt.
        token: The attempt.
        name: Name of the step or label of the undo; None or "": it has none.
        start: Epoch seconds.
        end: Epoch seconds.
        pid: Process of the worker; 0: not known.
        error: Error or death with which it ended. Default: None.
        woken_by: Context of the signal that woke the step. Default: none.
        more: Further attributes. Default: none.

    Returns:
        The facts.
    """
    attributes = _of_procedure(record) | {
        "actorproc.step.number": token.step - record.begun,
        "actorproc.step.attempt": token.attempt,
        "actorproc.step.replayed": token.attempt > 1,
        "actorproc.worker.slot": token.worker.slot,
        "actorproc.worker.incarnation": token.worker.incarnation,
    }
    if name:
        attributes["actorproc.step.name"] = name
    if host := host_of(token.worker.slot):
        attributes["actorproc.worker.host"] = host
    if pid:
        attributes["process.pid"] = pid
    if more:
        attributes |= more
    links = contexts_in(woken_by)
    if token.attempt > 1:
        before = attempt_span(record, token.mode, token.step, token.attempt - 1)
        links = (trace.context[:16] + before + trace.context[24:CONTEXT], *links)
    return SpanFacts(
        name=f"actorproc.{_NAMES[token.mode]} {record.type_name}" + (f".{name}" if name else ""),
        context=procedure_context(record, trace),
        span=attempt_span(record, token.mode, token.step, token.attempt),
        start=min(start, end),
        end=end,
        attributes=attributes,
        links=links,
        error=error,
    )


def failed_attempt(failed: AttemptRecord) -> StepToken:
    """The attempt that a record of a failed one is about; of no epoch."""
    worker = WorkerId(failed.slot, failed.incarnation)
    return StepToken(0, worker, failed.procedure, failed.step, failed.attempt, failed.mode)


def ended_attempt(step: StepRecord, position: int) -> StepToken:
    """The attempt that a record of the step log is about; of no epoch.

    Args:
        step: The record, of a step that a worker ended.
        position: Number of the step, if it is a forward one; an undo says its own.

    Returns:
        The attempt.
    """
    worker = WorkerId(step.slot, step.incarnation)
    if step.kind is StepKind.ROLLBACK:
        return StepToken(0, worker, step.procedure, step.number, step.attempts, Mode.ROLLBACK)
    return StepToken(0, worker, step.procedure, position, step.attempts, Mode.EXECUTE)


def lost_facts(failed: AttemptRecord) -> dict[str, Attribute]:
    """Attributes of an attempt whose worker died, or was killed; {}: neither is true."""
    crash = failed.error.crash
    if crash is None:
        return {}
    found: dict[str, Attribute] = {"actorproc.crash.kind": crash.kind}
    if crash.signal is not None:
        found["actorproc.crash.signal"] = crash.signal
    if crash.code is not None:
        found["actorproc.crash.code"] = crash.code
    if crash.peak_rss is not None:
        found["actorproc.crash.peak_rss"] = crash.peak_rss
    return found


def wait_facts(
    record: ProcedureRecord, trace: Trace, kind: str, since: float, until: float, more: dict[str, Attribute]
) -> SpanFacts:
    """The span of a wait.

    Args:
        record: A head of the procedure.
        trace: Its place in a trace during the wait.
        kind: The kind of the wait, in one word.
        since: Epoch seconds.
        until: Epoch seconds.
        more: The reason of the wait, in detail.

    Returns:
        The facts.
    """
    return SpanFacts(
        name=f"actorproc.wait {kind}",
        context=procedure_context(record, trace),
        span=span_of("wait", record.id, record.run, record.generation, kind, since),
        start=since,
        end=until,
        attributes=_of_procedure(record) | {"actorproc.wait.kind": kind} | more,
    )


def _of_procedure(record: ProcedureRecord) -> dict[str, Attribute]:
    found: dict[str, Attribute] = {
        "actorproc.procedure.id": record.id,
        "actorproc.procedure.type": record.type_name,
        "actorproc.procedure.root": record.root,
        "actorproc.procedure.run": record.run,
    }
    if record.generation > 1:
        found["actorproc.procedure.generation"] = record.generation
    return found
