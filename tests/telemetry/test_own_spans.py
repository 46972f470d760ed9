"""Spans of the program's own code in workers, and collectors that are down or never answer."""

from __future__ import annotations

import json
import os
import signal
import socket
import urllib.request
from contextlib import suppress

import pytest
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from actorproc import Saga, step
from actorproc.telemetry import Tracing

HOOKS = """
import json
from contextlib import contextmanager

from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult


class ToFile(SpanExporter):
    def export(self, spans):
        with open({file!r}, "a") as file:
            for span in spans:
                file.write(json.dumps([span.name, span.context.trace_id, span.parent.span_id]) + chr(10))
        return SpanExportResult.SUCCESS


provider = TracerProvider(shutdown_on_exit=False)
provider.add_span_processor(BatchSpanProcessor(ToFile(), schedule_delay_millis=3_600_000))
trace.set_tracer_provider(provider)


@contextmanager
def around_step(ctx):
    try:
        yield
    finally:
        provider.force_flush(timeout_millis=1000)
"""


class Payment(Saga):
    """Its first step has a span of its own; its second one kills the worker once."""

    @step
    def charge(self, ctx):
        with trace.get_tracer("shop").start_as_current_span("bank"):
            pass

    @step
    def pack(self, ctx):
        with trace.get_tracer("shop").start_as_current_span("box"):
            if ctx.attempt == 1:
                os.kill(os.getpid(), signal.SIGKILL)
        return ctx.attempt


class Http(SpanExporter):
    """Posts to a port of this machine."""

    def __init__(self, port):
        self.port = port

    def export(self, spans):
        with suppress(OSError):
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/v1/traces", b"spans", timeout=60)
        return SpanExportResult.FAILURE


def test_spans_of_a_finished_step_survive_the_kill_of_the_next_where_a_hook_flushes(
    start, recording, tmp_path, monkeypatch
):
    name, file = f"span_hooks_{tmp_path.name.replace('-', '_')}", tmp_path / "own.jsonl"
    (tmp_path / f"{name}.py").write_text(HOOKS.format(file=str(file)))
    monkeypatch.syspath_prepend(tmp_path)
    manager = start(around_step=f"{name}:around_step")

    assert manager.run(Payment()) == 2
    manager.stop()

    attempts = recording.named("actorproc.step")
    assert [span.attributes["actorproc.step.name"] for span in attempts] == ["charge", "pack", "pack"]
    # What the killed attempt had not exported is lost, and its own span is not.
    assert [json.loads(line) for line in file.read_text().splitlines()] == [
        ["bank", attempts[0].context.trace_id, attempts[0].context.span_id],
        ["box", attempts[2].context.trace_id, attempts[2].context.span_id],
    ]


@pytest.mark.parametrize("is_there", [False, True], ids=["refused", "never answers"])
def test_a_collector_that_is_down_or_never_answers_costs_no_step(start, is_there):
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if is_there:
            server.listen(8)
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(Http(server.getsockname()[1]), schedule_delay_millis=10))
        tracing = Tracing(provider)
        manager = start(tracing=tracing)

        assert [manager.run(Payment()) for _ in range(3)] == [2] * 3
        manager.stop()

        assert tracing.dropped == 0  # they are the SDK's
    provider.shutdown()
