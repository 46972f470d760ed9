"""Executors on directories of their own, and nothing left behind after each test."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from actorproc.executor import ProcedureExecutor

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
def open_executor(tmp_path: Path) -> Iterator[Callable[..., ProcedureExecutor]]:
    """Executors with a manager of their own; what a test leaves open is stopped after it."""
    opened: list[ProcedureExecutor] = []

    def start(path: Path | None = None, max_workers: int = 2, **options: Any) -> ProcedureExecutor:
        opened.append(ProcedureExecutor(path or tmp_path / "state", max_workers, **options))
        return opened[-1]

    yield start
    for executor in opened:
        executor.manager.stop(drain=False, timeout=10)
        executor.shutdown()


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """No thread of ours and no child process outlives a test."""
    me = psutil.Process()
    before = {child.pid for child in me.children(recursive=True)}
    yield

    def ours() -> list[str]:
        return [thread.name for thread in threading.enumerate() if thread.name.startswith("actorproc")]

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
