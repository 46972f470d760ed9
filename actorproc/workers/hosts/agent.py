"""Agent of a host: runs a pool of workers for the manager that leads, wherever that is.

::

    looking ──leader found, hello, welcome──▶ joined ──connection broke──▶ looking      (its session is resumed)
    joined ──drained, closed out──▶ left

The agent owns its workers over changes of leaders. It tells a new leader what it has in hand, and the leader says what
of that counts. The leader may not hear its agent any more. An agent that does not know better for a part of the
patience kills its busy workers. So they are dead before their steps are handed out elsewhere.
"""

from __future__ import annotations

import logging
import os
import random
import secrets
import sys
import threading
import time
from collections.abc import Callable

import msgspec

from actorproc.support.engine_log import engine_logger
from actorproc.workers.base import PoolSettings, WorkerPool
from actorproc.workers.hosts.codec import encode_message
from actorproc.workers.hosts.handshake import (
    HOST_PROTOCOL,
    LARGEST_HELLO,
    HostHello,
    HostRefused,
    HostWelcome,
    decode_reply,
)
from actorproc.workers.hosts.host_workers import HostWorkers
from actorproc.workers.hosts.memory_guard import MemoryGuard
from actorproc.workers.hosts.messages import (
    CloseOut,
    DrainHost,
    Draining,
    Farewell,
    FromHost,
    Left,
    decode_to_host,
    lane_of,
    may_be_dropped,
    must_arrive,
)
from actorproc.workers.link.resume import LinkFault
from actorproc.workers.link.session import LinkSession, hear_first, say_first
from actorproc.workers.link.stream import LinkStream
from actorproc.workers.os.container_memory import container_memory

__all__ = ["HostAgent", "HostOffer", "HostRejected"]

logger = engine_logger("actorproc.host")

_ANSWER = 5.0
"""Seconds for the leader's answer to the hello."""
_SILENT = 0.3
"""Part of the patience after which a connection without a byte counts as broken."""
_ALONE = 0.6
"""Part of the patience after which an agent kills its busy workers."""
_FIRST_PATIENCE = 10.0
"""Seconds of patience before a leader has said its own."""
_PAUSES = (0.05, 2.0)
"""Seconds of the first pause between two looks for a leader at most, and of the longest."""
_ROUND = 0.1
"""Seconds between two rounds of the guard."""
_STALE = 5.0
"""Seconds without a round of the guard after which the agent counts as stuck."""
_FLUSH = 2.0
"""Seconds for the last message to arrive."""
_GIVE_UP = 5.0
"""Seconds beyond the timeout of a close for workers that were killed."""


class HostRejected(Exception):
    """A leader does not let this host in, and never will: the message says why.

    Args:
        why: The reason.
        kind: Its short name.
    """

    def __init__(self, why: str, kind: str) -> None:
        super().__init__(why)
        self.kind = kind


class HostOffer(msgspec.Struct, frozen=True, kw_only=True):
    """Offer of a host to the manager that leads."""

    name: str
    """Name of the machine, for people."""
    version: str
    workers: int
    labels: tuple[str, ...] = ()
    resources: dict[str, float] = {}
    code: str = ""
    digests: dict[str, str] = {}
    notes: dict[str, str] = {}


