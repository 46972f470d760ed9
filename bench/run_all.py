"""All benches, one after another: bench/results.json, the pictures, and the table of aims.

    python bench/run_all.py [--quick | --full] [--only steps,peers] [--no-install]

Half an hour on two cores; five minutes with ``--quick``, which shows that all work, and measures little; with
``--full`` the benches of scale have their full sizes (a million procedures), which takes ten minutes more. What the
benches compare with is installed first, into bench/.peers; with ``--no-install`` they use what is there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import peer_home
import plot
from aims import table

HERE = Path(__file__).parent
BENCHES: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    # Name: what it is run with, and what with --quick. With --full it gets nothing: its own sizes.
    "steps": ((), ("--quick",)),
    "latency": ((), ("--quick",)),
    "submit": ((), ("--quick",)),
    "fan_out": ((), ("--quick",)),
    "bare": ((), ("--quick",)),
    "recorded": ((), ("--quick",)),
    "peers": ((), ("--quick",)),
    "stores": (("--steps=10000", "--pending=50000"), ("--quick",)),
    "leaders": (("--freezes=2", "--crashes=5"), ("--quick",)),
    "long_snapshot": (("--procedures=50000", "--commits=5000"), ("--quick",)),
    "large_states": ((), ("--quick",)),
    "executor": ((), ("--quick",)),
    "large_calls": ((), ("--quick",)),
    "isolation": ((), ("--quick",)),
    "recovery": ((), ("--quick",)),
    "host_kill": (("--rounds=1",), ("--rounds=1", "--pending=2000")),
    "scale": (("--procedures=200000",), ("--procedures=5000", "--idle=1")),
    "recovery_scale": (("--procedures=100000",), ("--procedures=5000",)),
    "locks": ((), ("--waiters", "1000", "10000")),
    "retention": (("--repeat=1", "--seconds=20"), ("--quick",)),
    "long_lived": (("--rounds=2000",), ("--quick",)),
    "scheduler": ((), ("--operations=20000", "--core=2000")),
    "cost": ((), ("--quick",)),
    "cli": ((), ("--quick",)),
    "web": ((), ("--quick",)),
}
"""In this order. One that is not in this folder is left out."""
_LONGEST = 1800
_BEGIN, _END = "<!-- aims -->", "<!-- end of aims -->"
"""Marks in README.md around the table."""


def run(name: str, arguments: Sequence[str]) -> dict[str, object]:
    """The result of a bench, or ``{"failed": why}``."""
    command = [sys.executable, str(HERE / f"{name}.py"), *arguments]
    path = os.pathsep.join(filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH"))))
    environment = os.environ | {"PYTHONPATH": path}
    try:
        ended = subprocess.run(
            command, stdout=subprocess.PIPE, text=True, check=False, env=environment, timeout=_LONGEST
        )
    except subprocess.TimeoutExpired:
        return {"failed": f"not done within {_LONGEST} s"}
    lines = ended.stdout.splitlines()
    print("\n".join(lines[:-1]), flush=True)
    if ended.returncode or not lines:
        return {"failed": f"exit code {ended.returncode}"}
    return json.loads(lines[-1])


def write_into_readme(aims: Sequence[str]) -> None:
    page = HERE / "README.md"
    before, _, rest = page.read_text().partition(_BEGIN)
    after = rest.partition(_END)[2]
    table = "\n".join(aims)
    page.write_text(f"{before}{_BEGIN}\n{table}\n{_END}{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--only", help="names of benches, with commas between them; the other results are kept")
    parser.add_argument("--no-install", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    given = parser.parse_args()
    chosen = given.only.split(",") if given.only else list(BENCHES)
    unknown = [name for name in chosen if name not in BENCHES]
    if unknown:
        parser.error(f"no bench is called {', '.join(unknown)}; there are {', '.join(BENCHES)}")
    if not given.no_install and {"peers", "executor"} & set(chosen):
        for problem in peer_home.install():
            print(f"not installed: {problem}")
    results = json.loads(given.out.read_text())["benches"] if given.only and given.out.exists() else {}
    begun = time.monotonic()
    for name in chosen:
        if not (HERE / f"{name}.py").exists():
            continue
        print(f"== {name}, load {os.getloadavg()[0]:.1f}", flush=True)
        start = time.monotonic()
        arguments = () if given.full else BENCHES[name][given.quick]
        results[name] = run(name, arguments) | {"load_after": os.getloadavg()[0], "took_s": time.monotonic() - start}
    machine = {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count()}
    aims = table(results)
    written = {"date": time.strftime("%Y-%m-%d"), "machine": machine, "aims": aims, "benches": results}
    given.out.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
    plot.PICTURES.mkdir(exist_ok=True)
    for picture in plot.pictures(results):
        (plot.PICTURES / f"{picture.name}.svg").write_text(plot.svg(picture))
    if not (given.quick or given.only):
        write_into_readme(aims)
    print(f"== aims, after {time.monotonic() - begun:.0f} s")
    print("\n".join(aims))


if __name__ == "__main__":
    main()
