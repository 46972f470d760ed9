"""The current context of OpenTelemetry as bytes, and back: the one place where a step's code meets its trace.

Nothing of OpenTelemetry is imported before a context has to be set, and none is read in a program that has not imported
it. The bytes are those of `actorproc.model.trace_context`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextvars import Token
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from actorproc.support.engine_log import engine_logger

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext, TraceState

__all__ = ["current", "enter", "joined", "leave", "packed", "unpacked"]

logger = engine_logger("actorproc")

_CONTEXT = 25
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
    """A context as bytes; b"" if it is of no trace."""
    if not context.is_valid:
        return b""
    return joined(context.trace_id, context.span_id, context.trace_flags, context.trace_state)


def joined(trace: int, span: int, flags: int, state: TraceState | None) -> bytes:
    """The context of these parts. A ``tracestate`` that is too long is left out."""
    text = state.to_header().encode() if state else b""
    return trace.to_bytes(16) + span.to_bytes(8) + bytes((flags & 0xFF,)) + (text if len(text) <= _MOST_STATE else b"")


def unpacked(context: bytes) -> SpanContext:
    """The context of these bytes, as one that comes from another process."""
    from opentelemetry.trace import SpanContext, TraceFlags, TraceState  # noqa: PLC0415 - only who is traced pays

    state = TraceState.from_header([context[_CONTEXT:].decode()]) if len(context) > _CONTEXT else None
    return SpanContext(
        int.from_bytes(context[:16]), int.from_bytes(context[16:24]), True, TraceFlags(context[24]), state
    )


def enter(context: bytes, root: str) -> Token[Any] | None:
    """Have spans that the calling thread begins from here on below the span of this context, until `leave`.

    Where the trace is not recorded they are below a span of which nothing is known but that it is not recorded. That is
    left out where no code has loaded OpenTelemetry, as it would cost each worker the import. Without OpenTelemetry in
    this process nothing is done, which is said once.

    Args:
        context: The context, or `NOT_RECORDED`.
        root: Id of the root of the step's tree.

    Returns:
        The argument of `leave`; None: nothing was done.
    """
    contexts = sys.modules.get("opentelemetry.context")
    is_recorded = len(context) >= _CONTEXT
    if contexts is None and not is_recorded:
        return None
    try:
        if contexts is None or "opentelemetry.trace" not in sys.modules:
            import opentelemetry.context  # noqa: PLC0415 - only who is traced pays
            import opentelemetry.trace  # noqa: PLC0415

            contexts = opentelemetry.context
        token: Token[Any] = contexts.attach(_inside(context) if is_recorded else _not_recorded(root))
    except Exception as error:  # noqa: BLE001 - absent, or too old: the step runs without a trace
        _warn(error)
        return None
    return token


def _not_recorded(root: str) -> Any:
    """The context of the steps of a tree that is not recorded: each tree has its own."""
    return _above(_lazy_span()(root))


@lru_cache(maxsize=1)
def _lazy_span() -> Any:
    """The class of such spans. Their ids are made when they are asked for, as most steps never do."""
    from opentelemetry.trace import NonRecordingSpan  # noqa: PLC0415 - only who is traced pays

    class NotRecorded(NonRecordingSpan):
        def __init__(self, root: str) -> None:
            self._root = root

        def get_span_context(self) -> SpanContext:
            from hashlib import blake2b  # noqa: PLC0415 - it loads OpenSSL, which a worker does without

            return unpacked(blake2b(self._root.encode(), digest_size=24).digest() + b"\0")

        def __repr__(self) -> str:
            return f"NonRecordingSpan({self.get_span_context()!r})"

    return NotRecorded


def _inside(context: bytes) -> Any:
    return _above(sys.modules["opentelemetry.trace"].NonRecordingSpan(unpacked(context)))


def _above(span: Any) -> Any:
    """A context that has this span alone."""
    make, place = _span_place()
    return make({place: span})


@lru_cache(maxsize=1)
def _span_place() -> tuple[Callable[[dict[str, Any]], Any], str]:
    """The class of contexts, and the key of a span in one: `set_span_in_context` copies a context each time."""
    from opentelemetry.context import Context  # noqa: PLC0415 - only who is traced pays
    from opentelemetry.trace import INVALID_SPAN, set_span_in_context  # noqa: PLC0415

    (place,) = set_span_in_context(INVALID_SPAN, Context())
    return Context, place


def leave(token: Token[Any]) -> None:
    """Go back to the context before `enter`, whatever was attached since then.

    Args:
        token: The result of `enter`.
    """
    sys.modules["opentelemetry.context"].detach(token)


def _warn(error: Exception) -> None:
    global _warned  # noqa: PLW0603 - once in a process
    if not _warned:
        _warned = True
        logger.warning(
            "OpenTelemetry cannot be used in this process, so spans in it do not nest: %s: %s",
            type(error).__name__,
            error,
        )
