"""Cost of a snapshot that is held for long, to a store in PostgreSQL: `pg_dump`, a forgotten transaction, a backup.

    python bench/long_snapshot.py [--path URL] [--procedures 100000] [--commits 20000] [--backup 64]

Vacuum removes nothing that the snapshot may see, so rows that were removed stay in tables and indexes. The same reads
and commits are measured before, and while another session holds a snapshot:

- Reads that start at an end of an index, after so many procedures have started, ended and been removed.
- The removal of finished procedures, per procedure: the first tenth and the last one.
- A commit of one step, the first tenth and the last one of so many.
- A commit of one step during a `backup` of a store with so many MiB, to the commits before it.

Beside them is the time that the server plans for the page of a scan: prepared, as all statements of the store are, and
with the values in the text.
"""

from __future__ import annotations

import contextlib
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path

from common import options, report, store_in
from stores import database

from actorproc.model.rows.writes import DeleteProcedure
from actorproc.model.states import ProcedureState
from actorproc.store.postgres.connecting import connect
from actorproc.store.postgres.place import place_of
from actorproc.store.postgres.sessions import Statement
from actorproc.store.postgres.store import DatabaseStore
from actorproc.testing.store_suite import Writes

_AT_ONCE = 200
"""Procedures of one commit."""
_LIVE = 20
"""Procedures that stay."""
_SUCCESS = ProcedureState.SUCCESS


