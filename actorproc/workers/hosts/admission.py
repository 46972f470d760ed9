"""Admission of hosts: which may join the manager that leads, under which number, and what counts of their work."""

from __future__ import annotations

import itertools
import secrets
import sys
import time
from collections.abc import Callable, Container
from functools import partial

from actorproc.model.crash_report import HOST_LOST, CrashReport
from actorproc.model.ids import HeldSteps, StepToken, WorkerId
from actorproc.model.slots import MOST_WORKERS, host_of
from actorproc.support.engine_log import engine_logger
from actorproc.workers import fork_guard
from actorproc.workers.base import PoolSettings, WorkerDied
from actorproc.workers.hosts.codec import encode_message
from actorproc.workers.hosts.handshake import (
    HOST_PROTOCOL,
    LARGEST_HELLO,
    HostHello,
    HostRefused,
    HostWelcome,
    decode_hello,
)
from actorproc.workers.hosts.joined_hosts import JoinedHosts
from actorproc.workers.hosts.remote_host import RemoteHost
from actorproc.workers.link.resume import LinkFault
from actorproc.workers.link.session import LinkSession, hear_first, say_first
from actorproc.workers.link.stream import LinkStream

__all__ = ["HostAdmission"]

logger = engine_logger("actorproc.host")

_STOPPING = HostRefused("this manager is stopping", "stopping")
_HELLO = 5.0
"""Seconds for the first message of a host."""

Claims = Callable[[int, int, tuple[HeldSteps, ...]], tuple[tuple[WorkerId, ...], tuple[StepToken, ...]]]
"""Says which of the workers that a host holds live on, and which of the steps in their hands count."""


def _nothing_counts(
    _host: int, _slots: int, _held: tuple[HeldSteps, ...]
) -> tuple[tuple[WorkerId, ...], tuple[StepToken, ...]]:
    return (), ()


class HostAdmission(JoinedHosts):
    """Hosts of the manager that leads, and their way in.

    Args:
        epoch: Epoch of the manager.
        settings: Settings of the manager for all workers.
        patience: Seconds of silence after which a host is lost.
        own_number: Number that this machine had as a host of an earlier leader; it is given to no other. Default: 0.
    """

    def __init__(self, *, epoch: int, settings: PoolSettings, patience: float, own_number: int = 0) -> None:
        super().__init__(patience)
        self._epoch = epoch
        self._settings = settings
        self.claims: Claims = _nothing_counts
        """Asked on the thread that lets a host in, which may wait."""
        self.newer: Callable[[int], object] = lambda _: None
        """Called with the epoch that a host has seen."""
        self.own_number = own_number
        self._numbers = {own_number}
        """Numbers that were given."""
        self._absent: set[int] = set()
        """Numbers of hosts of an earlier leader, which are given again to these alone."""
        self.resumes = 0
        """Links that went on over a new connection."""

    def expect(self, number: int) -> None:
        """A host of an earlier leader may come that has this number."""
        with self._lock:
            self._absent.add(number)
            self._numbers.add(number)

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
            refusal = _STOPPING if self._closed.is_set() else _refusal_of(hello, self._epoch)
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
        # Before the claim: another one may have the slot of a worker that is gone.
        self._tell_gone(host, {worker for worker, *_ in held})
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
        self._tell_gone(host, host.workers)
        say_first(stream, encode_message(self._welcome(host, keep=keep, adopted=adopted)))
        host.session.attach(stream, 0)
        return True

    def _tell_gone(self, host: RemoteHost, there: Container[WorkerId]) -> None:
        """Tell the deaths of workers that the manager may have taken over, and that the host has no more."""
        before, host.before = host.before, tuple(worker for worker in host.before if worker in there)
        for worker in before:
            if worker not in there:
                host.workers.pop(worker, None)
                report = CrashReport(kind=HOST_LOST, message="its host has it no more")
                self._sink(WorkerDied(worker, report, booted=True))

    def _arrive(self, hello: HostHello, address: str, known: RemoteHost | None) -> RemoteHost:
        """Note a host that is being let in: what is sent to its workers from now on waits for its connection.

        The manager hands out steps to the workers that it takes over as soon as it has done so.
        """
        host = known if known is not None and self._comes_again(known) else self._new(hello, address)
        host.hello, host.address = hello, address
        # Workers of another number are of an earlier leader, and here those of another host may bear their names.
        own = (one for one in hello.held if one.booted and host_of(one.worker.slot) == host.number)
        host.workers |= {one.worker: one.pid for one in own}
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


def _twice(hello: HostHello) -> ConnectionAbortedError:
    return ConnectionAbortedError(f"{hello.name} is being let in over another connection")


def _refusal_of(hello: HostHello, epoch: int) -> HostRefused | None:
    """The refusal of a host that does not fit; None: it may join. Other code is none: such a host waits.

    Args:
        hello: Its first message.
        epoch: Epoch of the manager.
    """
    python = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if hello.protocol != HOST_PROTOCOL:
        why = (
            f"it speaks version {hello.protocol} of the protocol of hosts (actorproc {hello.version}), and the "
            f"manager version {HOST_PROTOCOL}; use the same version of actorproc on both"
        )
        return HostRefused(why, "protocol", final=True)
    if hello.python != python:
        why = f"it runs Python {hello.python}, and the manager Python {python}; use the same version on both"
        return HostRefused(why, "python", final=True)
    if hello.epoch > epoch:
        return HostRefused(f"it has seen epoch {hello.epoch}, and this manager leads with {epoch}", "epoch")
    if not 0 <= hello.workers <= MOST_WORKERS:
        why = f"it offers {hello.workers} workers; 0 to {MOST_WORKERS} are allowed"
        return HostRefused(why, "workers", final=True)
    return None
