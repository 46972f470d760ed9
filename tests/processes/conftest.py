"""Fixtures: pools of real worker processes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

MODULES = str(Path(__file__).parent / "modules")
if MODULES not in sys.path:
    sys.path.append(MODULES)

from pool_listener import Listener, is_gone  # noqa: E402 - found by the line above

from tests.kit.waiting import wait_until  # noqa: E402 - as above


@pytest.fixture
def listen() -> Iterator[Callable[..., Listener]]:
    """Makes listeners; their pools are closed, and no process of theirs is left, at the end."""
    made: list[Listener] = []

    def make(**options: Any) -> Listener:
        options.setdefault("spares", 0)
        made.append(Listener(**options))
        return made[-1]

    yield make
    for listener in made:
        pids = [fact.pid for fact in listener.pool.facts().values()]
        listener.pool.close(0.5)
        for pid in pids:
            wait_until(lambda pid=pid: is_gone(pid))


@pytest.fixture
def host(listen: Callable[..., Listener]) -> Listener:
    return listen()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = str(Path(__file__).parent)
    for item in items:
        if str(item.path).startswith(here):
            item.add_marker(pytest.mark.processes)
