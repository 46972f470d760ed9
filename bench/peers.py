"""Durable steps per second beside DBOS (SQLite, PostgreSQL), Restate's server with its Python SDK, and huey on SQLite.

    python bench/peers.py [--in-flight 1,16,64,256] [--workers 2] [--total 25000] [--peer-total 2000]

Like with like: the same number of procedures (workflows, invocations, tasks) in flight, steps as small, and all set to
sync what they store; what each does to its files is in the result. Ours is the median of three runs, taken
between those of the peers. A peer that is not installed is skipped, and the result says why;
``python bench/peer_home.py`` installs them. The bare pipeline of `bare.py` is measured with each round of ours.

DBOS on PostgreSQL is beside our store on the same server: a private one that waits for its disk.
`--only PostgreSQL` leaves the other peers out.
"""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Sequence

import bare
from common import middle, options, raw_commits_per_second, report, store_in
from peer_home import Missing, python_for, restate_server, run
from steps import flood, steps_of


def dbos(given) -> dict[str, object]:
    found = run("dbos_steps.py", python_for("dbos"), "--in-flight", *given.in_flight, "--total", given.peer_total)
    best = better_of(found, given.in_flight)
    sync = f"journal_mode={found['journal_mode']}, synchronous={found['synchronous']}"
    return {"version": found["version"], "durability": sync, "ways": found, "steps_per_s": best}


def better_of(found, in_flight: Sequence[int]) -> dict[int, float]:
    """Rates of DBOS: in threads or as coroutines, as is better."""
    return {number: max(found[way][str(number)] for way in ("threads", "coroutines")) for number in in_flight}


def dbos_on_postgres(given) -> dict[str, object]:
    """DBOS and ours on one server, ours before and after each run of DBOS; rates in pairs, as `beside` has them."""
    from actorproc.errors import EngineError
    from actorproc.testing.database_server import DatabaseServer

    python = python_for("dbos", "psycopg")
    theirs: list[dict[int, float]] = []
    ours: list[dict[int, float]] = []
    try:
        server = DatabaseServer(fsync=True).__enter__()
    except EngineError as error:
        raise Missing(str(error)) from error
    with contextlib.closing(server):
        for number in range(given.repeat):
            ours.append({n: flood_on(server.url(), n, given) for n in given.in_flight})
            url = server.url().replace("/postgres", f"/dbos{number}").replace("postgresql:", "postgresql+psycopg:")
            shape = ("--in-flight", *given.in_flight, "--total", given.peer_total, "--url", url)
            found = run("dbos_steps.py", python, *shape)
            theirs.append(better_of(found, given.in_flight))
        ours.append({n: flood_on(server.url(), n, given) for n in given.in_flight})
    sync = f"PostgreSQL, fsync={found['fsync']}, synchronous_commit={found['synchronous_commit']}"
    pairs = beside(middle(theirs), middle(ours))
    return {
        "version": found["version"],
        "durability": sync,
        "ways": found,
        "steps_per_s": pairs,
        "rounds": [ours, theirs],
    }


def flood_on(url: str, number: int, given) -> float:
    """Our rate in a new store of this database."""
    with store_in(url) as path:
        return flood(number, steps_of(number, given.total), given.workers, path)


def restate(given) -> dict[str, object]:
    binary, python = restate_server(), python_for("restate", "hypercorn")
    shape = ("--in-flight", *given.in_flight, "--total", given.peer_total, "--workers", given.workers)
    found = run("restate_server.py", python, "--binary", binary, *shape)
    rates = {number: found["steps_per_s"][str(number)] for number in given.in_flight}
    sync = f"RocksDB logs that are not synced: {found['unsynced_logs']}"
    return {"version": found["version"], "durability": sync, "steps_per_s": rates}


def huey(given) -> dict[str, object]:
    shape = ("--tasks", given.tasks, "--workers", given.workers)
    found = run("huey_sqlite.py", python_for("huey"), *shape)
    ours = statistics.median(flood(given.own_tasks, 1, given.workers) for _ in range(given.repeat))
    sync = f"journal_mode={found['journal_mode']}, synchronous={found['synchronous']}"
    whole, part = max(found["queue_and_run_per_s"].values()), max(found["run_per_s"].values())
    return {
        "version": found["version"],
        "durability": sync,
        "ways": found,
        "tasks_per_s": {"ours": ours, "peer": whole, "ratio": ours / whole},
        "ratio_to_running_alone": ours / part,
    }


def beside(peer: dict[int, float], ours: dict[int, float]) -> dict[int, dict[str, float]]:
    return {n: {"ours": ours[n], "peer": peer[n], "ratio": ours[n] / peer[n]} for n in peer}


PEERS: tuple[tuple[str, Callable[..., dict[str, object]]], ...] = (
    ("DBOS on SQLite", dbos),
    ("DBOS on PostgreSQL", dbos_on_postgres),
    ("Restate", restate),
    ("huey on SQLite", huey),
)


def main() -> None:
    given = options(
        __doc__,
        in_flight=((1, 16, 64, 256), (1, 64)),
        workers=(2, 2),
        total=(25_000, 4_000),
        peer_total=(2_000, 200),
        tasks=(1_500, 200),
        own_tasks=(10_000, 1_000),
        repeat=(3, 1),
        only=("", ""),
    )
    raw = raw_commits_per_second(0.5)
    found: dict[str, dict[str, object]] = {}
    rounds: list[dict[int, float]] = []
    bares: list[dict[int, float]] = []
    for name, measure in (peer for peer in PEERS if given.only in peer[0]):
        if len(rounds) < given.repeat:
            shape = {n: steps_of(n, given.total) for n in given.in_flight}
            rounds.append({n: flood(n, steps, given.workers) for n, steps in shape.items()})
            bares.append({n: bare.flood(n, steps, given.workers) for n, steps in shape.items()})
        try:
            found[name] = measure(given)
        except Missing as missing:
            found[name] = {"skipped": str(missing)}
    ours, limits = middle(rounds), middle(bares)
    tasks = bare.flood(given.own_tasks, 1, given.workers)
    lines = [
        f"raw LMDB, one synced commit per step      {raw:12,.0f} steps/s",
        *(f"a bare pipeline, {number:3} in flight           {rate:12,.0f} steps/s" for number, rate in limits.items()),
        f"a bare pipeline, procedures of one step   {tasks:12,.0f} /s",
    ]
    for name, one in found.items():
        if "skipped" in one:
            lines.append(f"{name}: skipped, {one['skipped']}")
            continue
        if "steps_per_s" in one and "rounds" not in one:  # these are beside their own rounds
            one["steps_per_s"] = beside(one["steps_per_s"], ours)
        lines.append(f"{name}, {one['version']} ({one['durability']})")
        for number, rates in one.get("steps_per_s", {"": one.get("tasks_per_s")}).items():
            what = f"  {number} in flight" if number else "  tasks of one step"
            lines.append(
                f"{what:28}{rates['peer']:10,.0f} /s, actorproc {rates['ours']:10,.0f} /s = {rates['ratio']:.1f} x"
            )
    shown = {
        "raw_commits_per_s": raw,
        "peers": found,
        "ours": rounds,
        "bare": {"steps_per_s": limits, "tasks_per_s": tasks},
        "workers": given.workers,
    }
    report("peers", shown, lines)


if __name__ == "__main__":
    main()