class Filled:
    """A store through which procedures go: each starts, ends and is removed."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.store = DatabaseStore(url)
        self.epoch = self.store.own()
        self.seq = 0
        self.batch = 0

    def commit(self, writes: list) -> float:
        """Seconds of a commit."""
        self.batch += 1
        start = time.perf_counter()
        self.store.commit(writes, self.epoch, self.batch)
        return time.perf_counter() - start

    def start(self, number: int) -> list:
        heads = []
        for _ in range(number):
            self.seq += 1
            heads.append(Writes.head(f"p{self.seq:012d}", self.seq, records=1))
        self.commit([write for head in heads for write in (Writes.put(head), Writes.step(head.id, 1))])
        return heads

    def go_through(self, number: int) -> list[float]:
        """Seconds of the removals of so many procedures, per procedure, in order."""
        times = []
        for begun in range(0, number, _AT_ONCE):
            heads = self.start(min(_AT_ONCE, number - begun))
            ends = [Writes.change(head, state=_SUCCESS, finished_at=1.0 + head.seq) for head in heads]
            self.commit([write for write, _ in ends])
            times.append(self.commit([DeleteProcedure(head) for _, head in ends]) / len(ends))
        return times

    def steps(self, number: int) -> list[float]:
        """Seconds of so many commits of a step each, of one procedure after the other."""
        heads = self.start(50)
        times = []
        for count in range(number):
            head = heads[count % len(heads)]
            change, head = Writes.change(head, records=head.records + 1)
            heads[count % len(heads)] = head
            times.append(self.commit([change, Writes.step(head.id, head.records)]))
        return times

    def close(self) -> None:
        self.store.close()


def looks(store: DatabaseStore) -> dict[str, Callable[[], object]]:
    """Reads that start at an end of an index."""
    running = ProcedureState.RUNNABLE
    return {
        "finished": lambda: store.finished(limit=512),
        "running": lambda: list(islice(store.scan(state=running), 5)),
        "succeeded": lambda: list(islice(store.scan(state=_SUCCESS), 5)),
        "all": lambda: list(islice(store.scan(), 5)),
        "of a type": lambda: list(islice(store.scan(type_name="shop.Order"), 5)),
        "newest": lambda: list(islice(store.scan(reverse=True), 5)),
        "types": store.types,
        "a head": lambda: store.procedure("p000000000001"),
    }


def milliseconds(look: Callable[[], object], rounds: int = 7) -> float:
    """The median of some calls after a first one."""
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        look()
        times.append(time.perf_counter() - start)
    return statistics.median(times[1:]) * 1e3


@contextlib.contextmanager
def held_snapshot(url: str) -> Iterator[None]:
    """A snapshot as that of `pg_dump`. The server ends a `StoreReader` that stands still for a minute."""
    place = place_of(url)
    session = connect(place, "commit", "a snapshot that is held")
    look = Statement(f"SELECT count(*) FROM {place.schema}.steps".encode(), once=True)
    session.ask([(Statement(b"BEGIN ISOLATION LEVEL REPEATABLE READ", once=True), ()), (look, ())], 60.0)
    try:
        yield
    finally:
        session.close()


def planning(filled: Filled) -> dict[str, float]:
    """Milliseconds that the server plans for a page of a scan: prepared, and with the values in the text."""
    session = filled.store._session
    schema = place_of(filled.url).schema
    text = f"SELECT k, v FROM {schema}.by_state WHERE k >= '\\x00' AND k < '\\xff' ORDER BY k LIMIT 64"

    def planned(statement: str) -> float:
        (answer,) = session.ask([(Statement(f"EXPLAIN (SUMMARY) {statement}".encode(), once=True), ())], 60.0)
        lines = [(answer.get_value(row, 0) or b"").decode() for row in range(answer.ntuples)]
        return next(float(line.split()[2]) for line in lines if line.startswith("Planning Time"))

    session.ask([(Statement(f"PREPARE page AS {text}".encode(), once=True), ())], 60.0)
    planned("EXECUTE page")
    found = {
        "prepared": statistics.median(planned("EXECUTE page") for _ in range(9)),
        "in the text": statistics.median(planned(text) for _ in range(9)),
    }
    session.ask([(Statement(b"DEALLOCATE page", once=True), ())], 60.0)
    return found


def ends_of(times: list[float]) -> tuple[float, float]:
    """The medians of the first and of the last tenth, in microseconds."""
    part = max(1, len(times) // 10)
    return statistics.median(times[:part]) * 1e6, statistics.median(times[-part:]) * 1e6


def during_backup(filled: Filled, megabytes: int) -> dict[str, float]:
    """Microseconds of a commit before a backup and while it runs, and the seconds that it took."""
    content = os.urandom(1 << 20)
    for number in range(megabytes):
        filled.commit([Writes.event(f"kept{number}", 1, content)])
    before = statistics.median(filled.steps(500)) * 1e6
    ended = threading.Event()
    took = []

    def copy() -> None:
        with tempfile.TemporaryDirectory(prefix="actorproc-bench-") as folder:
            start = time.perf_counter()
            filled.store.backup(Path(folder, "copy"))
            took.append(time.perf_counter() - start)
        ended.set()

    thread = threading.Thread(target=copy)
    thread.start()
    times: list[float] = []
    while not ended.is_set():
        times += filled.steps(50)
    thread.join()
    return {"before_us": before, "during_us": statistics.median(times) * 1e6, "took_s": took[0]}


def main() -> None:
    given = options(__doc__, procedures=(100_000, 1000), commits=(20_000, 300), backup=(64, 2))
    with database(given.path) as url, store_in(url) as path:
        filled = Filled(path)
        with contextlib.closing(filled):
            filled.start(_LIVE)
            filled.go_through(1000)
            first = {name: milliseconds(look) for name, look in looks(filled.store).items()}
            plans = {"before": planning(filled)}
            backup = during_backup(filled, given.backup)
            with held_snapshot(path):
                removals = ends_of(filled.go_through(given.procedures))
                steps = ends_of(filled.steps(given.commits))
                last = {name: milliseconds(look) for name, look in looks(filled.store).items()}
                plans["held"] = planning(filled)
    lines = [
        *(
            f"{name:12} {first[name]:8.2f} ms, {last[name]:8.2f} after {given.procedures:,} under a snapshot"
            for name in first
        ),
        f"removal of a procedure {removals[0]:8,.1f} us at first, {removals[1]:8,.1f} at the end",
        f"commit of a step       {steps[0]:8,.1f} us at first, {steps[1]:8,.1f} after {given.commits:,}",
        (
            f"commit of a step       {backup['before_us']:8,.1f} us, {backup['during_us']:8,.1f} during a backup of "
            f"{backup['took_s']:.2f} s"
        ),
        *(
            f"planned, {when:6} {one['prepared']:.3f} ms prepared, {one['in the text']:.3f} else"
            for when, one in plans.items()
        ),
        f"load {os.getloadavg()[0]:.1f}",
    ]
    report(
        "long_snapshot",
        {
            "looks_ms": {name: [first[name], last[name]] for name in first},
            "removal_us": removals,
            "step_us": steps,
            "backup": backup,
            "planning_ms": plans,
            "load": os.getloadavg()[0],
        },
        lines,
    )


if __name__ == "__main__":
    main()
