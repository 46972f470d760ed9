"""Procedures and attempts as spans, one trace for a tree, and the spans of user code inside."""

from __future__ import annotations

import os
import signal

import pytest
from opentelemetry import context, trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from actorproc import ProcedureFailed, RetryLater, RetryPolicy, Saga, Status, step
from tests.kit.procedures import Order

_AT_ONCE = RetryPolicy(base=0.01, factor=1.0, jitter=0.0)


class Deadly(Saga):
    """Kills its worker in the first attempts of its second step."""

    kills: int

    @step
    def first(self, ctx):
        pass

    @step
    def second(self, ctx):
        if ctx.attempt <= self.kills:
            os.kill(os.getpid(), signal.SIGKILL)
        return ctx.attempt


class Moody(Saga):
    retry = _AT_ONCE

    @step
    def only(self, ctx):
        if ctx.attempt < 3:
            msg = f"not yet, {ctx.attempt}"
            raise RetryLater(0.01) from OSError(msg)


class Parent(Saga):
    @step
    def start(self, ctx):
        return Status.suspended([("left", Order("a")), ("right", Order("b"))])

    @step
    def end(self, ctx):
        return "done"


class Instrumented(Saga):
    """Makes spans, as an instrumented library does, and gives back what they were."""

    @step
    def only(self, ctx):
        kept = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(kept))
        with provider.get_tracer("httpx").start_as_current_span("GET"):
            pass
        (span,) = kept.get_finished_spans()
        return [f"{span.context.trace_id:032x}", f"{span.parent.span_id:016x}", span.parent.is_remote]


class Leaky(Saga):
    """Leaves a span current that it never detaches."""

    @step
    def first(self, ctx):
        context.attach(trace.set_span_in_context(trace.NonRecordingSpan(trace.SpanContext(1, 2, is_remote=False))))

    @step
    def second(self, ctx):
        return trace.get_current_span().get_span_context().trace_id == 1


def test_a_procedure_is_a_span_below_the_current_one_and_its_steps_are_below_it(start, recording):
    manager = start()

    with recording.request() as request:
        manager.run(Order("book"), "o")
    manager.stop()

    root = recording.one("actorproc.procedure")
    assert root.parent.span_id == request.get_span_context().span_id
    assert root.name == f"actorproc.procedure {Order.type_name}"
    assert recording.below(root) == [f"actorproc.step {Order.type_name}.pay", f"actorproc.step {Order.type_name}.ship"]
    assert {span.context.trace_id for span in recording} == {request.get_span_context().trace_id}
    assert root.attributes["actorproc.procedure.state"] == "SUCCESS"
    ship = recording.one("actorproc.step", step_name="ship")
    assert (ship.attributes["actorproc.step.number"], ship.attributes["actorproc.step.attempt"]) == (2, 1)
    assert root.start_time <= ship.start_time <= ship.end_time <= root.end_time
    recording.check()


def test_without_a_current_span_each_root_is_a_trace_of_its_own(start, recording):
    manager = start()

    manager.run(Order("book"))
    manager.run(Order("pen"))
    manager.stop()

    assert [span.parent for span in recording.named("actorproc.procedure")] == [None, None]
    assert len({span.context.trace_id for span in recording}) == 2
    recording.check()


def test_a_failure_and_its_undo_are_in_the_spans_that_they_are_about(start, recording):
    manager = start()

    with pytest.raises(ProcedureFailed):
        manager.run(Order("stone"), "o")
    manager.stop()

    failed = recording.one("actorproc.step", step_name="ship")
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "too heavy")
    assert failed.attributes["error.type"] == "ValueError"
    assert failed.events[0].attributes["exception.message"] == "too heavy"
    assert "ValueError: too heavy" in failed.events[0].attributes["exception.stacktrace"]
    undo = recording.one("actorproc.undo", step_name="pay")
    assert undo.status.status_code is StatusCode.UNSET
    root = recording.one("actorproc.procedure")
    assert (root.status.description, root.attributes["actorproc.procedure.state"]) == ("too heavy", "ROLLEDBACK")
    recording.check()


