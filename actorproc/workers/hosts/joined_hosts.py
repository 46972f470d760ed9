"""Hosts that have joined the manager that leads: what they say, and their end.

A host is lost when nothing was heard of it for `patience` seconds. Its agent has killed its busy workers before, as it
knows for how long it was not heard. The deaths of its workers are told then, after all that they have said.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from actorproc.model.crash_report import HOST_LOST, CrashReport
from actorproc.support.engine_log import engine_logger
from actorproc.workers.base import (
    HostDrains,
    HostJoined,
    HostLeft,
    PoolEvent,
    WorkerBooted,
    WorkerDied,
    WorkerExceeded,
    WorkerMessages,
)
from actorproc.workers.hosts.messages import (
    BootedOnHost,
    CloseOut,
    Died,
    DrainHost,
    Draining,
    Exceeded,
    Farewell,
    FromHost,
    HostAnswer,
    Left,
    Opened,
    PoolLost,
    Said,
    decode_from_host,
)
from actorproc.workers.hosts.remote_host import RemoteHost
from actorproc.workers.link.resume import LinkFault
from actorproc.workers.protocol.frames import Ended

__all__ = ["JoinedHosts"]

logger = engine_logger("actorproc.host")

_LOOK = 0.1
"""Seconds between two looks at the silence of hosts."""
_LOOK_AGAIN = 0.2
"""Part of the patience after which a host of a manager that may not lead looks again who does."""
_FAREWELL = 0.5
"""Seconds for the last message to the hosts."""


class JoinedHosts:
    """Hosts that have joined the manager that leads: heard, and lost.

    Args:
        patience: Seconds of silence after which a host is lost.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self.is_fit: Callable[[], bool] = lambda: True
        """Says whether this manager may still lead. While it may not, its hosts are made to look who does."""
        self._hung_up = 0.0
        """Monotonic seconds at which their connections were broken for that."""
        self._hosts: dict[int, RemoteHost] = {}
        self._lock = threading.RLock()
        """Guards the table of hosts. Events of one host are told under a lock of its own."""
        self._sink: Callable[[PoolEvent], None] = lambda _: None
        self._closed = threading.Event()
        self._guard: threading.Thread | None = None

    @property
    def hosts(self) -> tuple[RemoteHost, ...]:
        """The hosts that have joined, by number."""
        known = sorted(tuple(self._hosts.items()), key=lambda item: item[0])  # noqa: C414 - others change it
        return tuple(host for _, host in known if not host.is_arriving)

    def drain(self, name: str, reason: str) -> bool:
        """Have a host leave in order; False when there is none of this name."""
        for host in self.hosts:
            if name in {host.name, host.hello.name, str(host.number)}:
                host.send(DrainHost(reason))
                return True
        return False

    def _arrived(self, host: RemoteHost) -> bool:
        """A host is known from now on; False when the pool has been closed."""
        with self._lock:
            if self._closed.is_set():
                self._hosts.pop(host.number, None)
                host.session.close()
                return False
            host.arrived_at = time.monotonic()
            host.is_arriving = False
            if self._guard is None:
                self._guard = threading.Thread(target=self._watch_hosts, name="actorproc-hosts", daemon=True)
                self._guard.start()
            return True

    # ------------------------------------------------------------ what hosts say
    def _hear(self, host: RemoteHost, data: bytes) -> None:
        message = decode_from_host(data)
        with host.lock:
            if not host.gone:
                self._take(host, message)

    def _take(self, host: RemoteHost, message: FromHost) -> None:
        if isinstance(message, Said):
            self._check(host, message)
            self._sink(WorkerMessages(message.worker, message.messages))
        elif isinstance(message, BootedOnHost):
            if message.worker in host.workers:
                host.workers[message.worker] = message.pid
                self._sink(WorkerBooted(message.worker, message.pid))
        elif isinstance(message, Died):
            self._died(host, message)
        elif isinstance(message, Exceeded):
            if message.worker in host.workers:
                self._sink(WorkerExceeded(message.worker, message.token, message.kind, message.why))
        elif isinstance(message, HostAnswer):
            host.answered(message)
        elif isinstance(message, Opened):
            self._opened(host, message)
        elif isinstance(message, Draining):
            self._drains(host, message.reason)
        elif isinstance(message, Left):
            self._lose(host, f"host {host.name} ({host.hello.name}) has left", is_lost=False)
        elif isinstance(message, PoolLost):
            self._lose(host, f"the pool of host {host.name} ({host.hello.name}) failed: {message.why}")

    @staticmethod
    def _check(host: RemoteHost, said: Said) -> None:
        """Refuse messages about steps of other workers, and files: they would be of another machine."""
        if said.worker not in host.workers:
            said.messages.clear()  # of one that was lost
            return
        for message in said.messages:
            token = getattr(message, "token", None)
            if token is not None and token.worker != said.worker:
                msg = f"host {host.name} spoke of a step of {token.procedure!r:.140} that another worker has"
                raise LinkFault(msg)
            if type(message) is Ended and message.file:
                raise LinkFault(f"host {host.name} named a file of its own")

    def _died(self, host: RemoteHost, message: Died) -> None:
        if message.worker not in host.workers:
            return
        del host.workers[message.worker]
        if message.successor is not None:
            host.workers[message.successor] = None
        self._sink(WorkerDied(message.worker, message.report, message.booted, message.successor))
        self._close_out(host)

    def _opened(self, host: RemoteHost, message: Opened) -> None:
        host.limits, host.process_limits, host.is_open = message.limits, message.process_limits, True
        hello = host.hello
        logger.info("host %s (%s at %s) has joined with %d workers", host.name, hello.name, host.address, hello.workers)
        opened = HostJoined(
            host.number,
            message.limits,
            message.process_limits,
            host.name,
            0 if hello.draining else hello.workers,
            hello.labels,
            hello.resources,
            host.living,
            hello.name,
            hello.code,
            hello.digests,
        )
        self._sink(opened)

    def _drains(self, host: RemoteHost, reason: str) -> None:
        if host.draining is None:
            host.draining = reason
            logger.info("host %s (%s) leaves: %s", host.name, host.hello.name, reason)
            if host.is_open:
                self._sink(HostDrains(host.number, reason))
            self._close_out(host)

    @staticmethod
    def _close_out(host: RemoteHost) -> None:
        """Tell a host that leaves to end when no worker is left there."""
        if host.draining is not None and not host.workers and not host.is_closing_out:
            host.is_closing_out = True
            host.send(CloseOut(5.0))

    # ------------------------------------------------------------ hosts go
    def _broke(self, host: RemoteHost, error: OSError) -> None:
        if isinstance(error, LinkFault):
            self._lose(host, f"host {host.name} ({host.hello.name}) broke the rules of the link: {error}")
        elif not host.gone:
            logger.warning("the link with host %s (%s) broke: %s", host.name, host.hello.name, error)

    def _watch_hosts(self) -> None:
        while not self._closed.wait(_LOOK):
            self._look(time.monotonic())

    def _look(self, now: float) -> None:
        """Lose the hosts of which nothing is heard, or that take nothing of what is sent to them."""
        if now - self._hung_up > _LOOK_AGAIN * self._patience and not self.is_fit():
            self._hung_up = now
            for host in self.hosts:
                host.session.hang_up()
        for host in self.hosts:
            if min(host.session.silent_for, now - host.arrived_at) > self._patience:
                self._lose(host, f"host {host.name} ({host.hello.name}) was silent for {self._patience:g} s")
                continue
            if not host.session.is_full:
                host.full_since = None
            elif host.full_since is None:
                host.full_since = now
            elif now - host.full_since > self._patience:
                waiting = host.session.outstanding / 1e6
                why = f"host {host.name} ({host.hello.name}) takes too little: {waiting:.0f} MB wait for it"
                self._lose(host, why)

    def _lose(self, host: RemoteHost, why: str, *, is_lost: bool = True) -> None:
        """A host is gone, and its workers with it. Nothing of it is heard after this."""
        with host.lock:  # what is being heard is told first
            if host.gone or host.is_arriving:
                return
            host.gone = True
            with self._lock:
                self._hosts.pop(host.number, None)
            if is_lost:
                logger.warning("%s; its steps run again elsewhere", why)
            if host.is_open:
                self._sink(HostLeft(host.number, why, is_lost))
            report = CrashReport(kind=HOST_LOST if is_lost else "stopped", message=why)
            for worker, pid in host.workers.items():
                self._sink(WorkerDied(worker, report, booted=pid is not None))
            host.workers = {}
        host.fail_questions()
        host.session.close()

    def say_farewell(self) -> None:
        """Let no more hosts in, and tell those that have joined: they keep their workers for the next leader."""
        self._closed.set()
        for host in self.hosts:
            host.send(Farewell("the manager has stopped"))

    def end_sessions(self) -> None:
        """End the sessions with all hosts, when the last messages have arrived or had their time."""
        hosts = self.hosts
        until = time.monotonic() + _FAREWELL
        while time.monotonic() < until and any(one.session.outstanding and one.session.is_connected for one in hosts):
            time.sleep(0.005)
        for host in hosts:
            host.gone = True
            host.session.close()
            host.fail_questions()
        with self._lock:
            self._hosts.clear()
