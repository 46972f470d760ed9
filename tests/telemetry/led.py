"""Managers over one database whose steps run on a host, each a process; spans of those that lead go to one file."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor

from actorproc import Config, Limits, ProcedureManager, Saga, Status, step
from actorproc.telemetry import Tracing
from tests.telemetry.killed_host import ToFile, Visit

__all__ = ["Trip", "main"]


class Trip(Saga):
    """Kills its worker once; then its second attempt goes on while the leader changes."""

    limits = Limits(crashes=4)
    folder: str

    @step
    def leave(self, ctx):
        pass

    @step
    def travel(self, ctx):
        with Path(self.folder, "ran").open("a") as file:
            file.write(f"{ctx.attempt}\n")
        if ctx.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        while not Path(self.folder, "go").exists():
            time.sleep(0.01)
        return Status.suspended([("child", Visit())])

    @step
    def arrive(self, ctx):
        return ctx.attempt


def main(url: str, folder: Path, role: str) -> None:
    """Lead, or wait for the lead, or run steps as a host, until this process is killed."""
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(ToFile(folder / "spans.jsonl")))
    is_host = role == "host"
    with ProcedureManager(
        url,
        procedures=[Trip, Visit],
        workers=1 if is_host else 0,
        lead=not is_host,
        tracing=None if is_host else Tracing(provider),
        config=Config(lease=1.0, host_patience=4.0, spares=0),
    ):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.readline()


if __name__ == "__main__":
    from tests.telemetry import led  # its classes have the name of the module, which workers import

    led.main(sys.argv[1], Path(sys.argv[2]), sys.argv[3])