def test_attempts_that_were_killed_have_spans_with_the_words_of_their_deaths(start, recording):
    manager = start()

    assert manager.run(Deadly(2), "d") == 3
    manager.stop()

    first, second, third = recording.named("actorproc.step", step_name="second")
    for number, attempt in ((1, first), (2, second)):
        assert attempt.attributes["actorproc.step.attempt"] == number
        assert "killed by signal 9 (SIGKILL)" in attempt.status.description
        assert attempt.attributes["actorproc.crash.signal"] == "SIGKILL"
        assert attempt.attributes["process.pid"] != os.getpid()
    assert third.status.status_code is StatusCode.UNSET
    assert third.attributes["actorproc.step.replayed"] is True
    assert len({span.attributes["process.pid"] for span in (first, second, third)}) == 3
    assert [link.context.span_id for link in third.links] == [second.context.span_id]
    assert not first.links
    assert recording.one("actorproc.procedure").status.status_code is StatusCode.UNSET
    recording.check()


def test_retries_are_linked_to_the_attempt_before(start, recording):
    manager = start()

    manager.run(Moody(), "m")
    manager.stop()

    spans = recording.named("actorproc.step")
    assert [span.attributes["actorproc.step.attempt"] for span in spans] == [1, 2, 3]
    assert [span.status.status_code for span in spans] == [StatusCode.ERROR, StatusCode.ERROR, StatusCode.UNSET]
    assert [span.links[0].context.span_id for span in spans[1:]] == [span.context.span_id for span in spans[:2]]


def test_children_are_in_the_trace_of_their_tree_below_their_parent(start, recording):
    manager = start(workers=2)

    manager.run(Parent(), "p")
    manager.stop()

    root = recording.one("actorproc.procedure", procedure_id="p")
    children = [recording.one("actorproc.procedure", procedure_id=name) for name in ("left", "right")]
    assert {child.parent.span_id for child in children} == {root.context.span_id}
    assert all(child.attributes["actorproc.procedure.root"] == "p" for child in children)
    assert len({span.context.trace_id for span in recording}) == 1
    assert all(root.start_time <= child.start_time <= child.end_time <= root.end_time for child in children)
    recording.check()


def test_spans_of_user_code_are_below_the_attempt_under_ids_of_their_own(start, recording):
    manager = start()

    trace_id, above, is_remote = manager.run(Instrumented(), "i")
    manager.stop()

    attempt = recording.one("actorproc.step")
    assert f"{attempt.context.trace_id:032x}" == trace_id
    assert f"{attempt.context.span_id:016x}" == above
    assert is_remote


def test_a_span_that_a_step_leaves_current_is_not_that_of_the_next_step(start, recording):
    manager = start()

    assert manager.run(Leaky()) is False


def test_spans_that_are_not_ours_keep_their_ids(start, recording):
    theirs = recording.provider.get_tracer("theirs")
    ids = recording.provider.id_generator
    manager = start()
    ours = recording.provider.get_tracer("actorproc")

    manager.run(Order("book"), "o")
    manager.stop()
    with theirs.start_as_current_span("a"), ours.start_as_current_span("b"):
        pass

    assert recording.provider.id_generator is theirs.id_generator is ours.id_generator is ids
    names = {span.name: span.context.span_id for span in recording}
    assert len(set(names.values())) == len(names) == 5


@pytest.mark.parametrize("roots", ["same", None, "LINK"])
def test_a_word_that_is_none_is_refused(roots):
    from actorproc.telemetry import Tracing

    with pytest.raises(ValueError, match="roots is 'child' or 'link'"):
        Tracing(roots=roots)


def test_what_is_no_tracing_is_refused(tmp_path):
    from actorproc import ProcedureManager

    with pytest.raises(TypeError, match=r"tracing is a Tracing\(…\) of actorproc.telemetry, not True"):
        ProcedureManager(tmp_path, tracing=True)
