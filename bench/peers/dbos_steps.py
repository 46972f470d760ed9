"""DBOS: workflows of tiny steps, so many in flight at once. Run by `bench/peers.py`; prints one JSON object.

What DBOS does by itself is left as it is: on SQLite a rollback journal, synchronous FULL, with `--url` on PostgreSQL
a database of its own. Each step is one synced transaction. Workflows run as functions in its threads, or as coroutines;
both are measured.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import tempfile
import time
from importlib import metadata
from pathlib import Path

import sqlalchemy
from dbos import DBOS


@DBOS.step()
def count(number: int) -> int:
    return number + 1


@DBOS.workflow()
def counting(steps: int) -> int:
    done = 0
    while done < steps:
        done = count(done)
    return done


@DBOS.step()
async def count_async(number: int) -> int:
    return number + 1


@DBOS.workflow()
async def counting_async(steps: int) -> int:
    done = 0
    while done < steps:
        done = await count_async(done)
    return done


def in_threads(workflows: int, steps: int) -> float:
    start = time.perf_counter()
    handles = [DBOS.start_workflow(counting, steps) for _ in range(workflows)]
    # Told soon after it has ended: its own default is to look once a second.
    assert all(handle.get_result(polling_interval_sec=0.05) == steps for handle in handles)
    return workflows * steps / (time.perf_counter() - start)


async def in_coroutines(workflows: int, steps: int) -> float:
    async def one() -> int:
        handle = await DBOS.start_workflow_async(counting_async, steps)
        return await handle.get_result(polling_interval_sec=0.05)

    start = time.perf_counter()
    assert await asyncio.gather(*[one() for _ in range(workflows)]) == [steps] * workflows
    return workflows * steps / (time.perf_counter() - start)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--in-flight", type=int, nargs="+", required=True)
    parser.add_argument("--total", type=int, required=True, help="steps in all, at each number in flight")
    parser.add_argument("--url", help="a database of PostgreSQL, made if it is not there; default: SQLite")
    given = parser.parse_args()
    logging.disable(logging.INFO)
    found = {"version": metadata.version("dbos"), "threads": {}, "coroutines": {}}
    with tempfile.TemporaryDirectory(prefix="actorproc-bench-") as folder:
        url = given.url or f"sqlite:///{Path(folder) / 'dbos.sqlite'}"
        dbos = DBOS(config={"name": "bench", "system_database_url": url, "log_level": "WARNING"})
        DBOS.launch()
        with dbos._sys_db.engine.connect() as connection:
            for name in ("fsync", "synchronous_commit") if given.url else ("journal_mode", "synchronous"):
                asked = f"show {name}" if given.url else f"pragma {name}"
                found[name] = connection.execute(sqlalchemy.text(asked)).scalar()
        in_threads(1, 20)
        for number in given.in_flight:
            steps = max(1, given.total // number)
            found["threads"][number] = in_threads(number, steps)
            found["coroutines"][number] = asyncio.run(in_coroutines(number, steps))
        DBOS.destroy()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
