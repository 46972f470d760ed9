"""Cost of calls with large arguments and results, beside ProcessPoolExecutor and loky, which store nothing.

    python bench/large_calls.py [--megabytes 100] [--repeat 5]

Bytes as an argument, as a result and both ways, and an array of 24 MB both ways through joblib's backend or as a call.
The ways take turns; of each the median of wall time counts, and of processor time over all processes. A synced write
of the same bytes is what a durable call cannot avoid: once for its arguments, once for its result.
"""

from __future__ import annotations

import os
import statistics
import time
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import psutil
from common import fresh_directory, options, report, synced_write_seconds

from actorproc.executor import ProcedureExecutor

ARRAY = 3_000_000
"""Numbers of 8 bytes."""


def argument(content: bytes) -> int:
    return len(content)


def result(size: int) -> bytes:
    return os.urandom(1024) * (size // 1024)


def both(content: bytes) -> bytes:
    return content


def array(values):
    return values * 2


def processor_seconds() -> float:
    """Of this process and all below it, living or waited for."""
    own = os.times()
    found = own.user + own.system
    for process in psutil.Process().children(recursive=True):
        try:
            times = process.cpu_times()
        except psutil.Error:
            continue
        found += times.user + times.system
    return found


def loky_pool(workers: int):
    try:
        from joblib.externals.loky import ProcessPoolExecutor as Loky
    except ImportError:
        return None
    return Loky(workers)


def numbers():
    try:
        import numpy as np
    except ImportError:
        return None
    return np.arange(float(ARRAY))


def measure(executor, function, given) -> tuple[float, float]:
    busy, start = processor_seconds(), time.perf_counter()
    executor.submit(function, given).result(600)
    wall = time.perf_counter() - start
    return wall, processor_seconds() - busy


def main() -> None:
    given = options(__doc__, megabytes=(100, 8), repeat=(5, 1))
    size = given.megabytes * 1024 * 1024
    content = os.urandom(size)
    ways = {"argument": (argument, content), "result": (result, size), "both": (both, content)}
    values = numbers()
    if values is not None:
        ways["array of 24 MB"] = (array, values)
    found: dict[str, dict[str, list[tuple[float, float]]]] = {way: {} for way in ways}
    written: list[float] = []
    with ExitStack() as stack:
        path = stack.enter_context(fresh_directory())
        pools = {
            "ProcedureExecutor": stack.enter_context(ProcedureExecutor(Path(path) / "calls", 2)),
            "ProcessPoolExecutor": stack.enter_context(ProcessPoolExecutor(2)),
        }
        loky = loky_pool(2)
        if loky is not None:
            pools["loky"] = stack.enter_context(loky)
        for pool in pools.values():
            list(pool.map(abs, range(20)))
            measure(pool, both, content)
        for _ in range(given.repeat):
            written.append(synced_write_seconds(size, path))
            for way, (function, argument_) in ways.items():
                for name, pool in pools.items():
                    found[way].setdefault(name, []).append(measure(pool, function, argument_))
    write = statistics.median(written)
    seconds = {
        way: {
            name: {
                "wall_s": statistics.median(wall for wall, _ in each),
                "processor_s": statistics.median(busy for _, busy in each),
            }
            for name, each in of.items()
        }
        for way, of in found.items()
    }
    lines = [f"synced write of {given.megabytes} MiB{write:16.3f} s"]
    lines += [
        f"{way + ', ' + name:38}{figures['wall_s']:8.3f} s wall {figures['processor_s']:8.3f} s processor"
        for way, of in seconds.items()
        for name, figures in of.items()
    ]
    report(
        "large_calls",
        {"megabytes": given.megabytes, "write_s": write, "seconds": seconds, "repeat": given.repeat},
        lines,
    )


if __name__ == "__main__":
    main()
