"""The conformance suite on our pools: the local one of processes and the fake one of threads."""

from __future__ import annotations

import threading

import pytest

from actorproc.errors import UsageError
from actorproc.model.ids import WorkerId
from actorproc.testing.fake_pool import FakePool
from actorproc.testing.pool_suite import PoolListener, PoolSuite
from actorproc.workers.pool.local_pool import LocalPool


class TestLocalPool(PoolSuite):
    @pytest.fixture
    def make_pool(self):
        return LocalPool


class TestFakePool(PoolSuite):
    @pytest.fixture
    def make_pool(self):
        return FakePool

    def test_a_fake_pool_can_fail_to_boot(self) -> None:
        host = PoolListener(FakePool(boot_failures=1))
        host.pool.launch(WorkerId(0, 1))

        assert not host.died(WorkerId(0, 1)).booted
        host.boot(0, 2)
        host.pool.close(1.0)

    def test_no_thread_of_a_worker_starts_when_the_pool_has_closed(self, host: PoolListener) -> None:
        host.pool.close(5.0)
        host.pool.launch(WorkerId(71, 1))

        assert not [thread.name for thread in threading.enumerate() if thread.name == "fake-worker-71"]
        host.pool.launch(WorkerId(71, 2))
        assert host.pool.facts() == {}


class TestFakePoolThatWasNotOpened:
    def test_it_launches_nothing(self) -> None:
        with pytest.raises(UsageError, match="not open"):
            FakePool().launch(WorkerId(0, 1))
