"""Cost of a store in PostgreSQL beside one in a directory.

    python bench/stores.py [--path URL] [--steps 25000] [--pending 100000] [--repeat 3]

Both stores in the same run, round by round, so that a slow moment of the machine slows both. Without ``--path`` a
private server is started, which waits for its disk as a real one does; it shares the processors of this machine.

- 256 and 64 procedures in flight: steps per second.
- A lone step, to a raw commit of two rows behind the fence and a round trip to another process.
- Pending procedures after a restart: steps per second until all have ended.
- The start of a manager with pending procedures.
- `submit_many`.
- A commit while another session holds a snapshot: it must not grow with the number of commits.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import time
from collections.abc import Iterator

from common import fresh_directory, middle, options, pipe_round_trip_seconds, report, store_in
from rest import wait_for_spares
from steps import Count, steps_of

from actorproc import Config, ProcedureManager
from actorproc.store.postgres.committing import fence
from actorproc.store.postgres.connecting import connect
from actorproc.store.postgres.place import place_of
from actorproc.store.postgres.sessions import Question, Statement, array_of
from actorproc.store.postgres.store import DatabaseStore
from actorproc.store.rows.tables import Table
from actorproc.testing.database_server import DatabaseServer

_SOURCES = ("directory", "postgres")


def flood(path: str, procedures: int, steps: int) -> float:
    """Steps per second with so many procedures in flight."""
    with ProcedureManager(path, procedures=[Count], workers=2) as manager:
        for handle in manager.submit_many([Count(3) for _ in range(64)]):
            handle.result(timeout=120)
        wait_for_spares()
        start = time.perf_counter()
        for handle in manager.submit_many([Count(steps) for _ in range(procedures)]):
            assert handle.result(timeout=300) == steps
        return procedures * steps / (time.perf_counter() - start)


def lone(path: str, steps: int) -> float:
    """Seconds per step of one procedure alone."""
    with ProcedureManager(path, procedures=[Count], workers=1) as manager:
        manager.run(Count(50))
        wait_for_spares()
        start = time.perf_counter()
        manager.run(Count(steps))
        return (time.perf_counter() - start) / steps


def pending(path: str, procedures: int) -> tuple[float, float, float]:
    """Submits per second, seconds of the next start, and steps per second until all have ended."""
    config = Config(spares=0)
    manager = ProcedureManager(path, procedures=[Count], workers=2, config=config).start(gated=True)
    start = time.perf_counter()
    for begun in range(0, procedures, 5000):
        manager.submit_many([Count(1) for _ in range(min(5000, procedures - begun))])
    submits = procedures / (time.perf_counter() - start)
    manager.stop()
    manager = ProcedureManager(path, procedures=[Count], workers=2, config=config)
    start = time.perf_counter()
    manager.start(gated=True)
    seconds = time.perf_counter() - start
    start = time.perf_counter()
    manager.open()
    while manager.list(phase="queued", limit=1) or manager.list(phase="running", limit=1):
        time.sleep(0.02)
    rate = procedures / (time.perf_counter() - start)
    manager.stop()
    return submits, seconds, rate


def raw_fenced_commit(url: str, seconds: float = 0.5) -> float:
    """Seconds of a commit of two rows behind the fence, by libpq alone, in the tables of a store."""
    with store_in(url) as path:
        store = DatabaseStore(path)
        epoch = store.own()
        session = connect(store.place, "commit", "bench")
        count = 0
        start = time.perf_counter()
        while (elapsed := time.perf_counter() - start) < seconds:
            count += 1
            session.ask(_two_rows(store, count, epoch), 10.0)
        session.close()
        store.close()
    return elapsed / count


def _two_rows(store: DatabaseStore, count: int, epoch: int) -> list[Question]:
    steps, heads = (store._statements.tables[table].put for table in (Table.STEPS, Table.PROCEDURES))
    return [
        (steps, (array_of([b"%08d0000" % count]), array_of([b"x" * 109]))),
        (heads, (array_of([b"0"]), array_of([b"x" * 236]))),
        *fence(store._statements, epoch, count, count - 1),
    ]


def held_snapshot(url: str, commits: int) -> tuple[float, float]:
    """Microseconds of a commit at first and after so many, while another session holds a snapshot."""
    with store_in(url) as path:
        store = DatabaseStore(path)
        epoch = store.own()
        holder = connect(place_of(path), "look", "bench")
        look = Statement(f"SELECT count(*) FROM {store.place.schema}.steps".encode(), once=True)
        holder.ask([(Statement(b"BEGIN ISOLATION LEVEL REPEATABLE READ", once=True), ()), (look, ())], 10.0)
        times = []
        for count in range(1, commits + 1):
            start = time.perf_counter()
            store._session.ask(fence(store._statements, epoch, count, count - 1), 10.0)
            times.append(time.perf_counter() - start)
        holder.close()
        store.close()
    part = max(1, commits // 10)
    return statistics.median(times[:part]) * 1e6, statistics.median(times[-part:]) * 1e6


@contextlib.contextmanager
def database(path: str | None) -> Iterator[str]:
    """The given database, or a private one that waits for its disk."""
    if path is not None:
        yield path
        return
    with DatabaseServer(fsync=True) as server:
        yield server.url()


def main() -> None:
    given = options(__doc__, steps=(25_000, 1000), pending=(100_000, 500), held=(18_000, 200), repeat=(3, 1))
    rounds = []
    with database(given.path) as url:

        def new(source: str) -> contextlib.AbstractContextManager[str]:
            return fresh_directory() if source == "directory" else store_in(url)

        for _ in range(given.repeat):
            one: dict[str, float] = {"raw": raw_fenced_commit(url), "trip": pipe_round_trip_seconds(1000)}
            for source in _SOURCES:
                for number in (256, 64):
                    with new(source) as path:
                        one[f"{source} {number}"] = flood(path, number, steps_of(number, given.steps))
                with new(source) as path:
                    one[f"{source} lone"] = lone(path, min(1000, given.steps // 10))
                with new(source) as path:
                    submits, start, rate = pending(path, given.pending)
                    one |= {f"{source} submits": submits, f"{source} start": start, f"{source} backlog": rate}
            rounds.append(one | {"load": os.getloadavg()[0]})
        first, last = held_snapshot(url, given.held)
    usual = middle(rounds)

    def ratio(name: str) -> float:
        return statistics.median(one[f"postgres {name}"] / one[f"directory {name}"] for one in rounds)

    floor = statistics.median(one["postgres lone"] / (one["raw"] + one["trip"]) for one in rounds)
    start, submit = ratio("start"), ratio("submits")
    lines = [
        f"{number} in flight        directory {usual[f'directory {number}']:10,.0f} steps/s, "
        f"postgres {usual[f'postgres {number}']:10,.0f} = {ratio(str(number)):.2f} x"
        for number in (256, 64)
    ]
    lines += [
        (
            f"lone step            directory {usual['directory lone'] * 1e6:10,.0f} us,      "
            f"postgres {usual['postgres lone'] * 1e6:10,.0f} = {floor:.2f} x (raw fenced commit + trip, "
            f"{(usual['raw'] + usual['trip']) * 1e6:,.0f} us)"
        ),
        (
            f"backlog of {given.pending:<9,} directory {usual['directory backlog']:10,.0f} steps/s, "
            f"postgres {usual['postgres backlog']:10,.0f} = {ratio('backlog'):.2f} x"
        ),
        (
            f"start, {given.pending:<9,}     directory {usual['directory start']:10.2f} s,       "
            f"postgres {usual['postgres start']:10.2f} = {start:.2f} x"
        ),
        (
            f"submit_many          directory {usual['directory submits']:10,.0f} a second, "
            f"postgres {usual['postgres submits']:8,.0f} = {submit:.2f} x"
        ),
        f"commit under a held snapshot: {first:,.0f} us at first, {last:,.0f} us after {given.held:,}",
        f"medians of {given.repeat} rounds side by side, load {usual['load']:.1f}",
    ]
    ratios = {"256": ratio("256"), "64": ratio("64"), "lone": floor, "backlog": ratio("backlog")}
    ratios |= {"start": start, "submit_many": submit, "held": last / first}
    report("stores", {"ratios": ratios, "rounds": rounds, "held_us": [first, last]}, lines)


if __name__ == "__main__":
    main()
