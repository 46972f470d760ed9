"""What does it cost: bytes on disk, memory of host and worker, time to import, CPU per step?

    python bench/cost.py [--procedures 256] [--steps 100] [--runs 15]

Disk: what the store occupies per step, after the finished procedures are removed, and after compaction. Memory: private
bytes (what a process has to itself) and the proportional share (PSS), of a bare interpreter, of a host with an idle
manager, of the same after 10,000 procedures, and of its workers. CPU: seconds of host and workers per step.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
from common import fresh_directory, fresh_store, options, report, store_bytes
from steps import Count

from actorproc import Config, ProcedureManager

RAW_BYTES = 109 + 37
"""The row that a step leaves in the store, with its key."""


def disk(procedures: int, steps: int) -> dict[str, float]:
    total = procedures * steps
    with fresh_directory() as path:
        with ProcedureManager(path, procedures=[Count], workers=2) as manager:
            empty = store_bytes(path)
            for handle in manager.submit_many([Count(steps) for _ in range(procedures)]):
                handle.result(timeout=300)
            full = store_bytes(path)
        with ProcedureManager(path, workers=1, config=Config(retain_for=0.0, sweep_interval=0.1)) as manager:
            deadline = time.monotonic() + 300
            while manager.list(limit=1):
                if time.monotonic() > deadline:
                    raise SystemExit("the finished procedures were not removed within 300 s")
                time.sleep(0.1)
            removed = store_bytes(path)
            manager.compact()
            compacted = store_bytes(path)
    return {
        "empty": empty,
        "full": full,
        "bytes_per_step": (full - empty) / total,
        "ratio_to_raw": (full - empty) / total / RAW_BYTES,
        "after_retention": removed,
        "after_compaction": compacted,
    }


def memory_of(pid: int | str) -> dict[str, float]:
    """Private bytes and proportional share of a process, in MiB."""
    if Path(f"/proc/{pid}/smaps_rollup").exists():
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
        size = {name: int(text.split()[0]) / 1024 for name, text in lines.items()}
        return {"private": size["Private_Clean"] + size["Private_Dirty"], "pss": size["Pss"]}
    full = psutil.Process(os.getpid() if pid == "self" else int(pid)).memory_full_info()
    return {"private": full.uss / 2**20, "pss": getattr(full, "pss", full.uss) / 2**20}


def memory() -> dict[str, dict[str, float]]:
    """Measured in an interpreter of its own: this one has loaded more than a host has to."""
    found = subprocess.run([sys.executable, __file__, "--inside"], capture_output=True, text=True, check=True)
    bare = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.readline()"]
    with subprocess.Popen(bare, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        interpreter = memory_of(process.pid)
        process.communicate(b"\n")
    return {"bare interpreter": interpreter, **json.loads(found.stdout.splitlines()[-1])}


def inside() -> None:
    with fresh_store() as path, ProcedureManager(path, procedures=[Count], workers=2) as manager:
        manager.run(Count(10))
        found = {"host, idle manager": memory_of("self")}
        for _ in range(10):
            for handle in manager.submit_many([Count(1) for _ in range(1000)]):
                handle.result(timeout=120)
        found["host, after 10,000 procedures"] = memory_of("self")
        workers = [worker.pid for worker in manager.workers() if worker.pid]
        found["worker"] = max((memory_of(pid) for pid in workers), key=lambda one: one["private"])
    print(json.dumps(found))


def imports(runs: int) -> dict[str, dict[str, float]]:
    """Seconds from the start of an interpreter to its end, and of its CPU; the best of some."""
    codes = {
        "bare interpreter": "pass",
        "import actorproc": "import actorproc",
        "import of all that a manager needs": "from actorproc import ProcedureManager",
    }
    wall: dict[str, list[float]] = {name: [] for name in codes}
    cpu: dict[str, list[float]] = {name: [] for name in codes}
    with fresh_directory() as compiled:
        # Modules are compiled beforehand, as they are in an installed package.
        environment = os.environ | {"PYTHONPYCACHEPREFIX": compiled, "PYTHONDONTWRITEBYTECODE": ""}
        for run in range(runs + 1):
            for name, code in codes.items():
                before, start = os.times(), time.perf_counter()
                subprocess.run([sys.executable, "-c", code], env=environment, check=True)
                seconds, after = time.perf_counter() - start, os.times()
                if run:
                    wall[name].append(seconds)
                    cpu[name].append(sum(after[2:4]) - sum(before[2:4]))
    return {name: {"wall_s": min(wall[name]), "cpu_s": sum(cpu[name]) / runs} for name in codes}


def cpu_per_step(procedures: int, steps: int) -> dict[str, float]:
    with fresh_store() as path, ProcedureManager(path, procedures=[Count], workers=2) as manager:
        for handle in manager.submit_many([Count(3) for _ in range(64)]):
            handle.result(timeout=120)
        workers = [psutil.Process(worker.pid) for worker in manager.workers() if worker.pid]
        before = _cpu(workers)
        for handle in manager.submit_many([Count(steps) for _ in range(procedures)]):
            handle.result(timeout=300)
        after = _cpu(workers)
    total = procedures * steps
    return {"host_us": (after[0] - before[0]) / total * 1e6, "workers_us": (after[1] - before[1]) / total * 1e6}


def _cpu(workers: list[psutil.Process]) -> tuple[float, float]:
    return sum(os.times()[:2]), sum(sum(worker.cpu_times()[:2]) for worker in workers)


def main() -> None:
    given = options(__doc__, procedures=(256, 64), steps=(100, 20), runs=(15, 3), inside=(False, False))
    if given.inside:
        inside()
        return
    space, cpu = disk(given.procedures, given.steps), cpu_per_step(given.procedures, given.steps)
    used, loading = memory(), imports(given.runs)
    bare = loading["bare interpreter"]["wall_s"]
    lines = [
        f"disk per step                       {space['bytes_per_step']:10,.0f} bytes (its row alone: {RAW_BYTES})",
        f"store, empty / full                 {space['empty']:10,} / {space['full']:,} bytes",
        f"after retention / compaction        {space['after_retention']:10,} / {space['after_compaction']:,} bytes",
        f"CPU per step, host / workers        {cpu['host_us']:10,.0f} / {cpu['workers_us']:,.0f} us",
    ]
    lines += [f"{name:36}{one['private']:10.1f} MiB private, {one['pss']:.1f} MiB PSS" for name, one in used.items()]
    for name, one in loading.items():
        beyond = (one["wall_s"] - bare) * 1e3
        lines.append(f"{name:36}{one['wall_s'] * 1e3:10.1f} ms ({beyond:.1f} ms beyond the interpreter)")
    report("cost", {"disk": space, "cpu_per_step": cpu, "memory_mib": used, "import_s": loading}, lines)


if __name__ == "__main__":
    main()
