"""Raw limits to compare with, measured in the same run, and the form of a result."""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import platform
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import lmdb

_DATABASE = "ACTORPROC_BENCH_DATABASE"
"""The environment's word for `--path`, which benches pass on to processes that they start."""
_stores = itertools.count(1)

SEMANTICS = {
    "durability": "power (the default: no power cut takes back what is acknowledged)",
    "checksums": "every record",
    "counters": "attempts, errors, crashes durable",
    "locks and children": "machinery on (these procedures declare none)",
}


def options(text: str | None, **defaults: tuple[Any, Any]) -> argparse.Namespace:
    """The command line of a bench: ``name=(default, what --quick takes)``, by name ``--name``; bools are flags."""
    parser = argparse.ArgumentParser(description=text, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="small sizes: to see that it works, not to measure")
    for name, (usual, quick) in defaults.items():
        flag = "--" + name.replace("_", "-")
        if isinstance(usual, bool):
            parser.add_argument(flag, action="store_true")
        else:
            kind = _numbers if isinstance(usual, tuple) else type(usual)
            parser.add_argument(flag, type=kind, help=f"default {_shown(usual)}, with --quick {_shown(quick)}")
    parser.add_argument("--path", metavar="URL", help="stores in this database, in place of new directories")
    given = parser.parse_args()
    if given.path is not None:
        os.environ[_DATABASE] = given.path
    for name, (usual, quick) in defaults.items():
        if getattr(given, name) is None:
            setattr(given, name, quick if given.quick else usual)
    return given


def _numbers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(","))


def _shown(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, tuple) else str(value)


def middle(rounds: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The median of each figure over rounds that all have the same ones."""
    return {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}


def raw_commits_per_second(seconds: float = 1.0, rows: int = 1) -> float:
    """Synced LMDB commits per second, each with what `rows` steps of the engine store, and in the same databases.

    That is, for each step, a new row of 109 bytes in one, a changed row of 236 bytes in another, and for each commit a
    number in a third.
    """
    with fresh_directory() as folder:
        environment = lmdb.open(folder, map_size=1 << 32, max_dbs=4)
        steps, heads, meta = (environment.open_db(name) for name in (b"steps", b"procedures", b"meta"))
        record, head = b"x" * 109, b"x" * 236
        count = 0
        start = time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds:
            with environment.begin(write=True) as transaction:
                for row in range(rows):
                    name = b"%036d" % row
                    transaction.put(b"%08d\0%b" % (count, name), record, db=steps)
                    transaction.put(name, head, db=heads)
                transaction.put(b"batch", b"%06d" % (count % 1_000_000), db=meta)
            count += 1
        environment.close()
    return count / elapsed


_OTHER_END = """
import socket, sys
end, size = socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])
left = size
while chunk := end.recv(262144):
    left -= len(chunk)
    if left == 0:
        end.sendall(bytes(size if size <= 65536 else 1))
        left = size
"""


class OtherEnd:
    """Another Python process at the end of a socket pair: it takes messages of `size` bytes, and answers each.

    With as many bytes; with one byte when the message is larger than what the sockets hold (65,536 bytes).
    """

    def __init__(self, size: int) -> None:
        self._message = os.urandom(size)

    def __enter__(self):
        self._end, theirs = socket.socketpair()
        command = [sys.executable, "-c", _OTHER_END, str(theirs.fileno()), str(len(self._message))]
        self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()])
        theirs.close()
        return self

    def seconds(self) -> float:
        """Seconds until a message has been answered."""
        left = len(self._message) if len(self._message) <= 65536 else 1
        start = time.perf_counter()
        self._end.sendall(self._message)
        while left:
            left -= len(self._end.recv(65536))
        return time.perf_counter() - start

    def __exit__(self, *_):
        self._end.close()
        self._process.wait()


def pipe_round_trip_seconds(rounds: int = 3000, size: int = 200) -> float:
    """Median seconds of a `size`-byte round trip over a socket pair to another Python process."""
    with OtherEnd(size) as other:
        return statistics.median(other.seconds() for _ in range(rounds))


def synced_write_seconds(size: int, folder: str) -> float:
    """Seconds to write and sync a new file of so many bytes."""
    content = os.urandom(size)
    start = time.perf_counter()
    with (Path(folder) / f"raw-{time.monotonic_ns()}").open("wb", buffering=0) as file:
        file.write(content)
        os.fdatasync(file.fileno())
    seconds = time.perf_counter() - start
    Path(file.name).unlink()
    return seconds


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
    machine = {"python": platform.python_version(), "system": platform.system(), "cores": cores()}
    print(json.dumps({"bench": name, "machine": machine, "semantics": SEMANTICS, **figures}, sort_keys=True))


def cores() -> int:
    """Processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextlib.contextmanager
def fresh_store() -> Iterator[str]:
    """The path of a store that is not there yet: a new directory, or a schema of the database of ``--path``."""
    url = os.environ.get(_DATABASE)
    if url is None:
        with fresh_directory() as path:
            yield path
    else:
        with store_in(url) as path:
            yield path


@contextlib.contextmanager
def store_in(url: str) -> Iterator[str]:
    """The URL of a store that is not there yet, in this database; it is dropped afterwards."""
    from actorproc.store.postgres.connecting import connect
    from actorproc.store.postgres.place import place_of
    from actorproc.store.postgres.sessions import Statement

    name = f"bench_{os.getpid()}_{next(_stores)}"
    place = place_of(f"{url}{'&' if '?' in url else '?'}store={name}")
    yield f"{url}{'&' if '?' in url else '?'}store={name}"
    session = connect(place, "commit", "bench")
    session.ask([(Statement(f"DROP SCHEMA IF EXISTS {place.schema} CASCADE".encode(), once=True), ())], 60.0)
    session.close()


def fresh_directory() -> tempfile.TemporaryDirectory[str]:
    """A directory for a store, beside the temporary files of the system."""
    return tempfile.TemporaryDirectory(prefix="actorproc-bench-")


def store_bytes(path: str | Path) -> int:
    """Bytes the store occupies on disk."""
    return sum(file.stat().st_blocks * 512 for file in Path(path).rglob("*") if file.is_file())
