"""How many calls per second does `ProcedureExecutor` take, store and run, beside `ProcessPoolExecutor`?

    python bench/executor.py [--calls 10000] [--workers 2] [--repeat 3]

The calls do nothing, so that only the way there and back is measured. One by one each is a durable procedure; in chunks
many share one, as with ``map(chunksize=…)``.
"""

from __future__ import annotations

import argparse
import statistics
import time
from concurrent.futures import ProcessPoolExecutor

from common import fresh_directory, raw_commits_per_second, report

from actorproc.executor import ProcedureExecutor


def one_by_one(calls: int, workers: int) -> tuple[float, float]:
    """Calls stored per second, and calls done per second, from the first submit on."""
    with fresh_directory() as path, ProcedureExecutor(path, workers) as executor:
        list(executor.map(abs, range(200)))
        start = time.perf_counter()
        futures = [executor.submit(abs, -number) for number in range(calls)]
        futures[-1].durable(120)
        stored = time.perf_counter() - start
        for future in futures:
            future.result(120)
        return calls / stored, calls / (time.perf_counter() - start)


def in_chunks(calls: int, workers: int, size: int) -> float:
    with fresh_directory() as path, ProcedureExecutor(path, workers) as executor:
        list(executor.map(abs, range(200)))
        start = time.perf_counter()
        assert sum(1 for _ in executor.map(abs, range(calls), chunksize=size)) == calls
        return calls / (time.perf_counter() - start)


def pool(calls: int, workers: int) -> float:
    with ProcessPoolExecutor(workers) as executor:
        list(executor.map(abs, range(200)))
        start = time.perf_counter()
        for future in [executor.submit(abs, -number) for number in range(calls)]:
            future.result(120)
        return calls / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    rounds = []
    for _ in range(options.repeat):
        stored, done = one_by_one(options.calls, options.workers)
        rounds.append(
            {
                "raw commits": raw_commits_per_second(0.5),
                "stored": stored,
                "done": done,
                "done in chunks of 50": in_chunks(options.calls, options.workers, 50),
                "ProcessPoolExecutor": pool(options.calls, options.workers),
            }
        )
    middle = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    report(
        "executor",
        {"per_s": {name: [one[name] for one in rounds] for name in middle}, "calls": options.calls},
        [f"{name:42}{value:12,.0f} /s" for name, value in middle.items()],
    )


if __name__ == "__main__":
    main()
