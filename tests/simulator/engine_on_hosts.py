"""All engine tests with the workers of each manager on a host, over a link.

    python -m tests.simulator.engine_on_hosts [--seed N]

Those that reach into the process of the workers' parent run without: `ON_THIS_MACHINE` of `tests/kit/on_hosts.py` names them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from importlib.util import find_spec

from tests.simulator.disk.power_cuts import SKIPPED

__all__ = ["main"]


def main() -> int:
    """The command line; the exit code of pytest, or 77 where no certificate of a link can be made."""
    parser = argparse.ArgumentParser(description="Run the engine tests with workers on hosts.")
    parser.add_argument("--seed", help="accepted as by the other parts of a tier; these tests have none")
    parser.parse_args()
    if find_spec("cryptography") is None:
        sys.stdout.write("skipped: the certificate of a link is made by cryptography (extra postgres)\n")
        return SKIPPED
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "tests/engine"]
    return subprocess.run(
        command, env=os.environ | {"ACTORPROC_POOL": "hosted", "ACTORPROC_COLD_WORKERS": "1"}, check=False
    ).returncode


if __name__ == "__main__":
    sys.exit(main())
