"""Workers of this machine as a host of the manager that leads: the agent, and its way to the leader."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from importlib import metadata

from actorproc.api.home.seen_epoch import seen_epoch
from actorproc.control.link_door import LinkWay
from actorproc.errors import ActorprocError
from actorproc.store.home import Home
from actorproc.workers.base import PoolSettings, WorkerPool
from actorproc.workers.hosts.agent import HostAgent, HostOffer, HostRejected
from actorproc.workers.link.handshake import LinkRole
from actorproc.workers.link.stream import LinkStream

__all__ = ["HostSide"]

logger = logging.getLogger("actorproc")

_CONNECT = 3.0
"""Seconds for one connection to a leader."""
_SAY_EVERY = 60.0
"""Seconds between two log lines with the same reason why no leader was joined."""
_TOLD = ("OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES")
"""Variables of the environment that change what a step finds, and that launchers set."""


class HostSide:
    """Workers of this machine for the manager that leads. Made for one life: `run`, or `start`.

    Args:
        home: The home of the store.
        make_pool: Makes the pool, not open yet, from the leader's settings and epoch.
        workers: Number of workers.
        labels: Labels that it offers.
        resources: Amounts by name that it offers.
        code: Revision of the code, as the user names it; "": none.
        digests: SHA-256 of the files of types, by name of the type.
        stop_timeout: Seconds for running steps when it drains.
    """

    def __init__(
        self,
        home: Home,
        make_pool: Callable[[PoolSettings, int], WorkerPool],
        *,
        workers: int,
        labels: tuple[str, ...] = (),
        resources: Mapping[str, float] | None = None,
        code: str = "",
        digests: Mapping[str, str] | None = None,
        stop_timeout: float = 30.0,
    ) -> None:
        self._way = LinkWay(home, LinkRole.HOST)
        self._seen = seen_epoch(home)
        self._said: tuple[str, float] = ("", 0.0)
        offer = HostOffer(
            name=socket.gethostname(),
            version=metadata.version("actorproc"),
            workers=workers,
            labels=labels,
            resources=dict(resources or {}),
            code=code,
            digests=dict(digests or {}),
            notes={name: value for name in _TOLD if (value := os.environ.get(name)) is not None},
        )
        self.agent = HostAgent(
            offer,
            connect=self._connect,
            seen_epoch=lambda: max(self._seen, self._way.highest),
            make_pool=make_pool,
            stop_timeout=stop_timeout,
        )
        self._thread: threading.Thread | None = None
        self._left = threading.Event()
        self._why = ""
        """Reason for which it serves no more."""

    def run(self) -> None:
        """Serve until it was drained. Blocks.

        Raises:
            HostRejected: A leader does not let this host in, and never will.
        """
        self.agent.run()

    def start(self) -> None:
        """Serve on a thread of its own, until `stop`."""
        self._thread = threading.Thread(target=self._serve, name="actorproc-host", daemon=True)
        self._thread.start()

    def stop(self, *, drain: bool = False) -> None:
        """End a host that was started, and wait for that.

        Args:
            drain: Let running steps end first. Default: False, they run again elsewhere.
        """
        if drain:
            self.agent.drain("the manager of this machine was stopped")
        else:
            self.agent.stop()
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    def _serve(self) -> None:
        try:
            self.agent.run()
            self._why = self.agent.drain_reason or "it was stopped"
        except HostRejected as error:
            logger.error("this machine is no host of the store: %s", error)  # noqa: TRY400 - the reason says it all
            self._why = str(error)
        finally:
            self._left.set()

    def wait_until_left(self, timeout: float | None) -> str | None:
        """Wait until a host that was started serves no more: it was drained, stopped, or refused for good.

        Args:
            timeout: Seconds to wait at most; None: as long as it takes.

        Returns:
            The reason, in words; None: it still serves.
        """
        return self._why if self._left.wait(timeout) else None

    def _connect(self) -> LinkStream:
        try:
            return self._way.connect(_CONNECT)
        except (ActorprocError, OSError) as error:
            self._say(str(error))
            raise ConnectionError(str(error)) from error

    def _say(self, why: str) -> None:
        before, at = self._said
        now = time.monotonic()
        if why != before or now - at >= _SAY_EVERY:
            self._said = why, now
            logger.warning("no leader can be joined yet: %s", why)
