"""Processor time of host and workers for a step: without traces, with 1 % of the roots sampled, and with all of them.

    python bench/traced.py [ROUNDS] [PROCEDURES]

Rounds of the ways come in turn, so that what else the machine does falls on all of them alike. Spans go to an exporter
that drops them, through the batch processor of the SDK; its thread is part of the host's time.
"""

from __future__ import annotations

import contextlib
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from common import fresh_directory
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBasedTraceIdRatio

from actorproc import Config, Procedure, ProcedureManager, Status
from actorproc.telemetry import Tracing

WAYS = {"off": None, "1 %": 0.01, "all": 1.0}
STEPS = 10


@dataclass
class Counting(Procedure):
    """Ten steps."""

    type_name = "bench.Counting"
    number: int

    def execute(self, ctx):
        return Status.done() if ctx.step == STEPS else Status.executing()


class Nowhere(SpanExporter):
    """Takes all spans, and drops them."""

    def export(self, spans):
        return SpanExportResult.SUCCESS


def _used(manager: ProcedureManager) -> float:
    """Seconds of processors that host and workers have used; of workers to the nanosecond, as Linux counts."""
    workers = [Path(f"/proc/{worker.pid}/task") for worker in manager.workers() if worker.pid]
    threads = [thread / "schedstat" for task in workers for thread in task.iterdir()]
    return time.process_time() + sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


def _round(manager: ProcedureManager, procedures: int) -> float:
    """Microseconds of processors for a step."""
    before = _used(manager)
    for handle in manager.submit_many([Counting(number) for number in range(procedures)]):
        handle.result(timeout=300)
    return (_used(manager) - before) / (procedures * STEPS) * 1e6


def traced(rounds: int, procedures: int) -> dict[str, dict[str, float]]:
    """Microseconds for a step by way, and the ratio to a manager without traces in the same round.

    Args:
        rounds: Rounds of each way.
        procedures: Of each round.

    Returns:
        By way: median of the times, and of the ratios.
    """
    times: dict[str, list[float]] = {way: [] for way in WAYS}
    with contextlib.ExitStack() as open_ones:
        managers = {}
        for way, ratio in WAYS.items():
            tracing = None
            if ratio is not None:
                provider = TracerProvider(ParentBasedTraceIdRatio(ratio), shutdown_on_exit=False)
                provider.add_span_processor(BatchSpanProcessor(Nowhere(), max_queue_size=200_000))
                tracing = Tracing(provider)
            path = open_ones.enter_context(fresh_directory())
            manager = ProcedureManager(
                path, procedures=[Counting], workers=2, config=Config(spares=0, control=False), tracing=tracing
            )
            managers[way] = open_ones.enter_context(manager)
            _round(managers[way], procedures)
        for _ in range(rounds):
            for way, manager in managers.items():
                times[way].append(_round(manager, procedures))
    return {
        way: {
            "us_per_step": round(statistics.median(found), 1),
            "ratio": round(statistics.median(one / off for one, off in zip(found, times["off"], strict=True)), 3),
        }
        for way, found in times.items()
    }


if __name__ == "__main__":
    numbers = [int(argument) for argument in sys.argv[1:]]
    for way, found in traced(*(numbers + [15, 200][len(numbers) :])).items():
        print(f"{way:5} {found['us_per_step']:7.1f} µs a step, {found['ratio']:.3f} times as much as without")
