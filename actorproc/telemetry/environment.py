"""Tracing of a service: by the SDK as it is set up, or else as the environment variables of OpenTelemetry say."""

from __future__ import annotations

import atexit
import importlib
import os
import threading
from typing import Any

from actorproc.errors import UsageError
from actorproc.telemetry.tracing import Tracing

__all__ = ["tracing_of_environment"]

_PATIENCE = 2.0
"""Seconds at the exit for spans that are not exported yet; a collector that hangs does not hold it longer."""


def tracing_of_environment() -> Tracing:
    """Tracing by the global provider; one that exports by OTLP is set up if there is none.

    Returns:
        The option of a manager.

    Raises:
        UsageError: The API, or for a provider the SDK or an exporter, is not installed.
    """
    tracing = Tracing()
    from opentelemetry import trace  # noqa: PLC0415 - the extra may be absent

    if isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        trace.set_tracer_provider(_provider())
    return tracing


def _provider() -> Any:
    try:
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 - as above
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
    except ImportError as error:
        msg = f"--otel needs the SDK: pip install opentelemetry-sdk opentelemetry-exporter-otlp-proto-http ({error})"
        raise UsageError(msg) from error
    exporter = _exporter()
    provider = TracerProvider(shutdown_on_exit=False)  # its own exit hook waits up to half a minute
    provider.add_span_processor(BatchSpanProcessor(exporter))
    atexit.register(_flush, provider)
    return provider


def _exporter() -> Any:
    """An exporter by OTLP, over HTTP or gRPC: the one that the environment names, else whichever is installed."""
    named = os.environ.get("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL") or os.environ.get("OTEL_EXPORTER_OTLP_PROTOCOL")
    for way in ("grpc", "http") if named == "grpc" else ("http", "grpc"):
        try:
            module = importlib.import_module(f"opentelemetry.exporter.otlp.proto.{way}.trace_exporter")
        except ImportError:
            continue
        return module.OTLPSpanExporter()
    msg = (
        "--otel needs an exporter: pip install opentelemetry-exporter-otlp-proto-http, or start the service with "
        "opentelemetry-instrument, or set a TracerProvider in the module"
    )
    raise UsageError(msg)


def _flush(provider: Any) -> None:
    flushing = threading.Thread(target=provider.force_flush, name="actorproc-flush", daemon=True)
    flushing.start()
    flushing.join(_PATIENCE)
