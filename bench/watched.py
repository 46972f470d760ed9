"""Processor time of a host at full load while nobody, a client of digests, or a client of all changes watches it.

Rounds of the ways come in turn, so that what else the machine does falls on all of them alike. The client is a process
of its own, as `actorproc top` and a page are.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from dataclasses import dataclass

from common import fresh_directory

from actorproc import Config, Procedure, ProcedureClient, ProcedureManager, Status

WAYS = ("unwatched", "digest", "every change")


@dataclass
class Brief(Procedure):
    """Two steps."""

    type_name = "bench.Brief"
    number: int

    def execute(self, ctx):
        return Status.done() if ctx.step == 2 else Status.executing()


def _watch(path: str, way: str) -> None:
    """The other process: takes what comes until it is ended."""
    with ProcedureClient(path) as client:
        watch = client.watch(digest=0.1) if way == "digest" else client.watch(steps=True, progress=True)
        for _ in watch:
            pass


def _round(manager: ProcedureManager, way: str, procedures: int) -> float:
    """Microseconds of the host's processor for a procedure."""
    watcher = None
    if way != "unwatched":
        watcher = subprocess.Popen([sys.executable, __file__, str(manager._path), way])
        while manager.metrics().watchers == 0:
            time.sleep(0.01)
    began = time.process_time()
    for handle in manager.submit_many([Brief(number) for number in range(procedures)]):
        handle.result(timeout=300)
    used = time.process_time() - began
    if watcher is not None:
        watcher.kill()
        watcher.wait()
        while manager.metrics().watchers:
            time.sleep(0.01)
    return used / procedures * 1e6


def watched(rounds: int, procedures: int) -> dict[str, dict[str, float]]:
    """By way: the median, and the median of its ratios to the unwatched round beside it."""
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    with fresh_directory() as path:
        config = Config()
        with ProcedureManager(path, procedures=[Brief], workers=2, config=config) as manager:
            for way in WAYS:
                _round(manager, way, procedures // 4)
            for place in range(rounds):
                for way in (*WAYS[place % 3 :], *WAYS[: place % 3]):
                    found[way].append(_round(manager, way, procedures))
    plain = found["unwatched"]
    return {
        way: {
            "us": round(statistics.median(used), 1),
            "ratio": round(statistics.median(one / other for one, other in zip(used, plain, strict=True)), 3),
        }
        for way, used in found.items()
    }


if __name__ == "__main__":
    _watch(*sys.argv[1:3])
