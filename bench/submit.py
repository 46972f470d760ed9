"""How many procedures are stored per second by `submit_many`, and by single submits?

    python bench/submit.py [--procedures 100000] [--repeat 3]

Counted from the call until all of them are durable. Beside it raw LMDB: as many rows, as large and in as many
databases, in one synced commit.
"""

from __future__ import annotations

import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import lmdb
from common import fresh_directory, fresh_store, middle, options, raw_commits_per_second, report
from steps import Count

from actorproc import ProcedureManager

ROWS = (107, 236, 36, 36, 36, 36)
"""Bytes of the rows that one new procedure makes, each in a database of its own."""


def in_one_call(procedures: int) -> float:
    with fresh_store() as path, ProcedureManager(path, procedures=[Count], workers=2) as manager:
        manager.run(Count(1))
        manager.pause(reason="only submits are wanted")
        batch = [Count(1) for _ in range(procedures)]
        start = time.perf_counter()
        assert len(manager.submit_many(batch)) == procedures
        return procedures / (time.perf_counter() - start)


def one_by_one(procedures: int, callers: int) -> float:
    """Single submits, by so many threads."""
    with (
        fresh_store() as path,
        ProcedureManager(path, procedures=[Count], workers=2) as manager,
        ThreadPoolExecutor(callers) as threads,
    ):
        manager.run(Count(1))
        manager.pause(reason="only submits are wanted")
        start = time.perf_counter()
        assert sum(1 for _ in threads.map(manager.submit, [Count(1) for _ in range(procedures)])) == procedures
        return procedures / (time.perf_counter() - start)


def raw(procedures: int) -> float:
    with fresh_directory() as path:
        environment = lmdb.open(path, map_size=1 << 32, max_dbs=8)
        databases = [(environment.open_db(b"%d" % size_at), bytes(size)) for size_at, size in enumerate(ROWS)]
        start = time.perf_counter()
        with environment.begin(write=True) as transaction:
            for number in range(procedures):
                for database, value in databases:
                    transaction.put(b"%036d" % number, value, db=database)
        seconds = time.perf_counter() - start
        environment.close()
    return procedures / seconds


def main() -> None:
    given = options(__doc__, procedures=(100_000, 5_000), singles=(2_000, 100), callers=(16, 16), repeat=(3, 1))
    rounds = [
        {
            "raw LMDB, one commit": raw(given.procedures),
            "raw LMDB, a commit each": raw_commits_per_second(0.5),
            "submit_many": in_one_call(given.procedures),
            "submit, one caller": one_by_one(given.singles // 4, 1),
            f"submit, {given.callers} callers": one_by_one(given.singles, given.callers),
        }
        for _ in range(given.repeat)
    ]
    usual = middle(rounds)
    ratio = statistics.median(one["submit_many"] / one["raw LMDB, one commit"] for one in rounds)
    report(
        "submit",
        {"per_s": usual, "procedures": given.procedures, "submit_many_ratio_to_raw": ratio, "rounds": rounds},
        [f"{name:28}{value:12,.0f} /s" for name, value in usual.items()],
    )


if __name__ == "__main__":
    main()
