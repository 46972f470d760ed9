"""How many calls per second does `ProcedureExecutor` make, beside ProcessPoolExecutor, loky and pebble?

    python bench/executor.py [--calls 10000] [--workers 2] [--repeat 3]

The calls do nothing, so that only the way there and back is measured: one by one, queued (all submitted, then all
waited for) and with `map`. Each is a durable procedure here; the others store nothing. Then a call with a 10 MB
argument, beside a bare pipe to another process plus a synced write of the same bytes. The queued calls of the bare
pipeline of `bare.py`, which stores them, are measured in each round.
"""

from __future__ import annotations

import statistics
import time

import bare
from common import (
    OtherEnd,
    fresh_directory,
    fresh_store,
    middle,
    options,
    raw_commits_per_second,
    report,
    synced_write_seconds,
)
from peer_home import Missing, python_for, run
from rest import wait_for_spares

from actorproc.executor import ProcedureExecutor

LARGE = 5
"""Calls with a large argument in each round; the fastest counts, for them and for what they are compared with."""


def ours(calls: int, lone: int, size: int, workers: int) -> dict[str, float]:
    with fresh_store() as path, ProcedureExecutor(path, workers) as executor:
        list(executor.map(abs, range(500)))
        wait_for_spares()
        start = time.perf_counter()
        for number in range(lone):
            executor.submit(abs, -number).result(120)
        found = {"one by one": lone / (time.perf_counter() - start)}
        found |= _queued_on(executor, calls)
        start = time.perf_counter()
        assert sum(1 for _ in executor.map(abs, range(calls))) == calls
        found["map"] = calls / (time.perf_counter() - start)
        start = time.perf_counter()
        assert sum(1 for _ in executor.map(abs, range(calls), chunksize=50)) == calls
        found["map in chunks of 50"] = calls / (time.perf_counter() - start)
        content = bytes(size)
        found["large_s"] = min(_timed(lambda: executor.submit(len, content).result(120)) for _ in range(LARGE))
    return found


def queued(calls: int, workers: int) -> float:
    """Queued calls per second alone."""
    with fresh_store() as path, ProcedureExecutor(path, workers) as executor:
        list(executor.map(abs, range(500)))
        wait_for_spares()
        return _queued_on(executor, calls)["queued"]


def _queued_on(executor: ProcedureExecutor, calls: int) -> dict[str, float]:
    start = time.perf_counter()
    futures = [executor.submit(abs, -number) for number in range(calls)]
    submitted = time.perf_counter() - start
    futures[-1].durable(120)
    stored = time.perf_counter() - start
    for future in futures:
        future.result(120)
    return {"queued": calls / (time.perf_counter() - start), "stored": calls / stored, "put": calls / submitted}


def floor_of_large(size: int) -> tuple[float, float]:
    """Seconds for so many bytes through a socket pair (one way), and to a synced file."""
    with fresh_directory() as path, OtherEnd(size) as other:
        written = min(synced_write_seconds(size, path) for _ in range(LARGE))
        sent = min(other.seconds() for _ in range(LARGE))
    return sent, written


def _timed(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def pools(given) -> tuple[dict[str, dict[str, float]], dict[str, str], dict[str, str]]:
    """What the others reach, why some are not here, and their versions."""
    shape = ("--calls", given.calls, "--lone", given.lone, "--size", given.size, "--workers", given.workers)
    try:
        python = python_for("loky", "pebble")
    except Missing:
        python = python_for()
    found = run("pools.py", python, *shape)
    return found["found"], found["missing"], found["versions"]


def main() -> None:
    given = options(
        __doc__, calls=(10_000, 1_000), lone=(1_000, 100), size=(10_000_000, 10_000_000), workers=(2, 2), repeat=(3, 1)
    )
    rounds: dict[str, list[dict[str, float]]] = {}
    floors = []
    raw, bares = [], []
    for _ in range(given.repeat):
        raw.append(raw_commits_per_second(0.5))
        rounds.setdefault("ProcedureExecutor", []).append(ours(given.calls, given.lone, given.size, given.workers))
        bares.append(bare.calls(given.calls, given.workers))
        others, missing, versions = pools(given)
        for name, found in others.items():
            rounds.setdefault(name, []).append(found)
        floors.append(floor_of_large(given.size))
    usual = {name: middle(found) for name, found in rounds.items()}
    mine = usual.pop("ProcedureExecutor")
    ratios = {way: mine[way] / max(other[way] for other in usual.values()) for way in ("one by one", "queued", "map")}
    sent, written = (statistics.median(one) for one in zip(*floors, strict=True))
    floor = sent + written
    lines = [f"raw LMDB, one synced commit per call  {statistics.median(raw):10,.0f} /s"]
    for name, found in {"ProcedureExecutor": mine, **usual}.items():
        lines += [f"{name + ', ' + way:38}{found[way]:10,.0f} /s" for way in ratios]
    lines += [
        f"{'ProcedureExecutor, ' + way:38}{mine[way]:10,.0f} /s" for way in ("put", "stored", "map in chunks of 50")
    ]
    lines.append(f"{'a bare pipeline, queued':38}{statistics.median(bares):10,.0f} /s")
    lines += [f"{'to the best of the others, ' + way:38}{ratio:10.2f} x" for way, ratio in ratios.items()]
    lines.append(f"{given.size / 1e6:g} MB argument: {mine['large_s'] * 1e3:.1f} ms = {mine['large_s'] / floor:.2f} x")
    lines.append(f"    (pipe {sent * 1e3:.1f} ms + synced write {written * 1e3:.1f} ms)")
    report(
        "executor",
        {
            "ProcedureExecutor": mine,
            "others": usual,
            "missing": missing,
            "versions": versions,
            "ratio_to_best": ratios,
            "bare": {"queued": statistics.median(bares)},
            "large": {"bytes": given.size, "pipe_s": sent, "write_s": written, "ratio": mine["large_s"] / floor},
            "raw_commits_per_s": statistics.median(raw),
            "calls": given.calls,
        },
        lines,
    )


if __name__ == "__main__":
    main()