class HostAgent:
    """Runs workers for whichever manager leads.

    Args:
        offer: The offer of this host.
        connect: Connects to the manager that leads, as a host; raises `OSError` when that cannot be done now.
        seen_epoch: Highest epoch of a leader that this machine has seen.
        make_pool: Makes the pool, not open yet, from the leader's settings and epoch.
        stop_timeout: Seconds for running steps when the host drains.
    """

    def __init__(
        self,
        offer: HostOffer,
        *,
        connect: Callable[[], LinkStream],
        seen_epoch: Callable[[], int],
        make_pool: Callable[[PoolSettings, int], WorkerPool],
        stop_timeout: float = 30.0,
    ) -> None:
        self.offer = offer
        self.instance = secrets.token_hex(16)
        """Identity of this start of the agent."""
        self.number = 0
        self.name = ""
        """Name that the leader gave to this host; "": none yet."""
        self.epoch = 0
        """Epoch of the leader that it joined last."""
        self._connect = connect
        self._seen_epoch = seen_epoch
        self._stop_timeout = stop_timeout
        self._lock = threading.RLock()
        """Guards all of this, and keeps what is noted and what is sent in one order."""
        self._news = threading.Condition(self._lock)
        container = container_memory()
        self._memory = MemoryGuard(container) if container is not None else None
        self._workers = HostWorkers(make_pool, self._lock, self._tell, self._break_off)
        self._session: LinkSession | None = None
        self._session_id = b""
        self._patience = _FIRST_PATIENCE
        self._heard_until = time.monotonic()
        """Monotonic seconds at which a leader has heard this end for certain, over all sessions before this one."""
        self._is_broken = True
        self._is_over = False
        self._ends_at: float | None = None
        """Monotonic seconds at which a drain is given up."""
        self._drain_reason: str | None = None
        self._has_left = False
        """It has told the leader that it is gone, which may end the connection before it acknowledges that."""
        self._failure: BaseException | None = None
        self._refusal = ""
        """Reason of the last refusal, which is logged once."""
        self._round = time.monotonic()
        """Monotonic seconds of the last round of the guard."""
        self.late_rounds = 0
        """Rounds of the guard that came more than a second late: this machine, or this program, is overloaded."""

    # ------------------------------------------------------------ life
    def run(self) -> None:
        """Serve until the host was drained. Blocks.

        Raises:
            HostRejected: A leader does not let this host in, and never will.
        """
        guard = threading.Thread(target=self._guard, name="actorproc-host-guard", daemon=True)
        guard.start()
        if self._memory is not None:
            self._memory.start()
        try:
            self._serve()
        finally:
            if self._memory is not None:
                self._memory.stop()
            self._finish()
            guard.join()
        if self._failure is not None:
            raise self._failure

    def drain(self, reason: str) -> None:
        """Leave in order: running steps end, no further ones begin. Returns at once; `run` returns when that is done.

        Args:
            reason: The reason, in words.
        """
        with self._lock:
            if self._drain_reason is not None:
                return
            self._drain_reason = reason
            self._ends_at = time.monotonic() + self._stop_timeout + _GIVE_UP
            self._tell(Draining(reason))
            self._news.notify_all()

    def stop(self) -> None:
        """Leave at once: running steps are lost, and run again elsewhere."""
        with self._lock:
            self._drain_reason = self._drain_reason or "stopped"
            self._is_over = True
            self._news.notify_all()

    @property
    def is_joined(self) -> bool:
        """A leader knows this host, and the connection to it has not broken."""
        session = self._session
        return session is not None and session.is_connected

    @property
    def drain_reason(self) -> str | None:
        """Reason for which it leaves or has left; None: it does not."""
        return self._drain_reason

    @property
    def is_alive(self) -> bool:
        """The guard has made a round in the last seconds."""
        return time.monotonic() - self._round < _STALE

    @property
    def busy(self) -> int:
        """Number of workers with a step in hand."""
        with self._lock:
            return len(self._workers.held.busy())

    # ------------------------------------------------------------ the way to the leader
    def _serve(self) -> None:
        pause = 0.0
        while True:
            with self._lock:
                while not self._must_end() and not self._is_broken:
                    self._news.wait(self._until_given_up())
                if self._news.wait_for(self._must_end, random.uniform(0, pause)):  # noqa: S311 - full jitter
                    return
            pause = 0.0 if self._joined() else min(_PAUSES[1], max(_PAUSES[0], 2 * pause))

    def _until_given_up(self) -> float | None:
        return None if self._ends_at is None else max(0.0, self._ends_at - time.monotonic())

    def _must_end(self) -> bool:
        if self._is_over or (self._ends_at is not None and time.monotonic() >= self._ends_at):
            return True
        if self._drain_reason is None or not self._is_broken:
            return False
        if self._has_left:
            return True
        # No leader is there: it ends with the last step, if no answer waits for the leader to come back.
        return not self._workers.held.busy() and not self._owes()

    def _owes(self) -> bool:
        """A leader that comes back is to hear more than that this host is gone."""
        return self._session is not None and any(map(must_arrive, self._session.unacknowledged()))

    def _joined(self) -> bool:
        """Try to join the leader of this moment."""
        try:
            stream = self._connect()
        except OSError as error:
            logger.debug("no leader to join: %s", error)
            return False
        try:
            began, hello = time.monotonic(), self._hello()
            say_first(stream, encode_message(hello))
            reply = decode_reply(hear_first(stream, began + _ANSWER, LARGEST_HELLO))
            if isinstance(reply, HostRefused):
                self._refused(reply)
                return False
            self._welcomed(stream, reply, began)
        except OSError as error:
            logger.warning("the leader did not take this host in: %s", error)
            return False
        else:
            stream = None  # type: ignore[assignment] # the session's
            return True
        finally:
            if stream is not None:
                stream.hang_up()
                stream.close()

    def _hello(self) -> HostHello:
        offer, session = self.offer, self._session
        received = session.detach() if session is not None else 0  # without the lock: it waits for what is being heard
        with self._lock:
            if session is not self._session:
                session = None
            self._workers.begin_hello()
            return HostHello(
                HOST_PROTOCOL,
                offer.version,
                f"{sys.version_info[0]}.{sys.version_info[1]}",
                self.instance,
                offer.name,
                os.getpid(),
                max(self.epoch, self._seen_epoch()),
                offer.workers,
                offer.labels,
                offer.resources,
                offer.code,
                offer.digests,
                offer.notes,
                self._drain_reason is not None,
                self._session_id if session is not None else b"",
                received,
                self.number,
                self._workers.held.listed(),
            )

    def _refused(self, reply: HostRefused) -> None:
        if reply.final or reply.why != self._refusal:
            self._refusal = reply.why
            level = logging.ERROR if reply.final else logging.WARNING
            logger.log(level, "the leader does not take this host in: %s", reply.why)
        with self._lock:
            self._leave_session()  # it knows nothing of it
            if reply.final:
                self._failure, self._is_over = HostRejected(reply.why, reply.kind), True

    def _welcomed(self, stream: LinkStream, welcome: HostWelcome, began: float) -> None:
        with self._lock:
            self._refusal = ""
            self._patience, self.epoch = welcome.patience, max(self.epoch, welcome.epoch)
            self.number, self.name = welcome.number, welcome.name
            session = self._session
            if not welcome.resumed or session is None or welcome.session != self._session_id:
                self._leave_session()
                session = self._new_session(welcome)
                self._workers.take_over(welcome)
            if self._memory is not None:
                self._memory.guard(self._workers.pool)
            try:
                session.attach(stream, welcome.received, began)
            except LinkFault:  # the leader has not what it has acknowledged: only a new session can go on
                self._leave_session()
                raise
            self._is_broken = False
            if self._drain_reason is not None and not welcome.resumed:
                self._tell(Draining(self._drain_reason))
        logger.info(
            "%s the leader of its store, epoch %d, as host %s with %d workers",
            "resumed the link with" if welcome.resumed else "joined",
            welcome.epoch,
            welcome.name,
            self.offer.workers,
        )

    def _new_session(self, welcome: HostWelcome) -> LinkSession:
        holder: list[LinkSession] = []
        session = LinkSession(
            lambda data: self._hear(holder[0], data),
            lambda error: self._broke(holder[0], error),
            silence=max(0.5, _SILENT * welcome.patience),
            name=welcome.name or "leader",
        )
        holder.append(session)
        self._session, self._session_id = session, welcome.session
        return session

    def _leave_session(self) -> None:
        session, self._session, self._session_id = self._session, None, b""
        if session is not None:
            self._heard_until = max(self._heard_until, time.monotonic() - session.unheard_for)
            session.close()

    def _broke(self, session: LinkSession, error: OSError) -> None:
        with self._lock:
            if session is not self._session:
                return
            if not self._has_left:
                logger.warning("the link with the leader broke: %s", error)
            if isinstance(error, LinkFault):
                self._leave_session()
            self._is_broken = True
            self._news.notify_all()

    # ------------------------------------------------------------ what the leader says
    def _hear(self, session: LinkSession, data: bytes) -> None:
        message = decode_to_host(data)
        with self._lock:
            if session is not self._session:
                return
            if isinstance(message, DrainHost):
                self.drain(message.reason or "the leader asked for it")
            elif isinstance(message, Farewell):
                logger.info("the leader leads no more: %s", message.reason or "it has stopped")
                self._break_off()
            elif isinstance(message, CloseOut):
                args = self._workers.pool, message.timeout
                threading.Thread(target=self._close_out, args=args, name="actorproc-host-close", daemon=True).start()
            else:
                self._workers.hear(message)

    def _close_out(self, pool: WorkerPool | None, timeout: float) -> None:
        if pool is not None:
            pool.close(timeout)
        with self._lock:
            self._has_left = self._drain_reason is not None
            self._tell(Left(self._drain_reason or ""))
            session = self._session
        if session is not None:
            session.flush(_FLUSH)
        with self._lock:
            if pool is not None:
                self._workers.forget(pool)
            self._is_over = self._is_over or self._drain_reason is not None
            self._break_off()

    def _break_off(self) -> None:
        """Know this leader no more, and look for the next one."""
        self._leave_session()
        self._is_broken = True
        self._news.notify_all()

    def _tell(self, message: FromHost) -> None:
        session = self._session
        if session is not None:
            session.put(lane_of(message), encode_message(message), may_drop=may_be_dropped(message))

    # ------------------------------------------------------------ the guard
    def _guard(self) -> None:
        """Look at the leader each round. This thread runs no user code, and waits for nothing."""
        before = time.monotonic()
        while True:
            with self._lock:
                if self._news.wait_for(lambda: self._is_over, _ROUND):
                    return
                before = self._look(before)

    def _look(self, before: float) -> float:
        """Kill busy workers when no leader hears this host.

        Args:
            before: Monotonic seconds of the look before.

        Returns:
            Those of this one.
        """
        now = time.monotonic()
        was_frozen = now - before > _ALONE * self._patience
        self.late_rounds += now - before > 1.0 + _ROUND
        self._round = now
        limit = _ALONE * self._patience
        if was_frozen or self._unheard_for(now) > limit:
            count = self._workers.kill_busy(f"no leader had heard its host for {limit:.1f} s")
            if count:
                logger.warning("no leader has heard this host for %.1f s: busy workers killed: %d", limit, count)
        return now

    def _unheard_for(self, now: float) -> float:
        session = self._session
        since = now - self._heard_until
        return since if session is None else min(since, session.unheard_for)

    def _finish(self) -> None:
        with self._lock:
            self._is_over = True
            pool = self._workers.pool
            if pool is not None:
                self._workers.forget(pool)
            self._leave_session()
            self._news.notify_all()
        if pool is not None:
            pool.close(0.0)
