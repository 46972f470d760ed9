"""The pytest plugin: fixtures for tests of procedures. Loaded by itself where actorproc is installed.

Nothing of the engine is imported before a fixture is asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from actorproc.testing.inline import InlineManager, VirtualClock
    from actorproc.testing.survival import SurvivalReport

__all__ = ["inline_manager", "survives_crashes", "virtual_clock"]


@pytest.fixture
def virtual_clock() -> VirtualClock:
    """A clock that can be moved; the managers of `inline_manager` run by it."""
    from actorproc.testing.inline import VirtualClock  # noqa: PLC0415

    return VirtualClock()


@pytest.fixture
def inline_manager(virtual_clock: VirtualClock) -> Iterator[Callable[..., InlineManager]]:
    """Start managers without processes: ``manager = inline_manager([Order])``; stopped when the test is over."""
    from actorproc.testing.inline import InlineManager  # noqa: PLC0415

    managers: list[InlineManager] = []

    def start(procedures: Any = (), **options: Any) -> InlineManager:
        options.setdefault("clock", virtual_clock)
        manager = InlineManager(procedures, **options)
        managers.append(manager)
        return manager.start()

    yield start
    for manager in reversed(managers):
        manager.stop(drain=False, timeout=5)


@pytest.fixture
def survives_crashes() -> Callable[..., SurvivalReport]:
    """`actorproc.testing.survives_crashes`, without an import."""
    from actorproc.testing.survival import survives_crashes  # noqa: PLC0415

    return survives_crashes
