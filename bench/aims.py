"""What the engine is meant to reach, each beside the figure of a run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Results = dict[str, Any]
Reading = Callable[[Results], float | None]


@dataclass(frozen=True)
class Aim:
    """A figure of the results and what it should be: at least so much, or at most."""

    what: str
    target: float
    at_least: bool
    unit: str
    read: Reading
    shape: str = ""
    """For which of the rates of the pipelines of `bare.py` and `recorded.py` it is, if for any."""
    beside: Reading = lambda _: 1.0
    """What such a rate is divided by."""

    def reached(self, results: Results) -> float | None:
        """The figure; None when it was not measured in this run."""
        return _found(self.read, results)

    def bare(self, results: Results) -> float | None:
        """What it would be if the engine were the bare pipeline; None where that does nothing of the kind."""
        return self._as(_bare_rate, results)

    def recorded(self, results: Results) -> float | None:
        """What it would be if the engine did nothing but describe procedures and store its records of them."""
        return self._as(_recorded_rate, results)

    def _as(self, rate: Callable[[Results, str], float], results: Results) -> float | None:
        return _found(lambda r: rate(r, self.shape) / self.beside(r), results) if self.shape else None

    def ratio(self, reached: float) -> float:
        """1 and more: the aim is reached."""
        if self.at_least:
            return reached / self.target
        return self.target / reached if reached > 0 else math.inf


def _found(read: Reading, results: Results) -> float | None:
    try:
        found = read(results)
        return None if found is None else float(found)
    except (KeyError, TypeError, ZeroDivisionError):
        return None


def _least(what: str, target: float, unit: str, read: Reading, shape: str = "", beside: Reading | None = None) -> Aim:
    return Aim(what, target, True, unit, read, shape, beside or (lambda _: 1.0))


def _most(what: str, target: float, unit: str, read: Reading) -> Aim:
    return Aim(what, target, False, unit, read)


def _restart_with(megabytes: int) -> Reading:
    return lambda r: r["recovery"]["kill_to_restart_by_megabytes_s"][str(megabytes)]["p50"] * 1e3


def _peer(name: str, in_flight: int) -> Reading:
    return lambda r: r["peers"]["peers"][name]["steps_per_s"][str(in_flight)]["ratio"]


def _rate_of_peer(name: str, in_flight: int) -> Reading:
    return lambda r: r["peers"]["peers"][name]["steps_per_s"][str(in_flight)]["peer"]


def _rate_of_huey(r: Results) -> float:
    return r["peers"]["peers"]["huey on SQLite"]["tasks_per_s"]["peer"]


def _rate_of_best_pool(r: Results) -> float:
    return max(other["queued"] for other in r["executor"]["others"].values())


def _bare_rate(r: Results, shape: str) -> float:
    if shape == "calls":
        return r["executor"]["bare"]["queued"]
    return r["peers"]["bare"]["tasks_per_s"] if shape == "tasks" else r["peers"]["bare"]["steps_per_s"][shape]


def _recorded_rate(r: Results, shape: str) -> float:
    return r["recorded"]["per_s"]["recorded"][shape]


def _growth(r: Results) -> float:
    """A child among the most to where it is cheapest; that a few cost more is no growth: they share no commits."""
    costs = {int(number): one["us_per_child"] for number, one in r["fan_out"]["by_children"].items()}
    return costs[max(costs)] / min(costs.values())


def _bytes_of_waiting(r: Results) -> float:
    """Of the dearest shape, a start on a full store less a start on an empty one."""
    dearest = max(one["started"]["private_bytes"] for one in r["scale"]["shapes"].values())
    return (dearest - r["scale"]["empty"]["private_bytes"]) / r["scale"]["procedures"]


def _idle_share(r: Results) -> float:
    """Of one processor, in per cent."""
    idle = [one["started"]["idle"] for one in r["scale"]["shapes"].values()]
    return max(one["cpu_s"] / one["seconds"] for one in idle) * 100


def _grants(r: Results) -> float:
    return max(one["largest_to_smallest"] for one in r["locks"]["shapes"].values())


def _recovery(r: Results) -> float | None:
    """Not to be told from a smaller store: a start takes a part that does not grow with it."""
    found = r["recovery_scale"]
    return found["after_kill"]["first_step_s"] if found["procedures"] >= 1_000_000 else None


def _store(name: str) -> Reading:
    return lambda r: r["stores"]["ratios"][name]


def _beyond_the_lease(r: Results) -> float:
    return max(0.0, r["leaders"]["frozen_s"]["p50"] - r["leaders"]["lease_s"])


def _look_under_snapshot(r: Results) -> float:
    """To a tenth of a millisecond at least: what is looked up in memory is no slower."""
    before, held = r["long_snapshot"]["looks_ms"]["finished"]
    return held / max(before, 0.1)


def _commit_under_snapshot(r: Results) -> float:
    first, last = r["long_snapshot"]["step_us"]
    return last / first


AIMS = (
    _least(
        "steps/s, 256 procedures in flight, 2 workers",
        50_000,
        "/s",
        lambda r: r["steps"]["steps_per_s"]["256"],
        "256",
    ),
    _least("steps/s, 64 in flight", 30_000, "/s", lambda r: r["steps"]["steps_per_s"]["64"], "64"),
    _most(
        "step of a lone procedure to a synced commit + a pipe round trip",
        1.6,
        "x",
        lambda r: r["steps"]["alone_ratio_to_commit_plus_trip"],
    ),
    *(
        _least(what, target, "x", _peer(name, in_flight), str(in_flight), _rate_of_peer(name, in_flight))
        for what, target, name, in_flight in (
            ("to DBOS on SQLite, 256 in flight in both", 100, "DBOS on SQLite", 256),
            ("to DBOS on SQLite, 64 in flight in both", 100, "DBOS on SQLite", 64),
            ("to Restate's server and Python SDK, 64 in flight", 25, "Restate", 64),
        )
    ),
    _least(
        "to huey on SQLite, procedures of one step",
        20,
        "x",
        lambda r: r["peers"]["peers"]["huey on SQLite"]["tasks_per_s"]["ratio"],
        "tasks",
        _rate_of_huey,
    ),
    _least("submit_many of 100,000", 60_000, "/s", lambda r: r["submit"]["per_s"]["submit_many"]),
    _least(
        "fan-out and fan-in of 10,000 children",
        20_000,
        "children/s",
        lambda r: r["fan_out"]["by_children"]["10000"]["children_per_s"],
    ),
    _most("cost of a child among 100,000 to the cheapest, from 10 on", 1.5, "x", _growth),
    _least(
        "executor queued, to the best of three pools",
        1.5,
        "x",
        lambda r: r["executor"]["ratio_to_best"]["queued"],
        "calls",
        _rate_of_best_pool,
    ),
    _most("10 MB argument to pipe + synced write", 2, "x", lambda r: r["executor"]["large"]["ratio"]),
    _most(
        "worker killed, its step starts again, p50", 5, "ms", lambda r: r["recovery"]["kill_to_restart_s"]["p50"] * 1e3
    ),
    _most("the same with 100 MB more in the worker, p50", 20, "ms", _restart_with(100)),
    _most("the same with 400 MB more in the worker, p50", 60, "ms", _restart_with(400)),
    _most(
        "worker killed, its step starts again, p99", 20, "ms", lambda r: r["recovery"]["kill_to_restart_s"]["p99"] * 1e3
    ),
    _most("private memory of the host for each that sleeps or waits", 400, "bytes", _bytes_of_waiting),
    _most("idle processor with all of them waiting", 1, "%", _idle_share),
    _most("recovery of 1,000,000 half finished, first step (with --full)", 10, "s", _recovery),
    _most("host killed with 100,000 pending, first step", 2, "s", lambda r: r["host_kill"]["first_step_s"]),
    _most("grant of a lock, 100,000 waiters to 1,000", 1.5, "x", _grants),
    _most(
        "import actorproc, with the interpreter",
        60,
        "ms",
        lambda r: r["cost"]["import_s"]["import actorproc"]["wall_s"] * 1e3,
    ),
    _least(
        "share of the machine, as many niced procedures as cores",
        0.95,
        "",
        lambda r: r["isolation"]["share_of_machine"],
    ),
    *(
        _least(f"PostgreSQL to a directory, {what}", target, "x", _store(name))
        for what, target, name in (
            ("256 in flight", 0.75, "256"),
            ("64 in flight", 0.7, "64"),
            ("pending after a restart", 0.7, "backlog"),
            ("submit_many", 0.35, "submit_many"),
        )
    ),
    _most("start on PostgreSQL with all pending, to a directory", 3, "x", _store("start")),
    _most("lone step on PostgreSQL to a raw fenced commit + a pipe round trip", 1.8, "x", _store("lone")),
    _least("to DBOS on the same PostgreSQL, 64 in flight in both", 10, "x", _peer("DBOS on PostgreSQL", 64)),
    _most("leader killed, first step of the next, p50", 0.3, "s", lambda r: r["leaders"]["killed_s"]["p50"]),
    _most("leader frozen, first step of the next, beyond the lease", 0.5, "s", _beyond_the_lease),
    _most("database accepts connections, first step, p50", 1, "s", lambda r: r["leaders"]["crashed_s"]["p50"]),
    _most("retention's look at the index under a held snapshot, to before", 2, "x", _look_under_snapshot),
    _most("commit of a step under a held snapshot, last to first", 1.5, "x", _commit_under_snapshot),
    _most("WAL of a step to its state of 16 MiB", 1.1, "x", lambda r: r["large_states"]["wal_to_state"]),
    _most("p99 delay of the host's loop to 2 x idle + 5 ms", 1, "x", lambda r: r["isolation"]["p99_to_allowed"]),
)


def table(results: Results) -> list[str]:
    """The aims as lines of a Markdown table: what, aim, reached, ratio, and what the two pipelines reach."""
    lines = [
        "| what | aim | reached | ratio | bare pipeline | with the engine's records |",
        "|---|---|---|---|---|---|",
    ]
    for aim in AIMS:
        wanted = f"{'≥' if aim.at_least else '≤'} {_shown(aim.target)} {aim.unit}".rstrip()
        reached = aim.reached(results)
        if reached is None:
            lines.append(f"| {aim.what} | {wanted} | not measured | | | |")
            continue
        ratio = aim.ratio(reached)
        mark = "" if ratio >= 1 else " (not reached)"
        shown = f"{ratio:.2f}" if ratio < math.inf else "∞"
        figures = f"{_shown(reached)} {aim.unit}".rstrip() + f" | {shown}{mark} |"
        limits = (aim.bare(results), aim.recorded(results))
        beside = " |".join("" if limit is None else f" {_shown(limit)} {aim.unit}" for limit in limits)
        lines.append(f"| {aim.what} | {wanted} | {figures}{beside} |")
    return lines


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 or value == int(value) else f"{value:.3g}"
