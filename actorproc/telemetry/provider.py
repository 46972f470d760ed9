"""The tracer of the host's OpenTelemetry SDK, made to record spans under ids that are known beforehand.

The API has no way to give a span its id; the SDK asks an id generator that belongs to a tracer. So a copy of a tracer
gets a generator and a sampler of its own. The provider and all its other tracers stay as they are.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable
from typing import Any, NamedTuple

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.trace import Link, NonRecordingSpan, Status, StatusCode, TraceFlags

from actorproc.support.engine_log import engine_logger
from actorproc.support.trace_scope import joined, unpacked
from actorproc.telemetry.spans import SpanFacts

__all__ = ["HostTracer"]

logger = engine_logger("actorproc")

_RANDOM = 2
"""Flag of a trace id whose last 7 bytes are random; older versions of the API have no name for it."""


class _KnownIds(threading.local):
    """An id generator that gives the ids of the next span, as its thread has set them.

    Managers that share an option record on a thread each.
    """

    def __init__(self) -> None:
        self.trace = self.span = 0
        self.is_random = False

    def generate_trace_id(self) -> int:
        return self.trace

    def generate_span_id(self) -> int:
        return self.span

    def is_trace_id_random(self) -> bool:
        return self.is_random


class _Decided(threading.local):
    """A sampler for what was sampled at submit; `state` is that of the next span of its thread."""

    def __init__(self) -> None:
        from opentelemetry.sdk.trace.sampling import Decision, SamplingResult  # noqa: PLC0415 - the tracer is the SDK's

        self._make: Callable[..., Any] = SamplingResult
        self._yes = Decision.RECORD_AND_SAMPLE
        self.state: Any = None

    def should_sample(self, _context: Any, _trace: int, _name: str, _kind: Any = None, *more: Any, **named: Any) -> Any:
        attributes = more[0] if more else named.get("attributes")
        return self._make(self._yes, attributes, self.state)

    def get_description(self) -> str:
        return "actorproc: decided at submit"


class _Tracers(NamedTuple):
    """A provider, and what spans of it are made with; three times None: it is not of the SDK."""

    provider: Any
    theirs: Any
    """The tracer of the provider: what it samples by, and makes ids with."""
    own: Any
    decided: _Decided | None


class HostTracer:
    """Tracer of the provider that the host set, also where it sets another one later.

    Args:
        provider: A provider of the SDK; None: the global one, whichever it is at the time.
        version: Version of the instrumentation, this package.
    """

    def __init__(self, provider: Any, version: str) -> None:
        self._given = provider
        self._version = version
        self._found: _Tracers | None = None
        self._ids = _KnownIds()

    def _look(self) -> _Tracers:
        """The tracers, up to date with the provider. Any thread: they are replaced as a whole."""
        provider = self._given if self._given is not None else trace.get_tracer_provider()
        found = self._found
        if found is None or found.provider is not provider:
            found = self._found = self._tracers_of(provider)
        return found

    def _tracers_of(self, provider: Any) -> _Tracers:
        tracer = provider.get_tracer("actorproc", self._version)
        if hasattr(tracer, "id_generator") and hasattr(tracer, "sampler"):
            decided, own = _Decided(), copy.copy(tracer)
            own.id_generator, own.sampler = self._ids, decided
            return _Tracers(provider, tracer, own, decided)
        if type(provider).__module__.partition(".")[0] != "opentelemetry":
            logger.warning(
                "%s is no tracer provider of the OpenTelemetry SDK: it cannot be told the ids of spans, so "
                "actorproc records none; contexts are passed on all the same",
                type(provider).__qualname__,
            )
        return _Tracers(provider, None, None, None)

    def sampled(self, name: str, above: bytes, links: tuple[bytes, ...], attributes: dict[str, str]) -> bytes:
        """Ask the provider's sampler about a trace, or a part of one, that begins here.

        Args:
            name: Name of the span.
            above: Context of the span above; b"": it is the first of a trace.
            links: Contexts that it is linked to.
            attributes: Those that are known by now.

        Returns:
            The context, with the flag that says whether it is sampled. The span above is zeros in a new trace. b"" if
            no SDK is set up, and no span is above.
        """
        tracer = self._look().theirs
        if tracer is None:
            return above
        if above:
            parent = unpacked(above)
            context = trace.set_span_in_context(NonRecordingSpan(parent), Context())
            number, span, random = parent.trace_id, parent.span_id, int(parent.trace_flags) & _RANDOM
        else:
            context, span = Context(), 0
            number = tracer.id_generator.generate_trace_id()
            random = _RANDOM if getattr(tracer.id_generator, "is_trace_id_random", bool)() else 0
        result = tracer.sampler.should_sample(
            context, number, name, trace.SpanKind.INTERNAL, attributes, [Link(unpacked(link)) for link in links]
        )
        flags = random | (TraceFlags.SAMPLED if result.decision.is_sampled() else 0)
        return joined(number, span, flags, result.trace_state)

    def record(self, facts: SpanFacts) -> bool:
        """Begin and end a span. Any thread.

        Args:
            facts: The span.

        Returns:
            True if it was given to the SDK; False if none is set up.
        """
        found = self._look()
        if found.decided is None:
            return False
        place, error = unpacked(facts.context), facts.error
        self._ids.trace, self._ids.span = place.trace_id, int.from_bytes(facts.span)
        self._ids.is_random = bool(int(place.trace_flags) & _RANDOM)
        found.decided.state = place.trace_state
        context = Context()
        if place.span_id:
            context = trace.set_span_in_context(NonRecordingSpan(place), context)
        span = found.own.start_span(
            facts.name,
            context,
            attributes=facts.attributes if error is None else facts.attributes | {"error.type": error.type_name},
            links=[Link(unpacked(link)) for link in facts.links],
            start_time=_nanoseconds(facts.start),
        )
        end = max(_nanoseconds(facts.end), _nanoseconds(facts.start))
        if error is not None:
            span.set_status(Status(StatusCode.ERROR, error.message))
            happened = {"exception.type": error.type_name, "exception.message": error.message}
            if error.traceback:
                happened["exception.stacktrace"] = error.traceback
            span.add_event("exception", happened, timestamp=end)
        span.end(end_time=end)
        return True


def _nanoseconds(at: float) -> int:
    """Nanoseconds; a double of seconds has some hundred of them at this time of history."""
    return round(at * 1e6) * 1000
