"""What a start costs, in a process of its own: run by `recovery_scale.py`, `host_kill.py` and `scale.py`.

    python bench/starting.py PATH [--wait-for-a-step] [--idle SECONDS]

Prints one line of JSON about the manager it started on the store at PATH.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from jobs import MARK, Job, Listener, Sleeper

from actorproc import ProcedureManager


def private_bytes() -> int:
    """Memory of this process that nobody else has, the map of the store not counted.

    The sum of Private_Clean and Private_Dirty over all mappings of /proc/self/smaps but those of ``data.mdb``: what
    is mapped from a store is the page cache of the system, which takes it back when it needs it.
    """
    found, is_store = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if re.match(r"[0-9a-f]+-[0-9a-f]+ ", line):
            is_store = line.endswith("data.mdb")
        elif not is_store and line.startswith(("Private_Clean:", "Private_Dirty:")):
            found += int(line.split()[1]) * 1024
    return found


def idle_cost(seconds: float) -> dict[str, float]:
    """CPU and wake-ups of the host and its workers while nothing is due."""
    time.sleep(1.0)
    me = psutil.Process()
    everybody = (me, *me.children(recursive=True))
    before = [_used(one) for one in everybody]
    time.sleep(seconds)
    after = [_used(one) for one in everybody]
    cpu, woken = (sum(row[place] for row in after) - sum(row[place] for row in before) for place in (0, 1))
    return {"seconds": seconds, "cpu_s": cpu, "wake_ups": woken}


def _used(one: psutil.Process) -> tuple[float, int]:
    """CPU seconds, and voluntary context switches of all its threads."""
    tasks = Path(f"/proc/{one.pid}/task").glob("*/status")
    woken = sum(int(found[1]) for task in tasks if (found := re.search(r"\nvoluntary\w+:\s+(\d+)", task.read_text())))
    return sum(one.cpu_times()[:2]), woken


def started(path: str, *arguments: str) -> dict[str, Any]:
    """Start a manager on this store in a fresh process; what it says, and the seconds from now to the first step."""
    with tempfile.TemporaryDirectory(prefix="actorproc-bench-") as folder:
        mark = Path(folder) / "mark"
        zero = time.monotonic_ns()
        done = subprocess.run(
            [sys.executable, __file__, path, *arguments],
            env={**os.environ, MARK: str(mark)},
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        if mark.exists():
            found["first_step_s"] = (int(mark.read_text()) - zero) / 1e9
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--wait-for-a-step", action="store_true")
    parser.add_argument("--idle", type=float, default=0.0)
    options = parser.parse_args()
    before = private_bytes()
    start, used = time.perf_counter(), time.process_time()
    manager = ProcedureManager(options.path, procedures=[Job, Sleeper, Listener], workers=2)
    manager.start()
    found: dict[str, Any] = {"start_s": time.perf_counter() - start, "start_cpu_s": time.process_time() - used}
    deadline = time.monotonic() + 600
    while options.wait_for_a_step and not Path(os.environ[MARK]).exists() and time.monotonic() < deadline:
        time.sleep(0.001)
    found["host_cpu_s"] = time.process_time()
    found["private_bytes"] = private_bytes() - before
    found["peak_rss_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    if options.idle:
        found["idle"] = idle_cost(options.idle)
    manager.stop(drain=False, timeout=60)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
