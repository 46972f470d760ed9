"""ProcessPoolExecutor, loky and pebble: calls that do nothing. Run by `bench/executor.py`; prints one JSON object.

One by one: the next call is submitted when the last has its result. Queued: all are submitted, then all are waited for.
None of them stores anything.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import time
from concurrent.futures import ProcessPoolExecutor
from importlib import metadata


def measured(submit, many, calls: int, lone: int, size: int) -> dict[str, float]:
    """`submit(function, argument)` gives a future, `many(function, arguments)` an iterator of results."""
    for future in [submit(abs, number) for number in range(200)]:
        future.result()
    found = {}
    start = time.perf_counter()
    for number in range(lone):
        submit(abs, -number).result()
    found["one by one"] = lone / (time.perf_counter() - start)
    start = time.perf_counter()
    for future in [submit(abs, -number) for number in range(calls)]:
        future.result()
    found["queued"] = calls / (time.perf_counter() - start)
    start = time.perf_counter()
    assert sum(1 for _ in many(abs, range(calls))) == calls
    found["map"] = calls / (time.perf_counter() - start)
    content = bytes(size)
    times = []
    for _ in range(5):
        start = time.perf_counter()
        assert submit(len, content).result() == size
        times.append(time.perf_counter() - start)
    found["large_s"] = min(times)
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--calls", type=int, required=True)
    parser.add_argument("--lone", type=int, required=True)
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--workers", type=int, required=True)
    given = parser.parse_args()
    shape = (given.calls, given.lone, given.size)
    found, missing = {}, {}
    with ProcessPoolExecutor(given.workers) as pool:
        found["ProcessPoolExecutor"] = measured(pool.submit, pool.map, *shape)
    versions = {"ProcessPoolExecutor": f"of Python {platform.python_version()}"}
    for name in ("loky", "pebble"):
        if importlib.util.find_spec(name) is None:
            missing[name] = "not installed"
        else:
            versions[name] = metadata.version(name)
    if "loky" in versions:
        from loky import ProcessPoolExecutor as Loky

        with Loky(given.workers) as pool:
            found["loky"] = measured(pool.submit, pool.map, *shape)
    if "pebble" in versions:
        from pebble import ProcessPool

        with ProcessPool(max_workers=given.workers) as pool:
            found["pebble"] = measured(
                lambda function, argument: pool.schedule(function, (argument,)),
                lambda function, arguments: pool.map(function, arguments).result(),
                *shape,
            )
    print(json.dumps({"found": found, "missing": missing, "versions": versions}))


if __name__ == "__main__":
    main()
