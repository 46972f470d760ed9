"""How many durable steps per second, by procedures in flight, and what does one step of a lone procedure cost?

    python bench/steps.py [--in-flight 1,4,16,64,256,1024] [--steps 0] [--workers 2] [--repeat 3]

Compared in the same run with raw LMDB (one synced commit per step, and one for as many steps as are in flight) and a
bare pipe round trip. ``--steps 0``: as many per procedure as make about 25,000 in all. Submitting is counted.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from dataclasses import dataclass

from common import fresh_store, middle, options, pipe_round_trip_seconds, raw_commits_per_second, report
from rest import wait_for_spares

from actorproc import Procedure, ProcedureManager, Status


@dataclass
class Count(Procedure):
    """A procedure of `steps` tiny steps."""

    steps: int
    done: int = 0

    def execute(self, ctx):
        self.done += 1
        return Status.done(self.done) if self.done >= self.steps else Status.executing()


def flood(procedures: int, steps: int, workers: int, path: str | None = None) -> float:
    """Durable steps per second with all procedures in flight at once, from the first submit to the last result.

    Args:
        procedures: Number of them.
        steps: Of each.
        workers: Processes.
        path: Directory or URL of the store. Default: a new one.
    """
    store = fresh_store() if path is None else contextlib.nullcontext(path)
    with store as place, ProcedureManager(place, procedures=[Count], workers=workers) as manager:
        for handle in manager.submit_many([Count(3) for _ in range(64)]):
            handle.result(timeout=120)
        wait_for_spares()
        start = time.perf_counter()
        handles = manager.submit_many([Count(steps) for _ in range(procedures)])
        for handle in handles:
            assert handle.result(timeout=120) == steps
        return procedures * steps / (time.perf_counter() - start)


def alone(steps: int) -> float:
    """Seconds per durable step of one procedure on one worker, nothing else going on."""
    with fresh_store() as path, ProcedureManager(path, procedures=[Count], workers=1) as manager:
        manager.run(Count(50))
        wait_for_spares()
        start = time.perf_counter()
        manager.run(Count(steps))
        return (time.perf_counter() - start) / steps


def steps_of(in_flight: int, total: int) -> int:
    """Steps of each procedure: enough to be in the steady state, and not too long a run."""
    return min(1000, max(10, total // max(in_flight, 16)))


def main() -> None:
    given = options(
        __doc__,
        in_flight=((1, 4, 16, 64, 256, 1024), (1, 16, 64)),
        steps=(0, 0),
        workers=(2, 2),
        repeat=(3, 1),
    )
    total = 2_000 if given.quick else 25_000
    shape = {number: given.steps or steps_of(number, total) for number in given.in_flight}
    rounds = []
    for _ in range(given.repeat):
        # Side by side, so that a slow moment of the machine slows both sides of a ratio.
        one = {
            "raw": raw_commits_per_second(0.5),
            "trip": pipe_round_trip_seconds(1000),
            "lone": alone(total // 10 if given.quick else 1000),
        }
        one["floor"] = 1 / one["raw"] + one["trip"]
        for number, steps in shape.items():
            one[f"{number}"] = flood(number, steps, given.workers)
            one[f"raw {number}"] = number * raw_commits_per_second(0.25, rows=number)
        rounds.append(one)
    usual = middle(rounds)
    to_floor = statistics.median(one["lone"] / one["floor"] for one in rounds)
    to_raw = {number: statistics.median(one[f"{number}"] / one["raw"] for one in rounds) for number in shape}
    lines = [
        f"raw LMDB, one synced commit per step      {usual['raw']:12,.0f} steps/s",
        f"one synced commit + one pipe round trip   {usual['floor'] * 1e6:12,.0f} us",
        f"actorproc, one procedure alone            {usual['lone'] * 1e6:12,.0f} us/step = {to_floor:.2f} x",
    ]
    for number, steps in shape.items():
        what = f"{number} x {steps} steps, {given.workers} workers"
        beside = f"raw LMDB, {number} steps a commit: {usual[f'raw {number}']:,.0f}"
        lines.append(f"{what:42}{usual[str(number)]:12,.0f} steps/s = {to_raw[number]:.1f} x raw ({beside})")
    report(
        "steps",
        {
            "raw_commits_per_s": usual["raw"],
            "pipe_round_trip_s": usual["trip"],
            "alone_s_per_step": usual["lone"],
            "alone_ratio_to_commit_plus_trip": to_floor,
            "steps_per_s": {number: usual[str(number)] for number in shape},
            "raw_steps_per_s": {number: usual[f"raw {number}"] for number in shape},
            "ratio_to_raw_commit_per_step": to_raw,
            "steps": shape,
            "workers": given.workers,
            "rounds": rounds,
        },
        lines,
    )


if __name__ == "__main__":
    main()
