"""The sampler is asked once, at submit: each tree is recorded whole, or not at all."""

from __future__ import annotations

import random

import pytest
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import (
    ALWAYS_OFF,
    ALWAYS_ON,
    Decision,
    ParentBased,
    Sampler,
    SamplingResult,
    TraceIdRatioBased,
)

from actorproc.model.messages.events import Submitted
from actorproc.model.messages.outcomes import Advanced, Finished, Suspended
from actorproc.model.rows.records import NewProcedure
from actorproc.telemetry import Tracing
from tests.core.harness import later
from tests.telemetry.traced_core import TracedCore

TREES = 10_000


class EveryHundredth(Sampler):
    """Stands for a limiter of rates: the answer to the same question differs."""

    def __init__(self):
        self.asked = 0

    def should_sample(self, parent_context, trace_id, name, kind=None, attributes=None, links=None, trace_state=None):
        self.asked += 1
        return SamplingResult(Decision.RECORD_AND_SAMPLE if self.asked % 100 == 0 else Decision.DROP, attributes)

    def get_description(self):
        return "every hundredth"


def _submitted(tracing, *names):
    news = tuple(NewProcedure(id=name, fresh=True, type_name="T", state=b"0", digest=b"d") for name in names)
    return tracing._entered(Submitted(news, 1)).procedures


@pytest.mark.parametrize(
    "sampler",
    [TraceIdRatioBased(0.01), ParentBased(TraceIdRatioBased(0.01)), EveryHundredth()],
    ids=["ratio", "parent", "limiter"],
)
def test_of_ten_thousand_trees_at_one_percent_each_is_whole_or_absent(sampler):
    random.seed(48)  # ids of traces are made by the SDK with this generator
    tracing = Tracing(TracerProvider(sampler, shutdown_on_exit=False))
    core = TracedCore()
    for number in range(TREES):
        name = f"p{number}"
        core.submit(*_submitted(tracing, name))
        core.answer(name, Suspended(state=b"1", children=(core.new(f"c{number}", trace=None),)))
        core.answer(f"c{number}", later(after=0.0))
        core.answer(f"c{number}", Finished(state=b"1"))
        core.answer(name, Finished(state=b"1"))
        for told in (core.writes, core.commands, core.order):
            told.clear()

    traces: dict[bytes, list[str]] = {}
    for span in core.spans:
        traces.setdefault(span.context[:16], []).append(span.name)
    whole = ["actorproc.procedure T"] * 2 + ["actorproc.step T"] * 4
    assert all(sorted(names) == whole for names in traces.values())
    assert 50 <= len(traces) <= 160


def test_the_answer_of_a_sampler_holds_for_the_parts_that_come_later():
    limiter = EveryHundredth()
    limiter.asked = 99
    core = TracedCore()

    core.submit(*_submitted(Tracing(TracerProvider(limiter, shutdown_on_exit=False)), "p"))
    core.answer("p", Advanced(state=b"1"))
    core.answer("p", Finished(state=b"1"))

    assert limiter.asked == 100
    assert len(core.spans) == 3


@pytest.mark.parametrize(
    ("above", "sampler", "is_recorded"),
    [
        (1, ParentBased(ALWAYS_OFF), True),
        (0, ParentBased(ALWAYS_ON), False),
        (0, ALWAYS_ON, True),
        (1, ALWAYS_OFF, False),
    ],
)
def test_below_a_span_the_sampler_sees_its_flag(above, sampler, is_recorded):
    parent = trace.SpanContext(7, 8, is_remote=False, trace_flags=trace.TraceFlags(above))
    tracing = Tracing(TracerProvider(sampler, shutdown_on_exit=False))

    with trace.use_span(trace.NonRecordingSpan(parent)):
        (new,) = _submitted(tracing, "p")

    if is_recorded:
        assert new.trace.context[:24] == (7).to_bytes(16) + (8).to_bytes(8)
        assert new.trace.context[24] & 1
    else:
        assert new.trace is None


def test_roots_that_are_linked_are_traces_of_their_own(recording):
    tracing = Tracing(recording.provider, roots="link")
    core = TracedCore()

    with recording.request() as request:
        core.submit(*_submitted(tracing, "p"))
    core.answer("p", Finished(state=b"1"))
    for facts in core.spans:
        assert tracing._tracer.record(facts)

    here = request.get_span_context()
    root = recording.one("actorproc.procedure")
    assert root.parent is None
    assert root.context.trace_id != here.trace_id
    assert [(link.context.trace_id, link.context.span_id) for link in root.links] == [(here.trace_id, here.span_id)]


def test_the_tracestate_goes_along(recording):
    state = trace.TraceState([("vendor", "a1")])
    parent = trace.SpanContext(7, 8, is_remote=True, trace_flags=trace.TraceFlags(1), trace_state=state)
    tracing = Tracing(recording.provider)
    core = TracedCore()

    with trace.use_span(trace.NonRecordingSpan(parent)):
        core.submit(*_submitted(tracing, "p"))
    assert core.inbox["p"].trace.endswith(b"vendor=a1")
    core.answer("p", Finished(state=b"1"))
    for facts in core.spans:
        tracing._tracer.record(facts)

    assert {span.context.trace_state.get("vendor") for span in recording} == {"a1"}


def test_a_span_is_recorded_under_its_times_and_an_empty_context(recording):
    tracing = Tracing(recording.provider)
    core = TracedCore()
    core.now = 1_800_000_000.25
    core.submit(*_submitted(tracing, "p"))
    core.wait(2.5)
    core.answer("p", Finished(state=b"1", elapsed=1.0))

    with recording.provider.get_tracer("program").start_as_current_span("other", Context()):
        for facts in core.spans:
            tracing._tracer.record(facts)

    step = recording.one("actorproc.step")
    assert (step.start_time, step.end_time) == (1_800_000_001_750_000_000, 1_800_000_002_750_000_000)
    assert recording.one("actorproc.procedure").parent is None
