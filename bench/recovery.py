"""How long after a worker is killed does its step start again?

    python bench/recovery.py [--kills 100]

The step writes the monotonic time at its start to a file; the bench kills its worker with SIGKILL and takes the time
from the kill to the start of the replay. Before each kill it waits until the next spare has prepared itself: what is
measured is a death, not a storm of them. The step is in a module that loads nothing but the engine: to take the dead
process apart costs the kernel time for each page that it had. So it is measured with 100 and 400 MB more in the worker
as well. Compared with the start of a bare interpreter.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from common import fresh_store, options, report, spread
from jobs import Hang
from rest import wait_for_spares

from actorproc import ProcedureManager

SIZES = (0, 100, 400)
"""Megabytes that the step takes before it is killed."""


def starts(journal: Path) -> list[tuple[int, int]]:
    text = journal.read_text() if journal.exists() else ""
    return [(int(pid), int(at)) for pid, at in (line.split() for line in text.splitlines())]


def wait_for_starts(journal: Path, count: int) -> list[tuple[int, int]]:
    deadline = time.monotonic() + 30
    while len(found := starts(journal)) < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"the step did not start for the {count}th time within 30 s")
        time.sleep(0.002)  # the times are taken by the step: to look more often would only take the processor from it
    return found


def _line(what: str, figures: dict[str, float]) -> str:
    return f"{what:54} p50 {figures['p50'] * 1e3:6.1f} ms   p99 {figures['p99'] * 1e3:6.1f} ms"


def main() -> None:
    given = options(__doc__, kills=(100, 10))

    bare = []
    for _ in range(10):
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", "pass"], check=True)
        bare.append(time.perf_counter() - start)

    by_size = {
        megabytes: delays(megabytes, given.kills if not megabytes else max(5, given.kills // 3)) for megabytes in SIZES
    }
    figures = {megabytes: spread(found) for megabytes, found in by_size.items()}
    report(
        "recovery",
        {
            "kill_to_restart_s": figures[0],
            "kill_to_restart_by_megabytes_s": {str(megabytes): found for megabytes, found in figures.items()},
            "bare_interpreter_s": spread(bare),
            "kills": given.kills,
        },
        [
            *(
                _line(
                    f"worker with {megabytes} MB more killed -> its step again ({len(by_size[megabytes])} kills)",
                    found,
                )
                for megabytes, found in figures.items()
            ),
            _line("starting a bare interpreter", spread(bare)),
        ],
    )


def delays(megabytes: int, kills: int) -> list[float]:
    """Seconds from each kill to the next start."""
    found = []
    with fresh_store() as path, ProcedureManager(path, procedures=[Hang], workers=1) as manager:
        journal = Path(path) / "journal"
        handle = manager.submit(Hang(str(journal), megabytes))
        for number in range(kills):
            pid, _ = wait_for_starts(journal, number + 1)[-1]
            while not Path(f"{journal}.{pid}").exists():
                time.sleep(0.002)
            wait_for_spares(pid)
            killed_at = time.monotonic_ns()
            os.kill(pid, signal.SIGKILL)
            _, started_at = wait_for_starts(journal, number + 2)[-1]
            found.append((started_at - killed_at) / 1e9)
        Path(str(journal) + ".stop").touch()
        handle.result(timeout=30)
    return found


if __name__ == "__main__":
    main()
