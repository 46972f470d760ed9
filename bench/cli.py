"""How soon does `actorproc list` show its first row, and how long does it take for 10,000 procedures?

Seconds from the start of the process to the first row and to the end, best and median of some
runs, beside what the bare interpreter and the libraries alone take. Modules are compiled beforehand, as they are
in an installed package.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from common import options, report

from actorproc import Procedure, ProcedureManager, Status


class Waits(Procedure):
    """One of many rows."""

    def __init__(self, number: int = 0) -> None:
        self.number = number

    def execute(self, ctx: object) -> Status:
        """Is never reached: the manager is paused."""
        return Status.done()


def main() -> None:
    """Fill a store, and list it."""
    given = options(__doc__, procedures=(10_000, 1_000), runs=(7, 2))
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "state"
        with ProcedureManager(path, workers=1) as manager:
            manager.pause(reason="only rows are wanted")
            for start in range(0, given.procedures, 1000):
                manager.submit_many([Waits(n) for n in range(start, min(start + 1000, given.procedures))])
        found = {
            "procedures": given.procedures,
            "bare_interpreter": _best(given.runs, [sys.executable, "-c", "print()"], place),
            "libraries": _best(given.runs, [sys.executable, "-c", "import argparse, lmdb, msgspec; print()"], place),
        }
        for form in ("table", "jsonl", "name"):
            command = [sys.executable, "-m", "actorproc", "--path", str(path), "-o", form, "list"]
            found[form] = _best(given.runs, command, place)
    lines = [
        f"{name:20}first row {one['first_row'] * 1e3:7.1f} ms, all {one['total'] * 1e3:7.1f} ms"
        for name, one in found.items()
        if name != "procedures"
    ]
    report("cli", found, lines)


def _best(runs: int, command: list[str], place: str) -> dict[str, float]:
    environment = os.environ | {"PYTHONPYCACHEPREFIX": f"{place}/compiled", "PYTHONDONTWRITEBYTECODE": ""}
    subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True)
    firsts, totals = [], []
    for _ in range(runs):
        begun = time.perf_counter()
        with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()  # of a table: the headings, which come in one write with the first rows
            firsts.append(time.perf_counter() - begun)
            process.stdout.read()
        totals.append(time.perf_counter() - begun)
    return {
        "first_row": round(min(firsts), 4),
        "first_row_median": round(statistics.median(firsts), 4),
        "total": round(min(totals), 4),
        "total_median": round(statistics.median(totals), 4),
    }


if __name__ == "__main__":
    main()
