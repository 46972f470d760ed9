"""What does a child cost, from 10 to 100,000 children of one procedure?

    python bench/fan_out.py [--children 10,100,1000,10000,100000] [--workers 2]

A procedure makes so many children in one step, waits for all of them and ends; each child is one tiny step. Measured
from the submit to the end of the parent. Beside it raw LMDB: the rows of two steps for each child, 128 in a commit.
"""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass

from common import fresh_store, options, raw_commits_per_second, report
from rest import wait_for_spares

from actorproc import Config, Procedure, ProcedureManager, Status


@dataclass
class Leaf(Procedure):
    """One tiny step."""

    number: int

    def execute(self, ctx):
        return Status.done(self.number)


@dataclass
class Fan(Procedure):
    """Children, and then the number of those that ended well."""

    children: int
    spawned: bool = False

    def execute(self, ctx):
        if not self.spawned:
            self.spawned = True
            return Status.suspended([Leaf(number) for number in range(self.children)])
        return Status.done(self.children)


def fan(manager: ProcedureManager, children: int) -> float:
    start = time.perf_counter()
    assert manager.submit(Fan(children)).result(timeout=600) == children
    return time.perf_counter() - start


def main() -> None:
    given = options(
        __doc__, children=((10, 100, 1_000, 10_000, 100_000), (10, 100, 1_000)), workers=(2, 2), total=(20_000, 1_000)
    )
    raw = 128 * raw_commits_per_second(0.5, rows=128) / 2
    most = max(50, *given.children)
    room = Config(max_children=2 * most, max_tree=2 * most + 2)
    found, lines = {}, [f"raw LMDB, 128 children a commit      {raw:12,.0f} children/s"]
    for children in given.children:
        runs = max(1, min(20, given.total // children))
        with (
            fresh_store() as path,
            ProcedureManager(path, procedures=[Fan, Leaf], workers=given.workers, config=room) as manager,
        ):
            fan(manager, 50)
            wait_for_spares()
            seconds = statistics.median(fan(manager, children) for _ in range(runs))
        found[children] = {"children_per_s": children / seconds, "us_per_child": seconds / children * 1e6, "runs": runs}
        lines.append(
            f"{children:8,} children ({runs:2} runs)         {children / seconds:12,.0f} children/s"
            f" = {seconds / children * 1e6:8,.0f} us each"
        )
    report("fan_out", {"by_children": found, "raw_children_per_s": raw, "workers": given.workers}, lines)


if __name__ == "__main__":
    main()
