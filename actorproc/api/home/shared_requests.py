"""Requests of a manager on a shared store: to the engine here while it leads, else through the leader's door."""

from __future__ import annotations

import contextlib
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import msgspec

from actorproc.config import Config
from actorproc.control.engine import RemoteEngine
from actorproc.control.methods import REPEATABLE, with_dedup
from actorproc.core.locks.request import LockWaiter
from actorproc.engine.end_waiters import AskResult, fail_future, pass_on
from actorproc.engine.messages import (
    Described,
    Ending,
    EndListener,
    EndWaiter,
    LeaderCounters,
    ManagerMetrics,
    ManagerStatus,
    Patience,
    SlotStatus,
)
from actorproc.engine.runtime.subscription import Subscription
from actorproc.errors import ActorprocError, ManagerStopped, OutcomeUnknown
from actorproc.model.messages.definitions import Definition
from actorproc.model.messages.events import Event, PauseRequested, Resized, ResumeRequested
from actorproc.model.reports import CompactionReport
from actorproc.model.rows.asks import AskKey
from actorproc.model.rows.records import LockRecord, ProcedureRecord
from actorproc.store.base import ProcedureStore
from actorproc.workers.base import HostJoined

if TYPE_CHECKING:
    from actorproc.engine.engine import EngineTree

__all__ = ["SharedRequests"]


