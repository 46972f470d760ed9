"""How many durable steps per second, and what does one step of a lone procedure cost?

    python bench/steps.py [--procedures 256] [--steps 10] [--workers 2] [--repeat 5]

Compared in the same run with a raw LMDB loop (one synced commit per step) and a bare pipe round trip.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import dataclass

from common import fresh_directory, pipe_round_trip_seconds, raw_commits_per_second, report

from actorproc import Procedure, ProcedureManager, Status


@dataclass
class Count(Procedure):
    """A procedure of `steps` tiny steps."""

    steps: int
    done: int = 0

    def execute(self, ctx):
        self.done += 1
        return Status.done(self.done) if self.done >= self.steps else Status.executing()


def flood(procedures: int, steps: int, workers: int) -> float:
    """Durable steps per second with all procedures in flight at once; submitting is not counted."""
    with fresh_directory() as path, ProcedureManager(path, procedures=[Count], workers=workers) as manager:
        for handle in manager.submit_many([Count(3) for _ in range(procedures)]):
            handle.result(timeout=120)
        start = time.perf_counter()
        handles = manager.submit_many([Count(steps) for _ in range(procedures)])
        for handle in handles:
            assert handle.result(timeout=120) == steps
        return procedures * steps / (time.perf_counter() - start)


def alone(steps: int) -> float:
    """Seconds per durable step of one procedure on one worker, nothing else going on."""
    with fresh_directory() as path, ProcedureManager(path, procedures=[Count], workers=1) as manager:
        manager.run(Count(50))
        start = time.perf_counter()
        manager.run(Count(steps))
        return (time.perf_counter() - start) / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--procedures", type=int, default=256)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeat", type=int, default=5)
    options = parser.parse_args()

    rounds = []
    for _ in range(options.repeat):
        # Side by side, so that a slow moment of the machine slows both sides of a ratio.
        raw, trip = raw_commits_per_second(), pipe_round_trip_seconds()
        lone = alone(2000)
        many = flood(options.procedures, options.steps, options.workers)
        rounds.append({"raw": raw, "trip": trip, "lone": lone, "many": many, "floor": 1 / raw + trip})
    middle = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
    to_raw = statistics.median(one["many"] / one["raw"] for one in rounds)
    to_floor = statistics.median(one["lone"] / one["floor"] for one in rounds)
    shape = f"actorproc, {options.procedures} x {options.steps} steps, {options.workers} workers"
    report(
        "steps",
        {
            "raw_commits_per_s": [one["raw"] for one in rounds],
            "pipe_round_trip_s": [one["trip"] for one in rounds],
            "steps_per_s": [one["many"] for one in rounds],
            "ratio_to_raw": to_raw,
            "alone_s_per_step": [one["lone"] for one in rounds],
            "alone_ratio_to_commit_plus_trip": to_floor,
            "procedures": options.procedures,
            "steps": options.steps,
            "workers": options.workers,
        },
        [
            f"raw LMDB, one synced commit per step      {middle['raw']:12,.0f} steps/s",
            f"{shape:42}{middle['many']:12,.0f} steps/s = {to_raw:.1f} x raw",
            f"one synced commit + one pipe round trip   {middle['floor'] * 1e6:12,.0f} us",
            f"actorproc, one procedure alone            {middle['lone'] * 1e6:12,.0f} us/step = {to_floor:.2f} x",
        ],
    )


if __name__ == "__main__":
    main()
