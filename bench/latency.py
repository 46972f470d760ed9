"""How long from submit to done, for procedures of 1, 3 and 9 steps?

    python bench/latency.py [--steps 1,3,9] [--runs 300] [--callers 16] [--workers 2]

First one caller with nothing else going on, then several at once. Beside it the floor of a lone procedure: a synced
commit for the submit, then a trip to another process and a synced commit for each step.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from common import fresh_store, options, pipe_round_trip_seconds, raw_commits_per_second, report, spread
from steps import Count

from actorproc import ProcedureManager


def submit_to_done(manager: ProcedureManager, steps: int) -> float:
    start = time.perf_counter()
    assert manager.submit(Count(steps)).result(timeout=120) == steps
    return time.perf_counter() - start


def main() -> None:
    given = options(
        __doc__, steps=((1, 3, 9), (1, 3, 9)), runs=(300, 30), callers=(16, 16), workers=(2, 2), repeat=(3, 1)
    )
    commits, trips = [], []
    alone: dict[int, list[float]] = {steps: [] for steps in given.steps}
    together: dict[int, list[float]] = {steps: [] for steps in given.steps}
    for _ in range(given.repeat):
        commits.append(1 / raw_commits_per_second(0.5))
        trips.append(pipe_round_trip_seconds(1000))
        with (
            fresh_store() as path,
            ProcedureManager(path, procedures=[Count], workers=given.workers) as manager,
            ThreadPoolExecutor(given.callers) as callers,
        ):
            for handle in manager.submit_many([Count(3) for _ in range(64)]):  # both workers load the class
                handle.result(timeout=120)
            for steps in given.steps:
                alone[steps] += [submit_to_done(manager, steps) for _ in range(given.runs)]
                together[steps] += callers.map(lambda n: submit_to_done(manager, n), [steps] * given.runs * 2)
    commit, trip = sorted(commits)[len(commits) // 2], sorted(trips)[len(trips) // 2]
    found, lines = {}, []
    for steps in given.steps:
        floor = commit + steps * (commit + trip)
        lone, shared = spread(alone[steps]), spread(together[steps])
        ratio = lone["p50"] / floor
        found[steps] = {"alone_s": lone, "together_s": shared, "floor_s": floor, "ratio_to_floor": ratio}
        for who, times in (("alone", lone), (f"{given.callers} callers", shared)):
            what = f"{steps} step{'s' * (steps > 1)}, {who}"
            beside = f"   floor {floor * 1e3:.2f} ms = {ratio:.1f} x" if times is lone else ""
            lines.append(f"{what:24}p50 {times['p50'] * 1e3:8.2f} ms   p99 {times['p99'] * 1e3:8.2f} ms{beside}")
    report("latency", {"submit_to_done": found, "commit_s": commit, "pipe_round_trip_s": trip}, lines)


if __name__ == "__main__":
    main()
