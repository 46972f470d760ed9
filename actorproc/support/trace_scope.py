"""The current context of OpenTelemetry as bytes, and back: the one place where a step's code meets its trace.

Nothing of OpenTelemetry is imported before a context has to be set, and none is read in a program that has not imported
it. The bytes are those of `actorproc.model.trace_context`.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from actorproc.support.engine_log import engine_logger

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

__all__ = ["current", "entered", "packed", "unpacked"]

logger = engine_logger("actorproc")

_MOST_STATE = 512
_warned = False


def current() -> bytes:
    """The current context of the calling thread or task; b"" if there is none, or OpenTelemetry is not loaded."""
    trace = sys.modules.get("opentelemetry.trace")
    if trace is None:
        return b""
    try:
        return packed(trace.get_current_span().get_span_context())
    except Exception as error:  # noqa: BLE001 - a broken library costs the trace, not the submit
        _warn(error)
        return b""


def packed(context: SpanContext) -> bytes:
    """A context as bytes; b"" if it is of no trace. A ``tracestate`` that is too long is left out."""
    if not context.is_valid:
        return b""
    state = context.trace_state.to_header().encode() if context.trace_state else b""
    ids = context.trace_id.to_bytes(16) + context.span_id.to_bytes(8)
    return ids + bytes((context.trace_flags & 0xFF,)) + (state if len(state) <= _MOST_STATE else b"")


def unpacked(context: bytes) -> SpanContext:
    """The context of these bytes, as one that comes from another process."""
    from opentelemetry.trace import SpanContext, TraceFlags, TraceState  # noqa: PLC0415 - only who is traced pays

    state = TraceState.from_header([context[25:].decode()]) if len(context) > 25 else None
    return SpanContext(
        int.from_bytes(context[:16]), int.from_bytes(context[16:24]), True, TraceFlags(context[24]), state
    )


@contextmanager
def entered(context: bytes) -> Iterator[None]:
    """Inside, spans that the calling thread begins are below the span of this context; afterwards all is as before.

    Without OpenTelemetry in this process it does nothing, and says so once.
    """
    try:
        from opentelemetry import context as contexts, trace  # noqa: PLC0415 - only who is traced pays

        above = trace.NonRecordingSpan(unpacked(context))
        token = contexts.attach(trace.set_span_in_context(above, contexts.Context()))
    except Exception as error:  # noqa: BLE001 - absent, or too old: the step runs without a trace
        _warn(error)
        yield
        return
    try:
        yield
    finally:
        contexts.detach(token)


def _warn(error: Exception) -> None:
    global _warned  # noqa: PLW0603 - once in a process
    if not _warned:
        _warned = True
        logger.warning(
            "OpenTelemetry cannot be used in this process, so spans in it do not nest: %s: %s",
            type(error).__name__,
            error,
        )
