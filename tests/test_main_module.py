"""The package runs as a module."""

from __future__ import annotations

import subprocess
import sys


def test_the_package_run_as_a_module_is_the_command() -> None:
    ended = subprocess.run([sys.executable, "-m", "actorproc", "--version"], capture_output=True, text=True, check=True)

    assert ended.stdout.startswith("actorproc ")
