"""Executors on directories of their own, and nothing left behind after each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from actorproc.executor import ProcedureExecutor
from actorproc.executor.taken import Taken
from tests.kit.fixtures import nothing_is_left_behind, until
from tests.kit.warm_workers import warm_workers

__all__ = ["nothing_is_left_behind", "open_executor", "results_stay", "until", "warm_workers"]


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


@pytest.fixture
def results_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is stored of calls stays when their results were taken, for tests that look at it."""
    monkeypatch.setattr(Taken, "add", lambda *_: None)
