"""Managers whose workers are on a host: the pool of an engine is on the other end of a link, in this process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from actorproc.api.manager import ProcedureManager
from actorproc.model.ids import StepToken, WorkerId
from actorproc.workers.base import HostDrains, HostJoined, HostLeft, PoolEvent, WorkerPool
from actorproc.workers.hosts import pool as pools
from actorproc.workers.hosts.agent import HostAgent, HostOffer
from actorproc.workers.hosts.messages import CloseOut
from actorproc.workers.hosts.pool import HostedPool
from tests.kit.host_listener import HostListener
from tests.kit.waiting import BOUND, wait_until

__all__ = ["EVERYWHERE", "IN_EVERY_RUN", "ON_THIS_MACHINE", "is_for_hosts", "on_a_host"]

EVERYWHERE = os.environ.get("ACTORPROC_POOL", "") == "hosted"
"""All tests that use these fixtures are to run with their workers on a host: at night."""
IN_EVERY_RUN = frozenset(
    {
        "test_crashes",
        "test_kinds_of_managers",
        "test_limits",
        "test_requests",
        "test_running",
        "test_supervision",
        "test_watching",
    }
)
"""Modules whose chosen tests do so in every run."""
ON_THIS_MACHINE = {
    "test_half_started": """
        test_a_start_without_a_thread_for_the_workers_leaves_nothing_behind
        test_ctrl_c_while_a_thread_of_the_engine_starts_leaves_nothing_behind
    """,
    "test_kept_output": """
        test_output_of_both_lives_is_in_order_and_that_of_a_deleted_procedure_is_not_shown
        test_output_outlives_a_host_that_was_killed_and_is_shown_without_a_manager
    """,
    "test_life": """
        test_ctrl_c_in_a_stop_that_waits_for_the_workers_closes_the_rest_all_the_same
    """,
    "test_log_escaping": """
        test_lines_of_a_log_have_step_and_attempt_on_disk_too
    """,
    "test_many_deaths": """
        test_many_deaths_leave_nothing_behind_in_the_host
    """,
    "test_order_limits_and_shares": """
        test_a_worker_that_dies_in_its_step_while_it_is_retired_takes_no_slot_along
    """,
    "test_supervision": """
        test_a_bug_in_the_pool_of_workers_breaks_the_engine_loudly
        test_a_bug_is_told_also_when_all_slots_were_parked_before
        test_who_asks_a_broken_engine_again_and_again_does_not_gather_what_the_others_held
    """,
    "test_warm_spares": """
        test_what_a_spare_says_in_the_moment_in_which_it_is_taken_is_heard_of_the_worker_that_it_becomes
    """,
}
"""Names of tests by their module that reach into the process of the workers' parent, so that its host cannot be another.

They look at the spares of a pool, plant a bug into its thread (which costs a host, and not the engine), interrupt its
start or its end, or read the files to which it writes the output of steps (a host keeps that in memory).
"""


_ON_THIS_MACHINE = {(module, name) for module, names in ON_THIS_MACHINE.items() for name in names.split()}


def is_for_hosts(module: str, name: str) -> bool:
    """True if a test may have its workers on a host.

    Args:
        module: Last part of the name of its module.
        name: Name of its function.

    Returns:
        True or False.
    """
    return (module, name) not in _ON_THIS_MACHINE


class _NoWorkers:
    """The pool of the manager's own machine, which has none."""

    def open(self, sink: Callable[[PoolEvent], None]) -> None:
        pass

    def forget_spares(self) -> None:
        pass

    def stack(self, token: StepToken, timeout: float = 5.0) -> str:
        return ""

    def logs(self, procedure: str, timeout: float = 5.0) -> list[Any]:
        return []

    def facts(self, timeout: float = 5.0) -> dict[WorkerId, Any]:
        return {}

    def close(self, timeout: float) -> None:
        pass


class _OneHost:
    """Shows the pool of a leader with one host, h1, as that of the manager's own machine, and ends the host with it."""

    def __init__(self, pool: HostedPool, make_pool: Callable[[Any, int], WorkerPool], patience: float) -> None:
        self._pool = pool
        self._listener = HostListener(pool, patience)
        offer = HostOffer(name="here", version="1", workers=0)
        self._agent = HostAgent(offer, connect=self._listener.dial, seen_epoch=lambda: 0, make_pool=make_pool)
        self._thread = threading.Thread(target=self._agent.run, name="actorproc-host", daemon=True)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pool, name)

    def open(self, sink: Callable[[PoolEvent], None]) -> None:
        """Open the pool, and wait until its host has joined: the engine starts workers at once."""

        def tell(event: PoolEvent) -> None:
            if isinstance(event, HostJoined):
                sink(HostJoined(0, event.limits, event.process_limits))
            elif not isinstance(event, HostDrains | HostLeft):
                sink(event)

        self._pool.open(tell)
        self._thread.start()
        wait_until(lambda: self._pool.hosts and self._pool.hosts[0].is_open)

    def close(self, timeout: float) -> None:
        """Have the host end its workers, as a pool does at the end of a manager."""
        self._agent.drain("the manager stops")
        for host in self._pool.hosts:
            host.send(CloseOut(timeout))
        wait_until(lambda: not self._pool.hosts, timeout + BOUND)
        self._pool.close(timeout)
        self._listener.close()
        self._agent.stop()
        if self._thread.ident is not None:
            self._thread.join(BOUND)


@pytest.fixture
def on_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each manager has the workers of a host, over TLS, in place of its own."""
    pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

    def make_pool(manager: ProcedureManager, epoch: int) -> Any:
        home = manager._home if manager._given_store is None else None
        far = SimpleNamespace(
            is_near=False,
            largest_value=home.largest_value if home is not None else None,
            spool=None,
            staging="",
            secrets=home.secrets if home is not None else (),
        )
        made = manager._pools()
        made._home = far  # type: ignore[assignment]
        pool = made.for_engine(epoch, 0)
        assert isinstance(pool, HostedPool)
        pool._local = _NoWorkers()  # type: ignore[assignment]
        return _OneHost(pool, made.for_host, manager._config.host_patience)

    monkeypatch.setattr(pools, "host_of", lambda slot: 1)
    monkeypatch.setattr(ProcedureManager, "_make_pool", make_pool)
