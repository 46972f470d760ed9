"""Managers on real directories with real worker processes; whatever a test starts is gone after it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actorproc.api.manager import ProcedureManager
from tests.catalogue.kit import FAST
from tests.kit.fixtures import nothing_is_left_behind, until
from tests.kit.managers import LIGHT
from tests.kit.warm_workers import warm_workers

__all__ = ["folder", "nothing_is_left_behind", "open_manager", "until", "warm_workers"]


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
        options = LIGHT | {"config": FAST} | options
        manager = ProcedureManager(path or tmp_path / "state", workers=workers, **options)
        managers.append(manager)
        return manager.start()

    yield start
    for manager in managers:
        manager.stop(drain=False, timeout=10)
