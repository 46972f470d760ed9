"""huey on SQLite: tasks of one tiny step. Run by `bench/peers.py`; prints one JSON object.

All tasks are queued first, then its consumer runs what is queued; both are timed. Its best figure is that of the second
part alone, when nobody else writes.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from importlib import metadata
from pathlib import Path

HERE = Path(__file__).parent


def drained(huey, tasks: int, workers: int, kind: str) -> float:
    """Seconds from the first result to the last, of what is queued."""
    command = [sys.executable, "-m", "huey.bin.huey_consumer", "huey_tasks.huey", "-k", kind, "-w", str(workers)]
    consumer = subprocess.Popen(
        [*command, "-n", "-q", "-d", "0.01"],  # no periodic tasks, no log, an eager look at an empty queue
        env=os.environ | {"PYTHONPATH": str(HERE)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        while not (begun := huey.result_count()):
            time.sleep(0.005)
        start = time.perf_counter()
        while huey.result_count() < tasks:
            time.sleep(0.02)
        return (time.perf_counter() - start) * tasks / (tasks - begun)
    finally:
        consumer.terminate()
        consumer.wait()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tasks", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    given = parser.parse_args()
    found = {"version": metadata.version("huey"), "run_per_s": {}, "queue_and_run_per_s": {}}
    with tempfile.TemporaryDirectory(prefix="actorproc-bench-") as folder:
        os.environ["BENCH_HUEY"] = str(Path(folder) / "huey.sqlite")
        from huey_tasks import count, huey

        for name in ("journal_mode", "synchronous"):
            found[name] = huey.storage.conn.execute(f"pragma {name}").fetchone()[0]
        for kind in ("process", "thread"):
            huey.storage.flush_results()
            start = time.perf_counter()
            for number in range(given.tasks):
                count(number)
            queued = time.perf_counter() - start
            seconds = drained(huey, given.tasks, given.workers, kind)
            found["run_per_s"][kind] = given.tasks / seconds
            found["queue_and_run_per_s"][kind] = given.tasks / (queued + seconds)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
