"""Host programs, and nothing left behind after each test."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).parents[2]
OURS = ("actorproc", "manageractor", "supervisoractor", "engineactor")
BOUND = 30.0
"""Seconds any awaited condition may take; only a failing test waits that long."""


def wait_until(condition: Callable[[], Any], bound: float = BOUND) -> Any:
    """The first true value of `condition`; fails the test when it does not come."""
    deadline = time.monotonic() + bound
    while not (value := condition()):
        assert time.monotonic() < deadline, f"{condition} did not come true within {bound} s"
        time.sleep(0.005)
    return value


@pytest.fixture
def until() -> Callable[..., Any]:
    return wait_until


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


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """No thread of ours and no child process outlives a test."""
    me = psutil.Process()
    before = {child.pid for child in me.children(recursive=True)}
    yield

    def ours() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.lower().startswith(OURS)]

    def children() -> list[psutil.Process]:
        found = []
        for child in me.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.pid not in before and child.status() != psutil.STATUS_ZOMBIE:
                    found.append(child)
        return found

    deadline = time.monotonic() + 15
    while (ours() or children()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ours() == []
    assert children() == []
