"""Host programs, and nothing left behind after each test."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.kit.fixtures import nothing_is_left_behind, until

__all__ = ["environment", "nothing_is_left_behind", "program", "until"]

ROOT = Path(__file__).parents[2]


@pytest.fixture
def program(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a Python program in the test's directory, with this checkout importable."""

    def run(text: str, *options: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *options, "-c", text], cwd=tmp_path, env=environment(), capture_output=True, text=True,
            timeout=90, check=False,
        )  # fmt: skip

    return run


def environment(**more: str) -> dict[str, str]:
    """The environment of a program of a host."""
    return os.environ | {"PYTHONPATH": str(ROOT)} | more
