"""Managers whose work is recorded by the public SDK, in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk.trace", reason="needs opentelemetry-sdk, of the extra dev")

from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import Sampler

from actorproc import ProcedureManager
from actorproc.telemetry import Tracing
from tests.kit.fixtures import nothing_is_left_behind
from tests.kit.managers import LIGHT
from tests.kit.warm_workers import warm_workers

__all__ = ["Recording", "nothing_is_left_behind", "recording", "start", "warm_workers"]


class Recording:
    """A provider of the SDK that keeps its spans, and what is asked of them.

    Args:
        sampler: Its sampler. Default: all spans are recorded.
    """

    def __init__(self, sampler: Sampler | None = None) -> None:
        self.kept = InMemorySpanExporter()
        self.provider = TracerProvider(sampler, shutdown_on_exit=False)
        self.provider.add_span_processor(SimpleSpanProcessor(self.kept))

    def __iter__(self) -> Iterator[ReadableSpan]:
        return iter(sorted(self.kept.get_finished_spans(), key=lambda span: span.start_time))

    def named(self, start: str, **attributes: Any) -> list[ReadableSpan]:
        """The spans whose name begins so, with these attributes (``procedure_id`` is ``actorproc.procedure.id``)."""
        wanted = {f"actorproc.{name.replace('_', '.', 1)}": value for name, value in attributes.items()}
        return [
            span for span in self if span.name.startswith(start) and wanted.items() <= dict(span.attributes).items()
        ]

    def one(self, start: str, **attributes: Any) -> ReadableSpan:
        """The only span of `named`."""
        (span,) = self.named(start, **attributes)
        return span

    def below(self, above: ReadableSpan) -> list[str]:
        """Names of the spans right below one, in the order of their begin."""
        return [span.name for span in self if span.parent and span.parent.span_id == above.context.span_id]

    def request(self, name: str = "request") -> Any:
        """A span of the program itself, as the current one."""
        return self.provider.get_tracer("program").start_as_current_span(name, Context())

    def check(self) -> None:
        """All spans have ended, have ids of their own, and lie below spans that are there."""
        ids = [span.context.span_id for span in self]
        assert len(ids) == len(set(ids))
        for span in self:
            assert span.end_time >= span.start_time
            if span.parent is not None and not span.parent.is_remote:
                assert span.parent.span_id in ids, span.name


@pytest.fixture
def recording() -> Iterator[Recording]:
    """A recording of all spans."""
    made = Recording()
    yield made
    made.provider.shutdown()


@pytest.fixture
def start(tmp_path: Path, recording: Recording) -> Iterator[Callable[..., ProcedureManager]]:
    """Start managers on one directory that record; what a test leaves open is stopped after it."""
    managers: list[ProcedureManager] = []

    def begin(*, workers: int = 1, tracing: Any = None, roots: str = "child", **options: Any) -> ProcedureManager:
        tracing = Tracing(recording.provider, roots=roots) if tracing is None else tracing
        manager = ProcedureManager(tmp_path / "state", workers=workers, tracing=tracing, **(LIGHT | options))
        managers.append(manager)
        return manager.start()

    assert trace.get_current_span() is trace.INVALID_SPAN
    yield begin
    for manager in managers:
        manager.stop(drain=False, timeout=10)
