"""What do a million procedures cost that only wait?

    python bench/scale.py [--procedures 1000000] [--through store|api] [--idle 5] [--path DIR]

Two shapes: "asleep" (`Status.sleep`) and "listening" (`Status.wait` for an event of its own). With ``--through store``
(the default) they are written straight through `LmdbStore.commit`, and a fresh process starts a manager on them: memory
and time of a start. With ``--through api`` they are submitted in slices of 10,000 and run their first step in workers,
so that memory is that of a host which has lived through all of it; a fresh start on the same store follows.

Memory is private memory of the host: Private_Clean and Private_Dirty of all its mappings in /proc/self/smaps but the
map of the store, less what it was before the manager was made; a manager with an empty store is measured beside it.
Idle cost is CPU and voluntary context switches of host and workers over some seconds.

The default takes about two minutes, ``--through api`` with a million about five.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import filling
from common import report
from jobs import Listener, Sleeper
from starting import idle_cost, private_bytes, started

from actorproc import Procedure, ProcedureManager, ProcedureState

_SLICE = 10_000
_SHAPES: dict[str, Callable[[int], Procedure]] = {"asleep": Sleeper, "listening": Listener}
_STATES = {"asleep": ProcedureState.WAITING_TIMEOUT, "listening": ProcedureState.WAITING}


def write(shape: str, path: str, procedures: int) -> None:
    """The store as a manager would have left it."""
    now = time.time()
    rows = {
        "asleep": filling.asleep(Sleeper.type_name, now, now + 86_400),
        "listening": filling.listening(Listener.type_name, now),
    }
    filling.fill(path, procedures, rows[shape])


def live_through(shape: str, path: str, procedures: int, idle: float) -> dict[str, Any]:
    """Submit them in slices and wait until all of them wait."""
    with ProcedureManager(path, procedures=[Sleeper, Listener], workers=2) as manager:
        before, start = private_bytes(), time.perf_counter()
        for first in range(0, procedures, _SLICE):
            some = range(first, min(first + _SLICE, procedures))
            last = manager.submit_many([_SHAPES[shape](number) for number in some])[-1]
            while last.info().state is not _STATES[shape]:
                time.sleep(0.01)
        while (found := manager.metrics()).queued or found.in_hand:
            time.sleep(0.1)
        took = time.perf_counter() - start
        return {"private_bytes": private_bytes() - before, "made_s": took, "idle": idle_cost(idle)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--procedures", type=int, default=1_000_000)
    parser.add_argument("--through", choices=["store", "api"], default="store")
    parser.add_argument("--shapes", nargs="+", choices=list(_SHAPES), default=list(_SHAPES))
    parser.add_argument("--idle", type=float, default=5.0)
    parser.add_argument("--path", help="a folder that keeps the stores")
    options = parser.parse_args()
    figures: dict[str, object] = {}
    lines = []
    with tempfile.TemporaryDirectory(prefix="actorproc-bench-") as folder:
        home = Path(options.path or folder)
        empty = started(str(home / "empty"), f"--idle={options.idle}")
        lines.append(_line("empty store", empty, None, None))
        for shape in options.shapes:
            path = str(home / f"{shape}-{options.through}-{options.procedures}")
            found: dict[str, Any] = {}
            if options.through == "api":
                found["lived"] = live_through(shape, path, options.procedures, options.idle)
                lines.append(_line(f"{shape}, lived through", found["lived"], options.procedures, None))
            elif not Path(path).exists():
                write(shape, path, options.procedures)
            found["started"] = started(path, f"--idle={options.idle}")
            lines.append(_line(f"{shape}, started", found["started"], options.procedures, empty))
            figures[shape] = found
    report("scale", {"procedures": options.procedures, "empty": empty, "shapes": figures}, lines)


def _line(what: str, found: dict[str, Any], procedures: int | None, empty: dict[str, Any] | None) -> str:
    held = found["private_bytes"]
    text = f"{what}: {held >> 20:,} MiB private"
    if procedures:
        net = held - (empty["private_bytes"] if empty else 0)
        text += f", {net / procedures:.0f} bytes for each of {procedures:,}"
    if "start_s" in found:
        text += f"; start {found['start_s']:.2f} s (CPU {found['start_cpu_s']:.2f} s)"
    idle = found["idle"]
    return f"{text}; idle for {idle['seconds']:g} s: CPU {idle['cpu_s']:.2f} s, {idle['wake_ups']} wake-ups"


if __name__ == "__main__":
    main()
