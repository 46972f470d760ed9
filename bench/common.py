"""Raw limits to compare with, measured in the same run, and the form of a result."""

from __future__ import annotations

import json
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import lmdb

SEMANTICS = {
    "durability": "power (LMDB default: data and meta synced at every commit)",
    "checksums": "every record",
    "counters": "attempts, errors, crashes durable",
    "locks and children": "machinery on (these procedures declare none)",
}


def raw_commits_per_second(seconds: float = 1.0, rows: int = 1, size: int = 200) -> float:
    """Synced LMDB commits per second, each putting `rows` rows of `size` bytes."""
    with tempfile.TemporaryDirectory() as folder:
        environment = lmdb.open(folder, map_size=1 << 30, max_dbs=4)
        databases = [environment.open_db(name) for name in (b"steps", b"procedures")]
        value = b"x" * size
        count = 0
        start = time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds:
            with environment.begin(write=True) as transaction:
                for row in range(rows):
                    for database in databases:
                        transaction.put(b"%016d%04d" % (count % 1000, row), value, db=database)
            count += 1
        environment.close()
    return count / elapsed


_ECHO = """
import socket, sys
end = socket.socket(fileno=int(sys.argv[1]))
while chunk := end.recv(65536):
    end.sendall(chunk)
"""


def pipe_round_trip_seconds(rounds: int = 3000, size: int = 200) -> float:
    """Median seconds of a `size`-byte round trip over a socketpair to another Python process."""
    ours, theirs = socket.socketpair()
    child = subprocess.Popen([sys.executable, "-c", _ECHO, str(theirs.fileno())], pass_fds=[theirs.fileno()])
    theirs.close()
    message = b"x" * size
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        ours.sendall(message)
        left = size
        while left:
            left -= len(ours.recv(65536))
        times.append(time.perf_counter() - start)
    ours.close()
    child.wait()
    return statistics.median(times)


def spread(values: Sequence[float]) -> dict[str, float]:
    """Median, 90th and 99th percentile."""
    ordered = sorted(values)
    return {
        "p50": ordered[len(ordered) // 2],
        "p90": ordered[int(len(ordered) * 0.90)],
        "p99": ordered[int(len(ordered) * 0.99)],
        "max": ordered[-1],
    }


def report(name: str, figures: dict[str, object], text: Sequence[str]) -> None:
    """Print the readable lines, then one JSON line."""
    for line in text:
        print(line)
    machine = {"python": platform.python_version(), "system": platform.system(), "cores": _cores()}
    print(json.dumps({"bench": name, "machine": machine, "semantics": SEMANTICS, **figures}, sort_keys=True))


def _cores() -> int:
    import os

    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def fresh_directory() -> tempfile.TemporaryDirectory[str]:
    """A directory for a store, beside the temporary files of the system."""
    return tempfile.TemporaryDirectory(prefix="actorproc-bench-")


def store_bytes(path: str | Path) -> int:
    """Bytes the store occupies on disk."""
    return sum(file.stat().st_blocks * 512 for file in Path(path).rglob("*") if file.is_file())
