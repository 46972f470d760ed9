"""A program whose manager is killed by a step; its spans go to a file, one a line, before the next one is recorded."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SimpleSpanProcessor, SpanExporter, SpanExportResult

from actorproc import Limits, ProcedureManager, Saga, Status, step
from actorproc.telemetry import Tracing
from tests.kit.managers import LIGHT

HOST = "host.pid"


class ToFile(SpanExporter):
    """Appends spans to a file."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("a")

    def export(self, spans):
        for span in spans:
            self.file.write(json.dumps(json.loads(span.to_json())) + "\n")
        self.file.flush()
        return SpanExportResult.SUCCESS


class Journey(Saga):
    """Kills its worker three times, then its host, then goes on to its end."""

    limits = Limits(crashes=4)
    folder: str

    @step
    def leave(self, ctx):
        pass

    @leave.undo
    def come_back(self, ctx):
        pass

    @step
    def travel(self, ctx):
        if ctx.attempt <= 3:
            os.kill(os.getpid(), signal.SIGKILL)

    @step
    def sleep(self, ctx):
        if ctx.attempt == 1:
            os.kill(int(Path(self.folder, HOST).read_text()), signal.SIGKILL)
            time.sleep(60)
        return Status.suspended([("child", Visit())])

    @step
    def arrive(self, ctx):
        return ctx.attempt


class Visit(Saga):
    @step
    def only(self, ctx):
        return "seen"


def main(folder: Path, processor: str) -> None:
    """Run, or go on with, the one procedure of the directory."""
    exporter = ToFile(folder / "spans.jsonl")
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(
        SimpleSpanProcessor(exporter) if processor == "simple" else BatchSpanProcessor(exporter)
    )
    (folder / HOST).write_text(str(os.getpid()))
    with ProcedureManager(folder / "state", workers=1, tracing=Tracing(provider), **LIGHT) as manager:
        assert manager.submit(Journey(str(folder)), "j").result(timeout=60) == 1
    provider.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
