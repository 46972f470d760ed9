"""Managers on real directories with real worker processes, and nothing left behind after each test."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actorproc.api.manager import ProcedureManager
from actorproc.config import Config
from tests.kit.fixtures import nothing_is_left_behind, until
from tests.kit.managers import LIGHT
from tests.kit.on_database import in_a_database, kind_of_store, on_both_stores
from tests.kit.on_hosts import on_a_host
from tests.kit.waiting import wait_until
from tests.kit.warm_workers import warm_workers

__all__ = [
    "Gate",
    "config",
    "gate",
    "in_a_database",
    "kill",
    "kind_of_store",
    "nothing_is_left_behind",
    "on_a_host",
    "open_manager",
    "until",
    "warm_workers",
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    on_both_stores(metafunc)


@pytest.fixture
def config() -> Config:
    """The settings of managers whose test gives none; modules in which workers die want a spare."""
    return LIGHT["config"]


@pytest.fixture
def open_manager(tmp_path: Path, config: Config) -> Iterator[Callable[..., ProcedureManager]]:
    """Start managers on one directory; what a test leaves open is stopped after it."""
    managers: list[ProcedureManager] = []

    def start(path: Path | None = None, *, workers: int = 2, **options: Any) -> ProcedureManager:
        options = LIGHT | {"config": config} | options
        manager = ProcedureManager(path if path is not None else tmp_path / "state", workers=workers, **options)
        managers.append(manager)
        return manager.start()

    yield start
    for manager in managers:
        manager.stop(drain=False, timeout=10)


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
