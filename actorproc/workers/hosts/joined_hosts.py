"""Hosts that have joined the manager that leads: their way in, what they say, and their end.

A host is lost when nothing was heard of it for `patience` seconds. Its agent has killed its busy workers before, as it
knows for how long it was not heard. The deaths of its workers are told then, after all that they have said.
"""

from __future__ import annotations

import itertools
import secrets
import threading
import time
from collections.abc import Callable
from functools import partial

from actorproc.link.resume import LinkFault
from actorproc.link.session import LinkSession, hear_first, say_first
from actorproc.link.stream import LinkStream
from actorproc.model.crash_report import HOST_LOST, CrashReport
from actorproc.model.ids import HeldSteps, StepToken, WorkerId
from actorproc.support.engine_log import engine_logger
from actorproc.workers import fork_guard
from actorproc.workers.base import (
    HostDrains,
    HostJoined,
    HostLeft,
    PoolEvent,
    PoolSettings,
    WorkerBooted,
    WorkerDied,
    WorkerExceeded,
    WorkerMessages,
)
from actorproc.workers.hosts.admission import refusal_of
from actorproc.workers.hosts.codec import encode_message
from actorproc.workers.hosts.handshake import (
    LARGEST_HELLO,
    HostHello,
    HostRefused,
    HostWelcome,
    decode_hello,
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
from actorproc.workers.protocol.frames import Ended

__all__ = ["Claims", "JoinedHosts"]

logger = engine_logger("actorproc.host")

_STOPPING = HostRefused("this manager is stopping", "stopping")
_HELLO = 5.0
"""Seconds for the first message of a host."""
_LOOK = 0.1
"""Seconds between two looks at the silence of hosts."""
_LOOK_AGAIN = 0.2
"""Part of the patience after which a host of a manager that may not lead looks again who does."""
_FAREWELL = 0.5
"""Seconds for the last message to the hosts."""

Claims = Callable[[int, int, tuple[HeldSteps, ...]], tuple[tuple[WorkerId, ...], tuple[StepToken, ...]]]
"""Says which of the workers that a host holds live on, and which of the steps in their hands count."""


def _nothing_counts(
    _host: int, _slots: int, _held: tuple[HeldSteps, ...]
) -> tuple[tuple[WorkerId, ...], tuple[StepToken, ...]]:
    return (), ()


def _twice(hello: HostHello) -> ConnectionAbortedError:
    return ConnectionAbortedError(f"{hello.name} is being let in over another connection")


class JoinedHosts:
    """Hosts that have joined the manager that leads: let in, heard, and lost.

    Args:
        epoch: Epoch of the manager.
        settings: Settings of the manager for all workers.
        patience: Seconds of silence after which a host is lost.
        own_number: Number that this machine had as a host of an earlier leader; it is given to no other. Default: 0.
    """

    def __init__(self, *, epoch: int, settings: PoolSettings, patience: float, own_number: int = 0) -> None:
        self._epoch = epoch
        self._settings = settings
        self._patience = patience
        self.claims: Claims = _nothing_counts
        """Asked on the thread that lets a host in, which may wait."""
        self.newer: Callable[[int], object] = lambda _: None
        """Called with the epoch that a host has seen."""
        self.is_fit: Callable[[], bool] = lambda: True
        """Says whether this manager may still lead. While it may not, its hosts are made to look who does."""
        self._hung_up = 0.0
        """Monotonic seconds at which their connections were broken for that."""
        self._hosts: dict[int, RemoteHost] = {}
        self.own_number = own_number
        self._numbers = {own_number}
        """Numbers that were given."""
        self._absent: set[int] = set()
        """Numbers of hosts of an earlier leader, which are given again to these alone."""
        self._lock = threading.RLock()
        """Guards the table of hosts. Events of one host are told under a lock of its own."""
        self._sink: Callable[[PoolEvent], None] = lambda _: None
        self._closed = threading.Event()
        self._guard: threading.Thread | None = None
        self.resumes = 0
        """Links that went on over a new connection."""

    # ------------------------------------------------------------ hosts come
    @property
    def hosts(self) -> tuple[RemoteHost, ...]:
        """The hosts that have joined, by number."""
        known = sorted(tuple(self._hosts.items()), key=lambda item: item[0])  # noqa: C414 - others change it
        return tuple(host for _, host in known if not host.is_arriving)

    def expect(self, number: int) -> None:
        """A host of an earlier leader may come that has this number."""
        with self._lock:
            self._absent.add(number)
            self._numbers.add(number)

    def drain(self, name: str, reason: str) -> bool:
        """Have a host leave in order; False when there is none of this name."""
        for host in self.hosts:
            if name in {host.name, host.hello.name, str(host.number)}:
                host.send(DrainHost(reason))
                return True
        return False

    def come(self, stream: LinkStream, address: str) -> None:
        """Let a host in that has proved that it knows the secret, or refuse it. Waits for its first message.

        Args:
            stream: The connection; from now on the pool's.
            address: The address that it came from.
        """
        is_kept = False
        try:
            until = time.monotonic() + _HELLO
            hello = decode_hello(hear_first(stream, until, LARGEST_HELLO))
            if hello.epoch > self._epoch:
                self.newer(hello.epoch)
            refusal = _STOPPING if self._closed.is_set() else refusal_of(hello, self._epoch)
            if refusal is None:
                known = self._known(hello)
                is_kept = self._resume(stream, hello, known) or self._begin(stream, hello, address, known)
            else:
                logger.warning("host %s at %s is not let in: %s", hello.name, address, refusal.why)
                say_first(stream, encode_message(refusal))
        except OSError as error:
            logger.warning("a host at %s could not join: %s", address, error)
        finally:
            if not is_kept:
                stream.hang_up()
                stream.close()

    def _known(self, hello: HostHello) -> RemoteHost | None:
        """The host as which this start of an agent is known, if it is."""
        with self._lock:
            return next((one for one in self._hosts.values() if one.hello.instance == hello.instance), None)

    def _resume(self, stream: LinkStream, hello: HostHello, host: RemoteHost | None) -> bool:
        """Go on with the session of a host that lost its connection; False when it has not this session."""
        if host is None or hello.session != host.session_id:
            return False
        received = host.session.detach()
        welcome = self._welcome(host, resumed=True, received=received)
        say_first(stream, encode_message(welcome))
        try:
            host.session.attach(stream, hello.received)
        except LinkFault as error:
            self._lose(host, f"the link with host {host.name} cannot go on: {error}")
            raise
        self.resumes += 1
        logger.info("host %s (%s) resumed its link", host.name, host.hello.name)
        return True

    def _begin(self, stream: LinkStream, hello: HostHello, address: str, known: RemoteHost | None) -> bool:
        """Begin a session with a host, once the manager has said what counts of that which it has in hand."""
        if not self.is_fit():
            say_first(stream, encode_message(HostRefused("the manager has not renewed its lease", "busy")))
            return False
        host = self._arrive(hello, address, known)
        held = tuple((one.worker, one.pid, one.running, one.answered) for one in hello.held if one.booted)
        try:
            keep, adopted = self.claims(host.number, hello.workers, held)
        except Exception as error:  # noqa: BLE001 - the store is away, or the manager is stopping
            # The manager may have heard it all the same. So the workers are dead for it when the host does not come
            # again in time.
            self._arrived(host)
            say_first(stream, encode_message(HostRefused(f"the manager cannot take it now: {error}", "busy")))
            return False
        host.workers = {worker: pid for worker, pid, _, _ in held if worker in keep}
        counting = set(adopted)
        host.living = tuple(
            (worker, pid, tuple(token for token in (*answered, *running) if token in counting))
            for worker, pid, running, answered in held
            if worker in keep
        )
        # It is known from here on: should the connection break now, it is lost after its time, with what it keeps.
        if not self._arrived(host):
            return False
        for worker in host.before:
            if worker not in host.workers:
                report = CrashReport(kind=HOST_LOST, message="its host has it no more")
                self._sink(WorkerDied(worker, report, booted=True))
        say_first(stream, encode_message(self._welcome(host, keep=keep, adopted=adopted)))
        host.session.attach(stream, 0)
        return True

    def _arrive(self, hello: HostHello, address: str, known: RemoteHost | None) -> RemoteHost:
        """Note a host that is being let in: what is sent to its workers from now on waits for its connection.

        The manager hands out steps to the workers that it takes over as soon as it has done so.
        """
        host = known if known is not None and self._comes_again(known) else self._new(hello, address)
        host.hello, host.address = hello, address
        host.workers |= {one.worker: one.pid for one in hello.held if one.booted}
        return host

    def _comes_again(self, host: RemoteHost) -> bool:
        """Let a host try once more that was not heard since it was let in, with what waits for it; else it is lost.

        Raises:
            ConnectionAbortedError: It is being let in over another connection.
        """
        host.session.detach()
        with host.lock:
            if host.is_arriving:
                raise _twice(host.hello)
            # Of what was sent to one that was heard, it may have taken any part.
            if not host.gone and not host.session.received_bytes:
                host.is_arriving = True
                host.before = tuple(host.workers)
                return True
        self._lose(host, f"host {host.name} ({host.hello.name}) began anew")
        return False

    def _new(self, hello: HostHello, address: str) -> RemoteHost:
        with self._lock:
            if self._known(hello) is not None:
                raise _twice(hello)
            number = self._number(hello.number)
            host = RemoteHost(number, f"h{number}", address, hello, secrets.token_bytes(16))
            host.session = LinkSession(
                partial(self._hear, host),
                partial(self._broke, host),
                silence=max(0.5, 0.3 * self._patience),
                name=host.name,
            )
            fork_guard.guarded(host.session)
            self._hosts[number] = host
            return host

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

    def _number(self, wanted: int) -> int:
        with self._lock:
            if wanted in self._absent:
                self._absent.discard(wanted)
            elif wanted <= 0 or wanted in self._numbers:
                wanted = next(number for number in itertools.count(1) if number not in self._numbers)
            self._numbers.add(wanted)
            return wanted

    def _welcome(
        self,
        host: RemoteHost,
        *,
        resumed: bool = False,
        received: int = 0,
        keep: tuple[WorkerId, ...] = (),
        adopted: tuple[StepToken, ...] = (),
    ) -> HostWelcome:
        return HostWelcome(
            host.session_id,
            resumed,
            received,
            host.number,
            host.name,
            self._epoch,
            self._patience,
            self._settings,
            keep,
            adopted,
        )

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
        """Lose the hosts of which nothing is heard, or that take nothing of what is sent to them."""
        while not self._closed.wait(_LOOK):
            now = time.monotonic()
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
