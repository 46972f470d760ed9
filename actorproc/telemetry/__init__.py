"""OpenTelemetry: procedures, attempts of steps and waits as spans (extra ``otel``)."""

from actorproc.telemetry.tracing import Tracing

__all__ = ["Tracing"]
