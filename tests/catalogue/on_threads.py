"""A manager that starts in a millisecond."""

from __future__ import annotations

from actorproc.api.manager import ProcedureManager
from actorproc.testing.fake_pool import FakePool

__all__ = ["OnThreads"]


class OnThreads(ProcedureManager):
    """The manager with threads for workers: it starts in a millisecond, so a test can try every crash."""

    def _make_pool(self, epoch: int) -> FakePool:
        del epoch
        return FakePool()