class SharedRequests(ABC):
    """The engine's face for callers, whichever engine answers; `SharedEngine` sees to the lead.

    Args:
        remote: The way to the manager that leads.
        config: The settings of the manager.
    """

    def __init__(self, remote: RemoteEngine, config: Config) -> None:
        self._remote = remote
        self._config = config
        self._local: EngineTree | None = None
        """The engine here, while this manager leads."""
        self._ending = threading.Event()
        self.sends_modules = False
        """A leader elsewhere is sent all types: it may be a program that knows none of them itself."""
        self.held: str | None = None
        """Reason of a pause that was asked for here while another manager led; None: there is none."""

    def _leading(self) -> EngineTree | None:
        """The engine here, while it leads."""
        local = self._local
        return local if local is not None and not local.closed else None

    @property
    def leads(self) -> bool:
        """This manager leads at the moment."""
        return self._leading() is not None

    def _asked(self, name: str, *arguments: Any) -> Any:
        """Call a method of the engine that leads; once more when that one changes meanwhile."""
        local = self._leading()
        if local is not None:
            try:
                return getattr(local, name)(*arguments)
            except ManagerStopped:
                if self._ending.is_set():
                    raise
        return getattr(self._remote, name)(*arguments)

    # ------------------------------------------------------------ requests
    @property
    def store(self) -> ProcedureStore:
        """The store, for reading."""
        local = self._leading()
        return local.store if local is not None else self._remote.store

    @property
    def host(self) -> HostJoined:
        """The machine of the manager that leads."""
        local = self._leading()
        return local.host if local is not None else self._remote.host

    @property
    def pool(self) -> Any:
        """The workers of the manager that leads."""
        local = self._leading()
        return local.pool if local is not None else self._remote.pool

    def request(self, make: Callable[[int], Event]) -> Any:
        """Send an event that names a reply, and wait for the reply."""
        return self.ask(make).result()

    def ask(
        self, make: Callable[[int], Event], ends: Sequence[EndWaiter] = (), patience: Patience = Patience.CALL
    ) -> Future[Any]:
        """Send an event that names a reply; the future of the reply. See `RunningEngine.ask`."""
        event = make(0)
        if not self.leads and self._concerns_this_manager(event):
            done: Future[Any] = Future()
            done.set_result(self._hold(event))
            return done
        if (named := with_dedup(event)) is not event:
            make = partial(_with_reply, named)
        local = self._leading()
        if local is not None:
            with contextlib.suppress(ManagerStopped):
                reply: Future[Any] = Future()
                local.ask(make, ends, patience).add_done_callback(partial(self._answered, reply, make, ends, patience))
                return reply
        self._refuse_when_ended()
        return self._remote.ask(make, ends, patience)

    @staticmethod
    def _concerns_this_manager(event: Event) -> bool:
        """The event is for the manager that is called, also where it does not lead."""
        return isinstance(event, Resized) or (isinstance(event, PauseRequested | ResumeRequested) and event.id is None)

    def _hold(self, event: Event) -> bool | None:
        """Keep it for the time when this manager leads; its workers serve the leader in their new number."""
        if isinstance(event, Resized):
            self._resized_here(event.workers)
            return None
        if isinstance(event, PauseRequested):
            self.held = event.reason or ""
            return True
        if isinstance(event, ResumeRequested):
            held, self.held = self.held, None
            return held is not None
        return None

    @abstractmethod
    def _resized_here(self, workers: int) -> None:
        """Serve the leader with another number of workers."""

    def _answered(
        self,
        reply: Future[Any],
        make: Callable[[int], Event],
        ends: Sequence[EndWaiter],
        patience: Patience,
        answer: Future[Any],
    ) -> None:
        """Pass an answer on; or ask the next leader when the one here ended before it gave one."""
        if not isinstance(answer.exception(), ManagerStopped) or self._ending.is_set():
            pass_on(reply, answer)
            return
        name = type(make(0)).__name__
        if name not in REPEATABLE:
            msg = f"the leader changed while {name!r} was asked; look at the procedure, and ask again"
            fail_future(reply, OutcomeUnknown(msg))
            return
        try:
            self._remote.ask(make, ends, patience).add_done_callback(partial(pass_on, reply))
        except ActorprocError as error:
            fail_future(reply, error)

    def _refuse_when_ended(self) -> None:
        if self._ending.is_set():
            raise ManagerStopped("the manager was stopped")

    def register(self, definition: Definition) -> None:
        """Make a type known here; a leader elsewhere is sent those that no module has."""
        local = self._leading()
        if local is not None:
            local.register(definition)
        if definition.pickled is not None or self.sends_modules:
            self._remote.register(definition)

    def hear_each(self, ends: Sequence[tuple[str, EndListener]]) -> None:
        """Call each of these listeners with the end of its procedure."""
        local = self._leading()
        if local is not None:
            with contextlib.suppress(ManagerStopped):
                local.hear_each(ends)
                return
        self._refuse_when_ended()
        self._remote.hear_each(ends)

    def recent_end(self, id: str) -> Ending | None:
        """End of a procedure that came a moment ago."""
        local = self._leading()
        return local.recent_end(id) if local is not None else None

    def watch(self, id: str, patience: Patience = Patience.CALL) -> Future[Ending]:
        """A future of the procedure's end, over changes of leaders."""
        local = self._leading()
        if local is not None:
            with contextlib.suppress(ManagerStopped):
                return local.watch(id, patience)
        self._refuse_when_ended()
        return self._remote.watch(id, patience)

    def watch_ask(self, id: str, ask: AskKey, patience: Patience = Patience.CALL) -> Future[AskResult]:
        """A future of what comes of an ask that was sent, over changes of leaders."""
        local = self._leading()
        if local is not None:
            with contextlib.suppress(ManagerStopped):
                return local.watch_ask(id, ask, patience)
        self._refuse_when_ended()
        return self._remote.watch_ask(id, ask, patience)

    def glance(self, id: str) -> Described | None:
        """State of a procedure, answered soon; None when that is not known."""
        local = self._leading()
        return local.glance(id) if local is not None else self._remote.glance(id)

    def subscribe(self, subscription: Subscription, since: int | None) -> Callable[[], None]:
        """Tell a subscription what changes, over changes of leaders: so through the leader's door, also here."""
        self._refuse_when_ended()
        if self._config.control or not self.leads:
            return self._remote.subscribe(subscription, since)
        return cast("EngineTree", self._local).subscribe(subscription, since)

    # ------------------------------------------------------------ questions
    def describe(self, records: tuple[ProcedureRecord, ...]) -> tuple[Described, ...]:
        """The live view of these heads."""
        found: tuple[Described, ...] = self._asked("describe", records)
        return found

    def lock_waiters(self) -> list[LockWaiter]:
        """Procedures that wait for locks."""
        found: list[LockWaiter] = self._asked("lock_waiters")
        return found

    def dangling_locks(self) -> list[tuple[LockRecord, str]]:
        """Stored locks that no procedure will give up."""
        found: list[tuple[LockRecord, str]] = self._asked("dangling_locks")
        return found

    def reach(self) -> None:
        """Wait for a leader that answers. Raises `ManagerStopped` when none does."""
        if not self.leads:
            self._remote.reach()

    def manager_status(self) -> ManagerStatus | None:
        """The leader's report; None when it does not answer."""
        status: ManagerStatus | None = self._asked("manager_status")
        return status

    def metrics(self) -> ManagerMetrics:
        """The leader's counters; those about the lead are this manager's own."""
        found: ManagerMetrics = self._asked("metrics")
        return msgspec.structs.replace(found, lead=self.leader_counters())

    @abstractmethod
    def leader_counters(self) -> LeaderCounters:
        """Figures of this manager about the lead."""

    def slots(self) -> tuple[SlotStatus, ...]:
        """The report of the leader's supervisor."""
        found: tuple[SlotStatus, ...] = self._asked("slots")
        return found

    def compact(self) -> CompactionReport:
        """Compact the store."""
        report: CompactionReport = self._asked("compact")
        return report

    def reload(self, timeout: float) -> int:
        """Replace the leader's workers one by one."""
        local = self._leading()
        return local.reload(timeout) if local is not None else self._remote.reload(timeout)

    def open_gate(self) -> None:
        """Let the steps run after a gated start."""
        self._asked("open_gate")

    def post(self, errand: Callable[[], object]) -> None:
        """Run a callback on the thread for callbacks."""
        self._remote.post(errand)


def _with_reply(event: Any, reply: int) -> Event:
    named: Event = msgspec.structs.replace(event, reply=reply)
    return named
