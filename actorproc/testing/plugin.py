"""The pytest plugin: fixtures for tests of procedures. Loaded by itself where actorproc is installed.

Nothing of the engine is imported before a fixture is asked for.

While pytest imports test modules and their ``conftest.py``, it imports a program's modules without running it. A
manager that such a module starts at its top stays shut then, and starts when a test or a hook uses it. So collecting
tests starts nothing, and the processes of pytest-xdist do not contend for its directory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pytest

from actorproc.procedure.shipping.importing import Importer, imports_only

if TYPE_CHECKING:
    from actorproc.report.deploy_report import DeployReport
    from actorproc.testing.crashes.survival import SurvivalReport
    from actorproc.testing.inline import InlineManager, VirtualClock

pytest.register_assert_rewrite("actorproc.testing.store_suite", "actorproc.testing.pool_suite")

_IMPORTER: pytest.StashKey[Importer] = pytest.StashKey()

__all__ = ["inline_manager", "make_inline_manager", "survives_crashes", "survives_deploy", "virtual_clock"]


@pytest.fixture
def virtual_clock() -> VirtualClock:
    """A clock that can be moved; `inline_manager`, and what `make_inline_manager` makes, run by it."""
    from actorproc.testing.inline import VirtualClock  # noqa: PLC0415

    return VirtualClock()


@pytest.fixture
def make_inline_manager(virtual_clock: VirtualClock) -> Iterator[Callable[..., InlineManager]]:
    """A function that starts managers without processes: ``make_inline_manager([Order], workers=2)``.

    Its arguments are those of `InlineManager`. The managers are stopped when the test is over.
    """
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
def inline_manager(make_inline_manager: Callable[..., InlineManager]) -> InlineManager:
    """A started manager without processes, with one worker: ``inline_manager.run(Order("book"))``.

    It learns classes as they are submitted, or by `register`, and is stopped when the test is over.
    """
    return make_inline_manager()


@pytest.fixture
def survives_crashes() -> Callable[..., SurvivalReport]:
    """`actorproc.testing.survives_crashes`, without an import."""
    from actorproc.testing.crashes.survival import survives_crashes  # noqa: PLC0415

    return survives_crashes


@pytest.fixture
def survives_deploy() -> Callable[..., DeployReport]:
    """`actorproc.testing.survives_deploy`, without an import."""
    from actorproc.testing.deploys import survives_deploy  # noqa: PLC0415

    return survives_deploy


# ------------------------------------------------------------ while tests are collected
@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Keep shut what the ``conftest.py`` files make, and what is collected behind them."""
    _begin(early_config)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep modules shut where the plugin is loaded too late for `pytest_load_initial_conftests`."""
    _begin(config)


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Tests run from here on: what they import is a program."""
    _end(session.config)


@pytest.hookimpl(trylast=True)
def pytest_unconfigure(config: pytest.Config) -> None:
    """Leave no flag behind when nothing was collected."""
    _end(config)


def _begin(config: pytest.Config) -> None:
    if config.stash.get(_IMPORTER, None) is None:
        config.stash[_IMPORTER] = imports_only("the collection of pytest", starts_late=True).__enter__()


def _end(config: pytest.Config) -> None:
    importer = config.stash.get(_IMPORTER, None)
    if importer is not None:
        importer.__exit__()
