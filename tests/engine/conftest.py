"""Managers on real directories with real worker processes, and nothing left behind after each test."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from actorproc.manager import ProcedureManager

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
def open_manager(tmp_path: Path) -> Iterator[Callable[..., ProcedureManager]]:
    """Start managers on one directory; what a test leaves open is stopped after it."""
    managers: list[ProcedureManager] = []

    def start(path: Path | None = None, *, workers: int = 2, **options: Any) -> ProcedureManager:
        manager = ProcedureManager(path or tmp_path / "state", workers=workers, **options)
        managers.append(manager)
        return manager.start()

    yield start
    for manager in managers:
        manager.stop(drain=False, timeout=10)


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """No thread of ours and no child process outlives a test."""
    me = psutil.Process()
    before = {child.pid for child in me.children(recursive=True)}
    yield

    def ours() -> list[str]:
        return [thread.name for thread in threading.enumerate() if _is_ours(thread)]

    def children() -> list[psutil.Process]:
        found = []
        for child in me.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.pid not in before and child.status() != psutil.STATUS_ZOMBIE:
                    found.append(child)
        return found

    deadline = time.monotonic() + 10
    while (ours() or children()) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert ours() == []
    assert children() == []


def _is_ours(thread: threading.Thread) -> bool:
    name = thread.name.lower()
    return name.startswith(("actorproc", "manageractor", "supervisoractor"))


@pytest.fixture
def gate(tmp_path: Path) -> Gate:
    return Gate(tmp_path / "gates")


class Gate:
    """Files by which a step in another process says that it is there, and is let through."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = str(folder)

    def arrivals(self, name: str) -> list[int]:
        """Pids of the processes that reached this place, in order."""
        try:
            return [int(line) for line in Path(self.folder, name).read_text().split()]
        except FileNotFoundError:
            return []

    def reached(self, name: str, times: int = 1) -> int:
        """Wait until this place was reached so often; the last pid."""
        wait_until(lambda: len(self.arrivals(name)) >= times)
        return self.arrivals(name)[-1]

    def open(self, name: str) -> None:
        Path(self.folder, f"{name}.open").touch()


def kill(pid: int, signal: int) -> None:
    os.kill(pid, signal)
