"""Base of all verbs: the running engine, and a clear error when there is none."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any, NoReturn, Protocol

from actorproc.api.queries import Engine
from actorproc.api.registration import Registration
from actorproc.config import Config
from actorproc.engine.end_waiters import AskResult
from actorproc.engine.messages import Described, Ending, EndListener, EndWaiter, Patience
from actorproc.engine.runtime.subscription import Subscription
from actorproc.errors import ActorprocError, ManagerStopped, StoreDamaged, StoreFormat, StoreInUse
from actorproc.model.messages.events import Event
from actorproc.model.reports import CompactionReport
from actorproc.model.rows.asks import AskKey
from actorproc.store.base import ProcedureStore
from actorproc.store.home import Home
from actorproc.support.clock import Clock

__all__ = ["EngineVerbs", "RunningEngine"]


class RunningEngine(Engine, Protocol):
    """Engine as the verbs need it, in this process or in another one."""

    @property
    def failure(self) -> ActorprocError | None:
        """Error that is beyond help; None: there is none."""
        ...

    @property
    def store(self) -> ProcedureStore:
        """Store of the procedures."""
        ...

    @property
    def closed(self) -> bool:
        """True once it takes no more requests."""
        ...

    def request(self, make: Callable[[int], Event]) -> Any:
        """Send an event that names a reply, and wait for the reply."""
        ...

    def ask(
        self, make: Callable[[int], Event], ends: Sequence[EndWaiter] = (), patience: Patience = Patience.CALL
    ) -> Future[Any]:
        """Send an event that names a reply; the future of the reply.

        `ends` are told the ends of what the event submits, in its order; none of them is told if it is refused.
        """
        ...

    def hear_each(self, ends: Sequence[tuple[str, EndListener]]) -> None:
        """Call each of these listeners with the end of its procedure."""
        ...

    def recent_end(self, id: str) -> Ending | None:
        """End of a procedure that came a moment ago and is at hand; None says nothing."""
        ...

    def watch(self, id: str, patience: Patience = Patience.CALL) -> Future[Ending]:
        """A future of the procedure's end; `patience` says what keeps it waiting."""
        ...

    def watch_ask(self, id: str, ask: AskKey, patience: Patience = Patience.CALL) -> Future[AskResult]:
        """A future of what comes of an ask that was sent; `patience` as in `watch`."""
        ...

    def glance(self, id: str) -> Described | None:
        """State of a procedure, answered soon; None when that is not known."""
        ...

    def subscribe(self, subscription: Subscription, since: int | None) -> Callable[[], None]:
        """Tell a subscription what changes; returns the call that ends that."""
        ...

    def compact(self) -> CompactionReport:
        """Compact the store, and wait for it."""
        ...

    def reload(self, timeout: float) -> int:
        """Replace all workers one by one; how many."""
        ...

    def open_gate(self) -> None:
        """Let the steps run after a gated start."""
        ...

    def post(self, errand: Callable[[], object]) -> None:
        """Run a callback on the thread for callbacks."""
        ...


class EngineVerbs:
    """Attributes that all verbs of a manager share. Subclasses add the verbs, `ProcedureManager` start and stop."""

    _engine_stays_here = (
        "belongs to its process and cannot be stored or sent to a worker. Inside a step ctx is the way to the engine: "
        "ctx.query(id) looks, Status.suspended([…]) starts children; a ProcedureClient made there reaches it too. "
        "Connections and clients that steps need come from the manager's environment=, as ctx.env"
    )
    """The words for one that is found in a state, or in what a class refers to."""
    _path: str
    _config: Config
    _home: Home
    _clock: Clock
    _types: Registration
    _tree: RunningEngine | None
    _pid: int

    def __reduce__(self) -> NoReturn:
        msg = f"a {type(self).__name__} {self._engine_stays_here}"
        raise TypeError(msg)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._path!r} {self._life()}>"

    def _life(self) -> str:
        """ "running", "stopped", or the reason why it cannot be used."""
        tree = self._tree
        if tree is None:
            return "not started"
        if os.getpid() != self._pid:
            return f"of process {self._pid}"
        return "stopped" if tree.closed and not self._is_succeeded() else "running"

    def _running(self) -> RunningEngine:
        tree = self._tree
        if tree is None:
            tree = self._opened_late()
        if tree is None:
            msg = "this manager is not started: use `with ProcedureManager(…) as manager:` or call start()"
            raise ManagerStopped(msg)
        self._check_fork()
        if tree.closed:
            successor = self._engine_of_successor()
            if successor is not None:
                return successor
            if isinstance(tree.failure, StoreInUse | StoreFormat | StoreDamaged):
                msg = f"the manager has lost its store and ended: {tree.failure}; start() asks for it again"
                raise ManagerStopped(msg) from tree.failure
            msg = "this manager has been stopped; call start() to use it again"
            raise ManagerStopped(msg)
        return tree

    def _opened_late(self) -> RunningEngine | None:
        """The engine of a manager that an import kept shut for a while; None: there is none."""
        return None

    def _engine_of_successor(self) -> RunningEngine | None:
        """The engine through which a manager goes on that was stopped for another one; None: there is none."""
        return None

    def _is_succeeded(self) -> bool:
        """Another manager runs in its place."""
        return False

    def _check_fork(self) -> None:
        if os.getpid() != self._pid:
            msg = (
                f"this manager belongs to process {self._pid} and cannot be used in its forked child {os.getpid()}: "
                "create and start a manager after the fork, in one process only, and reach it from the others through "
                "a ProcedureClient of its directory"
            )
            raise ManagerStopped(msg)
