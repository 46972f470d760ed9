"""A night of the torture of several processes: bugs that are put in, then episodes until the time is up.

python -m tests.simulator.cluster_torture --minutes 20 --seed 7
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

from actorproc.errors import EngineError
from actorproc.testing.database_server import find_server
from tests.simulator.disk.power_cuts import SKIPPED

__all__ = ["main"]


def main() -> int:
    """The command line; exit code 1 when a promise was broken or a bug that was put in was not found, 77 without a server."""
    parser = argparse.ArgumentParser(description="Torture of leaders and hosts.")
    parser.add_argument("--minutes", required=True, help="minutes of episodes")
    parser.add_argument("--seed", default="1", help="which series of episodes (default 1)")
    given = parser.parse_args()
    try:
        find_server()
    except EngineError as error:
        sys.stdout.write(f"skipped: {error}\n")
        return SKIPPED
    bugs = [sys.executable, "-m", "pytest", "-q", "tests/torture/test_cluster.py"]
    episodes = [
        sys.executable,
        "-m",
        "actorproc",
        "torture",
        "--cluster",
        "--minutes",
        given.minutes,
        "--seed",
        given.seed,
    ]
    codes = [
        subprocess.run(bugs, env=os.environ | {"ACTORPROC_PLANTED": "1"}, check=False).returncode,
        subprocess.run(episodes, check=False).returncode,
    ]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main())
