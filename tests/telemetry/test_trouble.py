"""Processors that hang or raise, samplers that raise, providers that are none: they cost spans, and no step."""

from __future__ import annotations

import logging
import sys
import threading
import time
from types import SimpleNamespace

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, Sampler

from actorproc import Saga, UsageError, step
from actorproc.model.messages.events import Submitted
from actorproc.model.messages.outcomes import Finished
from actorproc.model.rows.records import NewProcedure
from actorproc.support import trace_scope
from actorproc.telemetry import Tracing, recorder
from actorproc.telemetry.provider import _KnownIds
from tests.kit.waiting import BOUND, wait_until
from tests.telemetry.traced_core import TracedCore


class Count(Saga):
    """Two steps."""

    @step
    def one(self, ctx):
        pass

    @step
    def two(self, ctx):
        return 2


class Hanging(SpanProcessor):
    """Holds the first span that ends until it is let go."""

    def __init__(self):
        self.has_begun, self.goes_on = threading.Event(), threading.Event()
        self.ended = 0

    def on_end(self, span):
        self.has_begun.set()
        self.goes_on.wait()
        self.ended += 1


class Raising(SpanProcessor):
    def on_end(self, span):
        msg = "no disk"
        raise OSError(msg)


class RaisingSampler(Sampler):
    def should_sample(self, *_, **__):
        msg = "no such rule"
        raise LookupError(msg)

    def get_description(self):
        return "raises"


class Foreign(trace.TracerProvider):
    """A provider that is not of the SDK."""

    def get_tracer(self, *_, **__):
        return trace.NoOpTracer()


def _new(name="p"):
    return NewProcedure(id=name, type_name="T", state=b"", digest=b"")


def test_a_processor_that_hangs_costs_spans_that_are_counted_and_no_step(start, recording, monkeypatch, caplog):
    monkeypatch.setattr(recorder, "_MOST", 4)
    hanging = Hanging()
    recording.provider.add_span_processor(hanging)
    tracing = Tracing(recording.provider)
    manager = start(tracing=tracing)

    assert manager.run(Count()) == 2
    assert hanging.has_begun.wait(30)
    assert [manager.run(Count()) for _ in range(8)] == [2] * 8
    assert tracing.dropped > 0
    told = manager.metrics()
    assert f"actorproc_spans_dropped_total {told.spans_dropped}" in told.prometheus().splitlines()
    assert 0 < told.spans_dropped <= tracing.dropped
    began = time.monotonic()
    manager.stop()

    assert time.monotonic() - began < 15  # the thread is left alone after a second
    hanging.goes_on.set()
    wait_until(lambda: not any(thread.name == "actorproc-spans" for thread in threading.enumerate()))
    assert "spans are dropped, as their processor or exporter takes no more" in caplog.text
    assert hanging.ended + tracing.dropped >= 9 * 3


def test_what_waits_for_the_next_round_of_the_thread_is_recorded_at_the_end(start, recording, monkeypatch):
    monkeypatch.setattr(recorder, "_GATHER", 3600.0)
    manager = start()

    assert [manager.run(Count()) for _ in range(3)] == [2] * 3
    manager.stop()

    assert len(recording.named("actorproc.procedure")) == 3
    assert len(recording.named("actorproc.step")) == 6
    recording.check()


def test_after_a_gap_spans_are_whole_again(start, recording, monkeypatch):
    monkeypatch.setattr(recorder, "_MOST", 2)
    hanging = Hanging()
    recording.provider.add_span_processor(hanging)
    manager = start(tracing=Tracing(recording.provider))
    manager.run(Count(), "first")
    assert hanging.has_begun.wait(30)
    for _ in range(4):
        manager.run(Count())
    hanging.goes_on.set()
    wait_until(lambda: manager.run(Count()) and recording.named("actorproc.procedure"))
    monkeypatch.setattr(recorder, "_MOST", 10_000)
    manager.run(Count(), "last")
    manager.stop()

    last = recording.one("actorproc.procedure", procedure_id="last")
    assert len(recording.below(last)) == 2
    assert len({span.context.span_id for span in recording}) == len(list(recording))


def test_a_processor_that_raises_costs_its_span(start, recording, caplog):
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(Raising())
    tracing = Tracing(provider)
    manager = start(tracing=tracing)

    assert manager.run(Count()) == 2
    manager.stop()

    assert tracing.dropped == 3
    assert [line.message for line in caplog.records if "OpenTelemetry SDK" in line.message] == [
        "the OpenTelemetry SDK of this program has raised, and a span is missing"
    ]


def test_an_exporter_that_is_down_is_the_sdks_matter(start, caplog):
    class Down(SpanExporter):
        def export(self, spans):
            msg = "connection refused"
            raise ConnectionError(msg)

    caplog.set_level(logging.CRITICAL, "opentelemetry")
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(Down()))
    tracing = Tracing(provider)
    manager = start(tracing=tracing)

    assert [manager.run(Count()) for _ in range(5)] == [2] * 5
    manager.stop()
    provider.shutdown()

    assert tracing.dropped == 0


