"""How long after a host was killed does the first step run, when its store is large?

    python bench/recovery_scale.py [--procedures 1000000] [--size 1024] [--updates 5] [--path DIR]

The shape of HBase's ProcedureWALLoaderPerformanceEvaluation: a million procedures with a state of 1 KiB, five updates
each, half of them finished. The store is written straight through `LmdbStore.commit` by a process that is killed
with SIGKILL at the end, so it is not sealed. Then a fresh process starts a manager on it; the time is from its
`exec` to the first line of the first step in a worker. Twice: once killed, once after an orderly stop.

The default writes about 7 GB in the folder for temporary files, which takes three minutes or more; `--path` keeps the
store of one run for the next.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import filling
from common import raw_commits_per_second, report, store_bytes
from jobs import Job
from starting import started

from actorproc.procedure.runtime.type_runtime import TypeRuntime


def fill_and_die(path: str, procedures: int, size: int, updates: int) -> None:
    """Write the store, and end as a host ends that is killed."""
    state = TypeRuntime.of_class(Job).dump_state(Job("x" * size))
    rows = filling.half_finished(Job.type_name, state, updates, time.time())
    filling.fill(path, procedures, rows, last=lambda: os.kill(os.getpid(), signal.SIGKILL))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--procedures", type=int, default=1_000_000)
    parser.add_argument("--size", type=int, default=1024)
    parser.add_argument("--updates", type=int, default=5)
    parser.add_argument("--path")
    parser.add_argument("--fill", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.fill:
        fill_and_die(options.fill, options.procedures, options.size, options.updates)
    with tempfile.TemporaryDirectory(prefix="actorproc-bench-") as folder:
        path = options.path or folder
        start = time.perf_counter()
        if not (Path(path) / "data.mdb").exists():
            shape = [f"--{name}={getattr(options, name)}" for name in ("procedures", "size", "updates")]
            subprocess.run([sys.executable, __file__, "--fill", path, *shape], check=False)
        filled = time.perf_counter() - start
        size = store_bytes(path)
        killed = started(path, "--wait-for-a-step")
        sealed = started(path, "--wait-for-a-step")
    report(
        "recovery_scale",
        {
            "procedures": options.procedures,
            "unfinished": options.procedures // 2,
            "store_bytes": size,
            "fill_s": filled,
            "after_kill": killed,
            "after_stop": sealed,
            "raw_commits_per_s": raw_commits_per_second(),
        },
        [
            f"{options.procedures:,} procedures, half of them finished: {size >> 20:,} MiB, written in {filled:.0f} s",
            _line("killed", killed),
            _line("stopped in order", sealed),
        ],
    )


def _line(what: str, found: dict[str, float]) -> str:
    return (
        f"{what}: first step {found['first_step_s']:.2f} s after exec (CPU of the host {found['host_cpu_s']:.2f} s), "
        f"peak resident memory {int(found['peak_rss_bytes']) >> 20:,} MiB with the map"
    )


if __name__ == "__main__":
    main()
