"""How long after its host was killed with 100,000 procedures pending does the first step run again?

    python bench/host_kill.py [--pending 100000] [--rounds 3]

A host submits the procedures through the public API behind a closed gate (so that all are pending), and kills itself
with SIGKILL. A fresh process starts a manager on the store; the time is from its `exec` to the first line of the
first step in a worker, next to the start of a bare interpreter and of an engine on an empty store. Takes about 20 s a
round.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

from common import report, store_bytes
from jobs import Job
from starting import started

from actorproc import ProcedureManager

_SLICE = 10_000


def submit_and_die(path: str, pending: int) -> None:
    """The host whose end is the question."""
    manager = ProcedureManager(path, procedures=[Job], workers=1)
    manager.start(gated=True)
    for first in range(0, pending, _SLICE):
        manager.submit_many([Job("x" * 100) for _ in range(min(_SLICE, pending - first))])
    os.kill(os.getpid(), signal.SIGKILL)


def bare_interpreter() -> float:
    """Seconds of ``python -c pass``."""
    start = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return time.perf_counter() - start


def one_round(pending: int) -> dict[str, float]:
    """Submit, kill, start again."""
    with tempfile.TemporaryDirectory(prefix="actorproc-bench-") as path:
        done = subprocess.run([sys.executable, __file__, "--die", path, "--pending", str(pending)], check=False)
        if done.returncode != -signal.SIGKILL:
            raise SystemExit(f"the host ended with {done.returncode}")
        size = store_bytes(path)
        return {**started(path, "--wait-for-a-step"), "store_bytes": size}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pending", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--die", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.die:
        submit_and_die(options.die, options.pending)
    rounds = [one_round(options.pending) for _ in range(options.rounds)]
    alone = one_round(1)
    median = statistics.median(found["first_step_s"] for found in rounds)
    cpu = statistics.median(found["host_cpu_s"] for found in rounds)
    bare = statistics.median(bare_interpreter() for _ in range(5))
    report(
        "host_kill",
        {"pending": options.pending, "first_step_s": median, "rounds": rounds, "one_pending": alone, "bare_s": bare},
        [
            f"killed with {options.pending:,} pending -> first step: {median:.2f} s after exec (host CPU {cpu:.2f})",
            f"the same with one pending: {alone['first_step_s']:.2f} s, CPU {alone['host_cpu_s']:.2f} s",
            f"a bare interpreter: {bare:.3f} s",
        ],
    )


if __name__ == "__main__":
    main()
