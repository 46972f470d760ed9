"""All benches, one after another: bench/results.json, the pictures, and the table of aims.

    python bench/run_all.py [--quick] [--only steps,peers] [--no-install]

A quarter of an hour on two cores, three minutes with ``--quick`` (which shows that all work, and measures little). What
the benches compare with is installed first, into bench/.peers; with ``--no-install`` they use what is there.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

import peer_home
import plot
from aims import table

HERE = Path(__file__).parent
BENCHES = (
    "steps",
    "latency",
    "submit",
    "fan_out",
    "peers",
    "executor",
    "isolation",
    "recovery",
    "host_kill",
    "scale",
    "scheduler",
    "cost",
    "cli",
)
"""In this order. One that is not in this folder is left out."""


def run(name: str, quick: bool) -> dict[str, object]:
    """The result of a bench, or ``{"failed": why}``."""
    command = [sys.executable, str(HERE / f"{name}.py"), *(["--quick"] if quick else [])]
    path = os.pathsep.join(filter(None, (str(HERE.parent), os.environ.get("PYTHONPATH"))))
    ended = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=False, env=os.environ | {"PYTHONPATH": path}
    )
    lines = ended.stdout.splitlines()
    print("\n".join(lines[:-1]), flush=True)
    if ended.returncode or not lines:
        return {"failed": f"exit code {ended.returncode}"}
    return json.loads(lines[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--only", help="names of benches, with commas between them; the other results are kept")
    parser.add_argument("--no-install", action="store_true")
    parser.add_argument("--out", type=Path, default=HERE / "results.json")
    given = parser.parse_args()
    chosen = given.only.split(",") if given.only else BENCHES
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
        results[name] = run(name, given.quick) | {"load_after": os.getloadavg()[0], "took_s": time.monotonic() - start}
    machine = {"python": platform.python_version(), "system": platform.platform(), "cores": os.cpu_count()}
    aims = table(results)
    written = {"date": time.strftime("%Y-%m-%d"), "machine": machine, "aims": aims, "benches": results}
    given.out.write_text(json.dumps(written, indent=1, sort_keys=True) + "\n")
    plot.PICTURES.mkdir(exist_ok=True)
    for picture in plot.pictures(results):
        (plot.PICTURES / f"{picture.name}.svg").write_text(plot.svg(picture))
    print(f"== aims, after {time.monotonic() - begun:.0f} s")
    print("\n".join(aims))


if __name__ == "__main__":
    main()
