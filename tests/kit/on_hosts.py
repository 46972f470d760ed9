"""Managers whose workers are on a host: the pool of an engine is on the other end of a link, in this process."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from actorproc.api.manager import ProcedureManager
from actorproc.workers.base import PoolEvent

__all__ = ["EVERYWHERE", "IN_EVERY_RUN", "on_a_host"]

EVERYWHERE = os.environ.get("ACTORPROC_POOL", "") == "hosted"
"""All tests that use these fixtures are to run with their workers on a host: at night."""
IN_EVERY_RUN = frozenset(
    {"test_crashes", "test_limits", "test_requests", "test_running", "test_supervision", "test_watching"}
)
"""Modules whose chosen tests do so in every run."""


@pytest.fixture
def on_a_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each manager has the workers of a host, over TLS, in place of its own."""
    pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")
    from tests.hosts.plain_leader import Host, PlainLeader

    made = ProcedureManager._make_pool

    class HostPool(PlainLeader):
        """The pool of a host as that of the machine itself."""

        def __init__(self, local: Any) -> None:
            super().__init__(shown_as=0)
            self._local = local
            self._host: Host | None = None

        def __getattr__(self, name: str) -> Any:
            return getattr(self._local, name)

        def open(self, sink: Callable[[PoolEvent], None]) -> None:
            self._host = Host(self, lambda: self._local)
            super().open(sink)

        def close(self, timeout: float) -> None:
            if self._host is None:
                self.vanish()
                self._local.close(timeout)
            elif not self.closed:
                super().close(timeout)
                self._host.close()

    monkeypatch.setattr(ProcedureManager, "_make_pool", lambda manager, epoch: HostPool(made(manager, epoch)))
