"""Conformance suite of worker pools: the promises of `WorkerPool` as tests, for authors of a pool.

Subclass `PoolSuite` in a test module, and override the fixture ``make_pool``::

    class TestMyPool(PoolSuite):
        @pytest.fixture
        def make_pool(self):
            return lambda: MyPool()

Each test gets a pool of its own, which the suite opens and closes. Workers must be able to import
``actorproc.testing.pool_suite.steps``; that module needs no pytest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from actorproc.testing.pool_suite.cases import MakePool, PoolSuite
    from actorproc.testing.pool_suite.listener import PoolListener

__all__ = ["MakePool", "PoolListener", "PoolSuite"]


def __getattr__(name: str) -> Any:
    """Import at first use: a worker that loads `steps` loads this module, and must not load pytest."""
    if name not in __all__:
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)
    from importlib import import_module  # noqa: PLC0415

    module = "listener" if name == "PoolListener" else "cases"
    return getattr(import_module(f"{__name__}.{module}"), name)
