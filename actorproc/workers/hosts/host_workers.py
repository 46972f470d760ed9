"""Workers of a host, as its agent has them: the pool, what it has in hand, and what the leader wants of both."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar

import msgspec

from actorproc.model.crash_report import HOST_LOST, CrashReport
from actorproc.model.ids import WorkerId
from actorproc.support.engine_log import engine_logger
from actorproc.workers.base import (
    HostDrains,
    HostJoined,
    HostLeft,
    PoolEvent,
    PoolFailed,
    PoolSettings,
    WorkerBooted,
    WorkerDied,
    WorkerExceeded,
    WorkerMessages,
    WorkerPool,
)
from actorproc.workers.hosts.handshake import HostWelcome
from actorproc.workers.hosts.held_work import HeldWork
from actorproc.workers.hosts.messages import (
    BootedOnHost,
    Died,
    Exceeded,
    ForgetSpares,
    FromHost,
    HostAnswer,
    HostQuestion,
    KillOnHost,
    Launch,
    Opened,
    PoolLost,
    Said,
    Send,
    StopOnHost,
    ToHost,
    WatchOnHost,
)

__all__ = ["HostWorkers"]

logger = engine_logger("actorproc.host")


class HostWorkers:
    """The pool of a host over changes of leaders. All methods but `close` need the agent's lock.

    Args:
        make_pool: Makes the pool, not open yet, from the leader's settings and epoch.
        lock: The lock of the agent.
        tell: Sends a message to the leader of this moment, if there is one.
        on_failed: Called when the pool failed by a bug.
    """

    def __init__(
        self,
        make_pool: Callable[[PoolSettings, int], WorkerPool],
        lock: AbstractContextManager[Any],
        tell: Callable[[FromHost], None],
        on_failed: Callable[[], None],
    ) -> None:
        self._make_pool = make_pool
        self._lock = lock
        self._tell = tell
        self._on_failed = on_failed
        self._pool: WorkerPool | None = None
        self._settings: PoolSettings | None = None
        self._opened = Opened("none", "none")
        self.held = HeldWork()
        self._launches: dict[WorkerId, Launch] = {}
        """Workers to be started once a former worker of the same id is gone."""
        self._doomed: set[WorkerId] = set()
        """Workers that no leader knows, and that are being killed."""
        self._ending: set[WorkerId] = set()
        """Workers that were killed because no leader heard this host."""
        self._last_ends: dict[WorkerId, Died] = {}
        """Ends of workers since the last hello."""

    @property
    def pool(self) -> WorkerPool | None:
        """The pool; None before a leader was joined."""
        return self._pool

    # ------------------------------------------------------------ taking over
    def begin_hello(self) -> None:
        """The workers are about to be listed for a leader."""
        self._last_ends.clear()
        self.held.begin_list()

    def take_over(self, welcome: HostWelcome) -> None:
        """Begin with a leader that has not had this host, or has given it up.

        Args:
            welcome: Answer of the leader to the list of workers.
        """
        if self._pool is not None and welcome.settings != self._settings:
            for worker in self.held:
                self._last_ends[worker] = _lost(worker, "the settings of the leader are other ones")
            self._abandon(self._pool)
        if self._pool is None:
            self._open(welcome)
        self._tell(self._opened)
        adopted, keep = frozenset(welcome.adopted), frozenset(welcome.keep)
        for worker in self.held:
            if worker not in keep:
                self._doom(worker)
            elif (again := self.held.taken_over(worker, adopted)) is None:
                self._kill(worker, "the leader does not know a step of it")
            elif again:
                self._tell(Said(worker, again))
        for worker in keep:
            if worker not in self.held:
                if said := self.held.last_words(worker, adopted):
                    self._tell(Said(worker, said))
                end = self._last_ends.get(worker) or _lost(worker, "its host has it no more")
                # The leader does not know the spare that has its place: that one is ended.
                self._tell(msgspec.structs.replace(end, successor=None))

    def _doom(self, worker: WorkerId) -> None:
        self._doomed.add(worker)
        self.held.died(worker)
        self._kill(worker, "the leader does not know it")

    def _kill(self, worker: WorkerId, reason: str) -> None:
        if self._pool is not None:
            self._pool.kill(worker, reason=reason, kind=HOST_LOST, ask=False)

    def _open(self, welcome: HostWelcome) -> None:
        pool = self._make_pool(welcome.settings, welcome.epoch)
        self._pool, self._settings = pool, welcome.settings
        pool.open(lambda event: self._on_event(pool, event))

    def _abandon(self, pool: WorkerPool) -> None:
        """Give up a pool; what it says from now on is not heard."""
        self.forget(pool)
        threading.Thread(target=pool.close, args=(0.0,), name="actorproc-host-close", daemon=True).start()

    def forget(self, pool: WorkerPool) -> None:
        """Know nothing any more of this pool, which is closed, or about to be.

        Args:
            pool: The pool.
        """
        if self._pool is pool:
            self._pool, self.held = None, HeldWork()
            self._launches.clear()
            self._doomed.clear()
            self._ending.clear()

    def kill_busy(self, reason: str) -> int:
        """Kill the workers that have a step in hand.

        Args:
            reason: The reason, in words.

        Returns:
            Number of workers that were killed by this call.
        """
        busy = [worker for worker in self.held.busy() if worker not in self._ending]
        for worker in busy:
            self._ending.add(worker)
            self._kill(worker, reason)
        return len(busy)

    # ------------------------------------------------------------ what the leader says
    def hear(self, message: ToHost) -> None:
        """Do what the leader wants of a worker, or of all.

        Args:
            message: One of the messages that concern workers.
        """
        if self._pool is not None:
            self._routes[type(message)](self, message, self._pool)

    def _launch(self, message: Launch, pool: WorkerPool) -> None:
        if message.worker in self._doomed:
            self._launches[message.worker] = message
            return
        self.held.launched(message.worker)
        pool.launch(message.worker, replace=message.replace)

    def _send(self, message: Send, pool: WorkerPool) -> None:
        self.held.given(message.worker, message.messages)
        pool.send(message.worker, message.messages)

    def _stop(self, message: StopOnHost, pool: WorkerPool) -> None:
        pool.stop(message.worker)

    def _kill_for(self, message: KillOnHost, pool: WorkerPool) -> None:
        pool.kill(
            message.worker,
            grace=message.grace,
            blamed=message.blamed,
            reason=message.reason,
            kind=message.kind,
            ask=message.ask,
        )

    def _watch(self, message: WatchOnHost, pool: WorkerPool) -> None:
        pool.watch(message.worker, message.token, message.limits)

    def _forget_spares(self, _message: ForgetSpares, pool: WorkerPool) -> None:
        pool.forget_spares()

    def _question(self, message: HostQuestion, pool: WorkerPool) -> None:
        if message.token is not None and not self.held.has(message.token):
            self._tell(HostAnswer(message.number))  # it does not run any more
            return
        args = message, pool
        threading.Thread(target=self._answer, args=args, name="actorproc-host-answer", daemon=True).start()

    def _answer(self, message: HostQuestion, pool: WorkerPool) -> None:
        answer = HostAnswer(message.number)
        if message.kind == "stack" and message.token is not None:
            answer = HostAnswer(message.number, stack=pool.stack(message.token, message.timeout))
        elif message.kind == "facts":
            answer = HostAnswer(message.number, facts=list(pool.facts().items()))
        elif message.kind == "logs":
            answer = HostAnswer(message.number, logs=pool.logs(message.procedure))
        with self._lock:
            self._tell(answer)

    _routes: ClassVar[dict[type, Callable[[Any, Any, Any], None]]] = {
        Launch: _launch,
        Send: _send,
        StopOnHost: _stop,
        KillOnHost: _kill_for,
        WatchOnHost: _watch,
        ForgetSpares: _forget_spares,
        HostQuestion: _question,
    }

    # ------------------------------------------------------------ what the pool says
    def _on_event(self, pool: WorkerPool, event: PoolEvent) -> None:
        with self._lock:
            if pool is self._pool:
                self._heard(pool, event)

    def _heard(self, pool: WorkerPool, event: PoolEvent) -> None:
        if isinstance(event, HostJoined):
            self._opened = Opened(event.limits, event.process_limits)
        elif isinstance(event, PoolFailed):
            self._tell(PoolLost(f"{type(event.error).__name__}: {event.error}"))
            self._abandon(pool)
            self._on_failed()
        elif isinstance(event, HostDrains | HostLeft):
            pass  # a pool of one machine says this of none
        elif event.worker in self._doomed:
            if isinstance(event, WorkerDied):
                self._doomed_died(pool, event)
        elif isinstance(event, WorkerMessages):
            self.held.heard(event.worker, event.messages, time.monotonic())
            self._tell(Said(event.worker, event.messages))
        elif isinstance(event, WorkerBooted):
            self.held.booted(event.worker, event.pid)
            self._tell(BootedOnHost(event.worker, event.pid))
        elif isinstance(event, WorkerExceeded):
            self._tell(Exceeded(event.worker, event.token, event.kind, event.why))
        else:
            self._died(event)

    def _doomed_died(self, pool: WorkerPool, event: WorkerDied) -> None:
        self._doomed.discard(event.worker)
        if event.successor is not None:
            self._doom(event.successor)
        launch = self._launches.pop(event.worker, None)
        if launch is not None:
            self._launch(launch, pool)

    def _died(self, event: WorkerDied) -> None:
        self.held.died(event.worker)
        self._ending.discard(event.worker)
        if event.successor is not None:
            self.held.launched(event.successor)
        end = Died(event.worker, event.report, event.booted, event.successor)
        self._last_ends[event.worker] = end
        self._tell(end)


def _lost(worker: WorkerId, message: str) -> Died:
    return Died(worker, CrashReport(kind=HOST_LOST, message=message), True)
