"""Tests that are marked `nightly`: they take long, and a shorter neighbour of each is in every run.

python -m tests.simulator.nightly_tests [--seed N]
"""

from __future__ import annotations

import argparse
import subprocess
import sys

__all__ = ["main"]


def main() -> int:
    """The command line; the exit code of pytest."""
    parser = argparse.ArgumentParser(description="Run the tests that are marked nightly.")
    parser.add_argument("--seed", help="accepted as by the other parts of a tier; these tests have none")
    parser.parse_args()
    return subprocess.run([sys.executable, "-m", "pytest", "-q", "-n", "2", "-m", "nightly"], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
