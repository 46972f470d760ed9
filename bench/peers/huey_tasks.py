"""The task of `huey_sqlite.py`, where huey's consumer finds it; the file of the database is named by BENCH_HUEY."""

from __future__ import annotations

import os

from huey import SqliteHuey

# Synced like the others: synchronous FULL, in its usual WAL mode.
huey = SqliteHuey("bench", filename=os.environ["BENCH_HUEY"], fsync=True)


@huey.task()
def count(number: int) -> int:
    return number + 1
