"""`actorproc run --otel`: the provider that the module sets, or one by the environment, whose exit does not hang."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from opentelemetry import trace

from actorproc import UsageError
from actorproc.telemetry import environment
from tests.kit.waiting import BOUND, wait_until

ROOT = Path(__file__).parents[2]
MODULE = """
import threading
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult
from actorproc import Saga, step

class ToFile(SpanExporter):
    def export(self, spans):
        with open("spans.txt", "a") as file:
            file.writelines(span.name + chr(10) for span in spans)
        return SpanExportResult.SUCCESS

class One(Saga):
    type_name = "One"
    @step
    def only(self, ctx):
        return 1

def serve():
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(ToFile()))
    trace.set_tracer_provider(provider)
    return [One]
"""


class Hanging:
    """An exporter of which no export ends."""

    def __init__(self):
        import threading

        self.never = threading.Event()

    def export(self, spans):
        self.never.wait()

    def shutdown(self):
        self.never.wait()

    def force_flush(self, timeout_millis=0):
        self.never.wait()


def test_a_service_records_by_the_provider_of_its_module(tmp_path):
    (tmp_path / "shop.py").write_text(MODULE.replace("def serve():", "if True:").replace("    return [One]\n", ""))
    environ = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "actorproc"]
    service = subprocess.Popen([*command, "run", "shop", "--otel", "--workers", "1"], cwd=tmp_path, env=environ)
    try:
        code = "import shop; from actorproc import ProcedureClient; ProcedureClient('state').run(shop.One(), 'o')"
        subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environ, timeout=BOUND, check=True)
        kept = tmp_path / "spans.txt"
        names = wait_until(lambda: kept.exists() and len(found := kept.read_text().split("\n")) > 2 and found)
        assert {"actorproc.procedure One", "actorproc.step One.only"} <= set(names)
    finally:
        service.send_signal(signal.SIGTERM)
        assert service.wait(BOUND) == 0


def test_without_a_provider_and_an_exporter_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setattr(trace, "get_tracer_provider", trace.ProxyTracerProvider)

    with pytest.raises(UsageError, match="pip install opentelemetry-exporter-otlp-proto-http"):
        environment.tracing_of_environment()


@pytest.mark.parametrize(
    ("environ", "installed", "made"),
    [
        ({}, ["http", "grpc"], "http"),
        ({}, ["grpc"], "grpc"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}, ["http", "grpc"], "http"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ["http", "grpc"], "grpc"),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, ["http"], "http"),
        (
            {"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc", "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "http/protobuf"},
            ["http", "grpc"],
            "http",
        ),
        ({"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "grpc"}, ["http", "grpc"], "grpc"),
    ],
)
def test_the_exporter_is_the_one_that_the_environment_names(monkeypatch, environ, installed, made):
    for name in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    for way in ("http", "grpc"):
        module = f"opentelemetry.exporter.otlp.proto.{way}.trace_exporter"
        exporter = SimpleNamespace(OTLPSpanExporter=lambda way=way: way)
        monkeypatch.setitem(sys.modules, module, exporter if way in installed else None)

    assert environment._exporter() == made


def test_an_exporter_that_hangs_holds_an_exit_two_seconds_at_most(monkeypatch):
    exits = []
    monkeypatch.setattr(environment.atexit, "register", lambda *call: exits.append(call))
    exporter = Hanging()
    monkeypatch.setattr(environment, "_exporter", lambda: exporter)
    monkeypatch.setattr(environment, "_PATIENCE", 0.2)
    provider = environment._provider()
    provider.get_tracer("x").start_span("y").end()

    ((flush, given),) = exits
    began = time.monotonic()
    flush(given)
    took = time.monotonic() - began
    exporter.never.set()
    provider.shutdown()

    assert given is provider
    assert took < 20
