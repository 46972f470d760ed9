"""Trace contexts as they are stored and sent, and the ids of spans, which follow from what they are about.

The bytes of a context are those of a W3C ``traceparent``: 16 of the trace, 8 of the span, 1 of flags. Then comes the
``tracestate`` as text, if there is one. The id of a span is a hash. So the worker that runs a step knows the id under
which the manager records its span after the commit, and so does the next manager after a crash.
"""

from __future__ import annotations

from msgspec.structs import replace

from actorproc.model.ids import Mode, StepToken
from actorproc.model.rows.record_parts import Past, Trace
from actorproc.model.rows.records import ProcedureRecord

__all__ = [
    "CONTEXT",
    "MOST_CONTEXT",
    "NOT_RECORDED",
    "attempt_span",
    "begun_anew",
    "child_trace",
    "is_sampled",
    "opened_again",
    "procedure_context",
    "procedure_span",
    "span_of",
    "step_context",
]

CONTEXT = 25
"""Bytes of a context without its ``tracestate``."""
MOST_CONTEXT = CONTEXT + 512
"""Bytes of a context with the longest ``tracestate`` that is kept: all that have to be passed on by the standard."""
NOT_RECORDED = b"\0"
"""In place of a context: spans of the step are not to be recorded, as its procedure has no trace that is."""
_LINKS = 8
"""Links that a procedure keeps."""
_TRACE = 16
_FLAGS = 24
_NO_SPAN = bytes(8)


def is_sampled(context: bytes) -> bool:
    """True if spans of this context are recorded: its trace was chosen when its first part was submitted."""
    return len(context) >= CONTEXT and bool(context[_FLAGS] & 1)


def procedure_span(record: ProcedureRecord) -> bytes:
    """Id of the span of a procedure: of its present run and generation."""
    return span_of("procedure", record.id, record.generation, record.run)


def attempt_span(record: ProcedureRecord, mode: Mode, step: int, attempt: int) -> bytes:
    """Id of the span of one attempt of a step or of an undo, in the present run and generation."""
    return span_of("attempt", record.id, record.generation, record.run, int(mode), step, attempt)


def procedure_context(record: ProcedureRecord, trace: Trace) -> bytes:
    """The context inside the span of a procedure."""
    return _within(trace.context, procedure_span(record))


def step_context(record: ProcedureRecord, token: StepToken) -> bytes:
    """The context in which a step runs; b"": its procedure is not traced."""
    past = record.past
    if past is None or past.trace is None:
        return b""
    context = past.trace.context
    if not context[_FLAGS] & 1:  # the ids of spans that are not recorded are of no interest
        return context
    if token.mode is Mode.ASK_ABORT:
        return procedure_context(record, past.trace)
    return _within(context, attempt_span(record, token.mode, token.step, token.attempt))


def child_trace(parent: ProcedureRecord, child: str, *, left: bool) -> Trace | None:
    """Trace of a child: that of its parent, or one of its own with a link where its parent may end before it."""
    past = parent.past
    if past is None or past.trace is None:
        return None
    inside = procedure_context(parent, past.trace)
    return Trace(_own(inside, "child", child), links=inside[:CONTEXT]) if left else Trace(inside)


def begun_anew(record: ProcedureRecord, now: float) -> Past | None:
    """The past of a procedure whose next generation begins: a trace of its own, linked to that of the last one.

    To be called while the head still is that of the last generation.
    """
    past = record.past
    if past is None or past.trace is None:
        return past
    inside = procedure_context(record, past.trace)
    trace = Trace(_own(inside, "generation", record.generation + 1), now, inside[:CONTEXT])
    return replace(past, trace=trace)


def opened_again(record: ProcedureRecord, now: float) -> Past | None:
    """The past of a procedure of which a new run begins: in the same trace, linked to the last run.

    To be called while the head still is that of the last run.
    """
    past = record.past
    if past is None or past.trace is None:
        return past
    last = procedure_context(record, past.trace)[:CONTEXT]
    return replace(past, trace=replace(past.trace, since=now, links=(last + past.trace.links)[: _LINKS * CONTEXT]))


def _within(context: bytes, span: bytes) -> bytes:
    return context[:_TRACE] + span + context[_FLAGS:]


def _own(context: bytes, *parts: object) -> bytes:
    """The context of a new trace without a parent, as much sampled as this one."""
    digest = _hash(_joined((context[:CONTEXT].hex(), *parts)), _TRACE)
    return digest + _NO_SPAN + context[_FLAGS:]


def span_of(*parts: object) -> bytes:
    """Id of the span of what these parts name; the same for the same parts, everywhere and always."""
    return _hash(_joined(parts), 8)


def _hash(data: bytes, size: int) -> bytes:
    import hashlib  # noqa: PLC0415 - it loads OpenSSL, which a worker does without

    return hashlib.blake2b(data, digest_size=size).digest()


def _joined(parts: tuple[object, ...]) -> bytes:
    return "\0".join(map(str, parts)).encode()
