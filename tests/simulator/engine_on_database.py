"""All engine tests on a store in a database, once for each server that is installed.

    python -m tests.simulator.engine_on_database [--seed N]

The server is that of `ACTORPROC_POSTGRES_BIN`, else the newest of the system. Tests about files of a directory, or about
other processes that open one, run on directories.
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
    """The command line; the exit code of pytest, or 77 where there is no server."""
    parser = argparse.ArgumentParser(description="Run the engine tests on PostgreSQL.")
    parser.add_argument("--seed", help="taken for the sake of the tiers; these tests have none")
    parser.parse_args()
    try:
        sys.stdout.write(f"the server's programs are in {find_server()}\n")
    except EngineError as error:
        sys.stdout.write(f"skipped: {error}\n")
        return SKIPPED
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "tests/engine"]
    return subprocess.run(command, env=os.environ | {"ACTORPROC_TEST_STORE": "postgres"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