def test_a_sampler_that_raises_costs_the_trace_and_is_told_once(start, caplog):
    manager = start(tracing=Tracing(TracerProvider(RaisingSampler(), shutdown_on_exit=False)))

    assert [manager.run(Count()) for _ in range(3)] == [2] * 3

    (said,) = [line.message for line in caplog.records if "OpenTelemetry" in line.message]
    assert said.endswith("what is submitted now is not traced: LookupError: no such rule")


def test_a_provider_of_another_kind_is_told_of_once_and_contexts_are_passed_on(caplog):
    tracing = Tracing(Foreign())
    above = trace.NonRecordingSpan(trace.SpanContext(7, 8, is_remote=False, trace_flags=trace.TraceFlags(1)))

    with trace.use_span(above):
        events = [tracing._entered(Submitted((_new(),), 1)) for _ in range(3)]

    assert {event.procedures[0].trace.context for event in events} == {
        (7).to_bytes(16) + (8).to_bytes(8) + b"\x01",
    }
    assert (
        len([line for line in caplog.records if "is no tracer provider of the OpenTelemetry SDK" in line.message]) == 1
    )


def test_without_an_sdk_nothing_is_stored_and_all_runs(start):
    from opentelemetry.trace import ProxyTracerProvider

    manager = start(tracing=Tracing(ProxyTracerProvider()))

    assert manager.run(Count(), "c") == 2
    assert manager._running().store.procedure("c").past is None


def test_the_global_provider_counts_also_when_it_is_set_later(monkeypatch, recording):
    tracing = Tracing()
    providers = [trace.ProxyTracerProvider(), recording.provider, TracerProvider(ALWAYS_ON, shutdown_on_exit=False)]
    found = []
    for provider in providers:
        monkeypatch.setattr(trace, "get_tracer_provider", lambda provider=provider: provider)
        found.append(tracing._entered(Submitted((_new(),), 1)).procedures[0].trace)

    assert [one is None for one in found] == [True, False, False]


def test_a_submit_while_the_first_one_asks_the_provider_is_traced_too():
    class Slow(TracerProvider):
        inner = None

        def get_tracer(self, *names, **more):
            if self.inner is None:
                self.inner = []
                other = threading.Thread(target=lambda: self.inner.append(tracing._entered(Submitted((_new(),), 1))))
                other.start()
                other.join()
            return super().get_tracer(*names, **more)

    provider = Slow(shutdown_on_exit=False)
    tracing = Tracing(provider)

    first = tracing._entered(Submitted((_new(),), 1))

    assert [event.procedures[0].trace is None for event in (first, *provider.inner)] == [False, False]


def test_two_managers_that_share_an_option_record_each_span_under_its_own_id(recording, monkeypatch):
    tracing = Tracing(recording.provider)
    facts = []
    for name in ("p", "q"):
        core = TracedCore()
        core.submit(*tracing._entered(Submitted((_new(name),), 1)).procedures)
        core.answer(name, Finished(state=b"1"))
        facts.append(core.one("actorproc.procedure"))
    both, given = threading.Barrier(2), _KnownIds.generate_span_id
    monkeypatch.setattr(_KnownIds, "generate_span_id", lambda ids: (both.wait(BOUND), given(ids))[1])

    threads = [threading.Thread(target=tracing._tracer.record, args=(one,)) for one in facts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    found = {span.attributes["actorproc.procedure.id"]: span.context.span_id for span in recording}
    assert found == {one.attributes["actorproc.procedure.id"]: int.from_bytes(one.span) for one in facts}


@pytest.mark.parametrize("found", [None, SimpleNamespace()], ids=["absent", "another one"])
def test_a_library_that_cannot_be_used_costs_the_nesting_of_spans_and_is_told_once(monkeypatch, caplog, found):
    """A worker host may have none, or one that is too old, where the manager has a trace."""
    for name in ("opentelemetry", "opentelemetry.context", "opentelemetry.trace"):
        monkeypatch.setitem(sys.modules, name, found)
    monkeypatch.setattr(trace_scope, "_warned", False)
    context = bytes(range(1, 25)) + b"\x01"

    assert [trace_scope.enter(context, "root") for _ in range(3)] == [None] * 3
    assert trace_scope.current() == b""

    (said,) = [line.message for line in caplog.records if "OpenTelemetry" in line.message]
    assert said.startswith("OpenTelemetry cannot be used in this process, so spans in it do not nest")


def test_an_absent_library_is_named_with_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "actorproc.telemetry.provider", None)

    with pytest.raises(UsageError, match=r"pip install 'actorproc\[otel\]'"):
        Tracing()
