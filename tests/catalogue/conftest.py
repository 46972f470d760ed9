"""Managers on real directories with real worker processes; whatever a test starts is gone after it."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from actorproc.manager import ProcedureManager
from tests.catalogue.kit import FAST, wait_until


@pytest.fixture
def until() -> Callable[..., Any]:
    return wait_until


@pytest.fixture
def folder(tmp_path: Path) -> str:
    """Where the steps of a test keep their ledger."""
    place = tmp_path / "world"
    place.mkdir()
    return str(place)


@pytest.fixture
def open_manager(tmp_path: Path) -> Iterator[Callable[..., ProcedureManager]]:
    """Start managers on one directory; what a test leaves open is stopped after it."""
    managers: list[ProcedureManager] = []

    def start(path: Path | None = None, *, workers: int = 1, **options: Any) -> ProcedureManager:
        options.setdefault("config", FAST)
        manager = ProcedureManager(path or tmp_path / "state", workers=workers, **options)
        managers.append(manager)
        return manager.start()

    yield start
    for manager in managers:
        manager.stop(drain=False, timeout=10)


@pytest.fixture(autouse=True)
def nothing_is_left_behind() -> Iterator[None]:
    """No thread of the engine and no child process outlives a test."""
    me = psutil.Process()
    before = {child.pid for child in me.children(recursive=True)}
    yield

    def left() -> list[str]:
        found = [thread.name for thread in threading.enumerate() if _is_ours(thread)]
        for child in me.children(recursive=True):
            with contextlib.suppress(psutil.NoSuchProcess):
                if child.pid not in before and child.status() != psutil.STATUS_ZOMBIE:
                    found.append(f"process {child.pid}")
        return found

    with contextlib.suppress(AssertionError):
        wait_until(lambda: not left(), 10)
    assert left() == []


def _is_ours(thread: threading.Thread) -> bool:
    return thread.name.lower().startswith(("actorproc", "manageractor", "supervisoractor"))
