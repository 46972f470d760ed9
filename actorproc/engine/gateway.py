"""Gateway from other threads to the engine's actors: requests, and the futures of those still waiting for an answer.

Messages of one thread arrive in the order in which it sent them. Messages to an actor that has stopped are dropped. A
stop fails the futures of the callers that wait for an answer then.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
import pykka

from actorproc.core.locks.request import LockWaiter
from actorproc.engine.end_waiters import AskListener, AskResult, OpenWait, settle_future
from actorproc.engine.manager_actor import ManagerActor
from actorproc.engine.messages import (
    AddHost,
    AddSlot,
    Booted,
    Describe,
    Described,
    DrainHostSlots,
    Ending,
    EndListener,
    EndWaiter,
    FindDangling,
    Glance,
    Gone,
    LaunchAll,
    LeaderCounters,
    LearnType,
    ListWaiters,
    LookSettled,
    ManagerMetrics,
    ManagerStatus,
    OpenGate,
    Patience,
    RegisterType,
    RemoveHost,
    ReportStatus,
    RetireSlot,
    SlotStatus,
    StandDown,
    Subscribe,
    TakeMetrics,
    Unsubscribe,
    WatchEnds,
)
from actorproc.engine.pipeline.commit_cache import CommitCache
from actorproc.engine.reply_router import ReplyRouter
from actorproc.engine.runtime.inbox import CombiningInbox
from actorproc.engine.runtime.inbox_ear import InboxEar
from actorproc.engine.runtime.subscription import Subscription
from actorproc.engine.supervisor_actor import SupervisorActor
from actorproc.engine.workers.host_reports import host_reports
from actorproc.errors import ActorprocError, ManagerStopped
from actorproc.model.messages.definitions import Definition
from actorproc.model.messages.events import Event
from actorproc.model.rows.asks import AskKey
from actorproc.model.rows.records import LockRecord, ProcedureRecord
from actorproc.report.hosts import HostInfo
from actorproc.workers.base import (
    HostDrains,
    HostJoined,
    HostLeft,
    PoolEvent,
    PoolFailed,
    WorkerBooted,
    WorkerDied,
    WorkerExceeded,
    WorkerMessages,
)

if TYPE_CHECKING:
    from pathlib import Path

    from actorproc.telemetry.recorder import Recorder
    from actorproc.telemetry.tracing import Tracing

__all__ = ["Gateway"]

_T = TypeVar("_T")
_M = TypeVar("_M")

_GLANCE = 1.0
"""Seconds for the question that an error message is waiting for."""
_ANSWER = 5.0
"""Seconds a status question may take before the actor counts as not answering."""


class Gateway:
    """The verbs of a started engine, for any thread; `EngineTree` starts and stops the actors behind it."""

    def __init__(self) -> None:
        self._manager: pykka.ActorRef[ManagerActor] | None = None
        self._supervisor: pykka.ActorRef[SupervisorActor] | None = None
        self._replies = ReplyRouter()
        self._newest = CommitCache()
        self._is_succeeded = False
        """Another engine goes on with this store: those who wait for ends wait on."""
        self._left_waiting: list[OpenWait] = []
        self.tracing: Tracing | None = None
        """Gives requests their place in a trace; None: nothing is traced."""
        self.spans_folder: Path | None = None
        """Directory of the store, for the mark of recorded spans; None: it has none."""
        self.count_clients: Callable[[], int] = int
        """Number of programs that are connected from outside; set by what lets them in."""
        self.leader_counters: Callable[[], LeaderCounters] = LeaderCounters
        """Figures about the lead of a store that several machines share."""
        self._known_types: set[str] = set()
        """Names of types that were made known."""

    def _begin_recording(self, at_end: list[Callable[[], object]]) -> Recorder | None:
        """Start the recorder of spans, and have it closed at the end; None: nothing is traced."""
        if self.tracing is None:
            return None
        recorder = self.tracing._recorder(self.spans_folder)
        recorder.start()
        at_end.append(recorder.close)
        return recorder

    def request(self, make: Callable[[int], Event]) -> Any:
        """Tell the manager an event that names a reply, and wait for the reply."""
        return self.ask(make).result()

    def ask(
        self, make: Callable[[int], Event], ends: Sequence[EndWaiter] = (), patience: Patience = Patience.CALL
    ) -> Future[Any]:
        """Tell the manager an event that names a reply; the future of the reply.

        `ends` are told the ends of what the event submits, in its order; none of them is told if it is refused.
        """
        number, future = self._replies.open()
        if ends:
            self._replies.promise(number, ends, patience)
        event = make(number)
        self._to_manager(event if self.tracing is None else self.tracing._entered(event))
        return future

    def hear_each(self, ends: Sequence[tuple[str, EndListener]]) -> None:
        """Have each of these listeners told the end of its procedure, or that the manager stopped, in one message."""
        self._watch(ends, Patience.CALL)

    def _watch(self, ends: Sequence[tuple[str, EndWaiter]], patience: Patience) -> None:
        self._replies.wait(ends, patience)
        self._to_manager(WatchEnds(ends, patience))

    def leave_ends(self) -> None:
        """Let those who wait for ends of procedures wait on when it stops: `left_waiting` are for the next engine."""
        self._is_succeeded = True

    def left_waiting(self) -> list[OpenWait]:
        """Take the waits for ends that were open when it stopped; they are forgotten here."""
        left, self._left_waiting = self._left_waiting, []
        return left

    def adopt(self, left: list[OpenWait]) -> None:
        """Tell those who waited for ends when another engine on this store stopped."""
        for id, patience, waiter in left:
            self._watch([(id, waiter)], patience)

    def _close_replies(self, why: ActorprocError) -> None:
        if self._is_succeeded:
            self._left_waiting = self._replies.close_but_for_ends(why)
        else:
            self._replies.close(why)

    def recent_end(self, id: str) -> Ending | None:
        """End of a procedure, when it ended a moment ago; None says nothing."""
        return self._newest.end(id)

    def watch(self, id: str, patience: Patience = Patience.CALL) -> Future[Ending]:
        """A future of the procedure's end, shared by all who wait for it at the same time, with the same patience."""
        return self._replies.ends.shared(id, patience, lambda: self.watch_anew(id, patience))

    def watch_ask(self, id: str, ask: AskKey, patience: Patience = Patience.CALL) -> Future[AskResult]:
        """A future of what comes of an ask that was sent, shared as that of `watch`."""

        def begin() -> Future[AskResult]:
            self._replies.refuse_here()
            listener = AskListener(ask)
            self._watch([(id, listener)], patience)
            return listener.future

        return self._replies.ends.shared_answer(id, ask, patience, begin)

    def watch_anew(self, id: str, patience: Patience = Patience.CALL) -> Future[Ending]:
        """As `watch`, with a future of its own: asked for behind whatever the same thread has said before."""
        future = self._replies.future_end(id, patience)
        self._to_manager(WatchEnds(((id, future),), patience))
        return future

    def glance(self, id: str) -> Described | None:
        """State of a procedure; None when it is unknown, or the manager does not answer within a second."""
        try:
            found: Future[Described | None] = self._asked(self._to_manager, lambda future: Glance(id, future))
            return found.result(_GLANCE)
        except (TimeoutError, ActorprocError):
            return None

    def register(self, definition: Definition) -> None:
        """Make a type known, before whatever the same thread says next."""
        self._known_types.add(definition.meta.type_name)
        self._to_manager(RegisterType(definition))

    def knows(self, type_name: str) -> bool:
        """The type was made known to this engine."""
        return type_name in self._known_types

    def open_gate(self) -> None:
        """Hand out steps, after a start with the gate closed; returns when that is so."""
        self._asked(self._to_manager, OpenGate).result()

    def learn(self, definition: Definition) -> None:
        """Make a client's class known, before whatever the same thread says next; this program's own classes stay."""
        self._known_types.add(definition.meta.type_name)
        self._to_manager(LearnType(definition))

    def describe(self, records: tuple[ProcedureRecord, ...]) -> tuple[Described, ...]:
        """The live view of these heads."""
        return self._asked(self._to_manager, lambda future: Describe(records, future)).result()

    def subscribe(self, subscription: Subscription, since: int | None) -> Callable[[], None]:
        """Tell a subscription what changes from now on; returns the call that ends that, for any thread.

        It ends too when the engine stops: with the error, unless everything is watched. Raises `UnknownProcedure`.
        """
        open_: Future[None] = Future()

        def over(future: Future[None]) -> None:
            error = future.exception()
            is_stopped = isinstance(error, ManagerStopped) and subscription.id is None
            subscription.end(None if is_stopped else error)
            self._to_manager(Unsubscribe(subscription))

        self._replies.add(open_)
        open_.add_done_callback(over)
        try:
            self._asked(self._to_manager, lambda begun: Subscribe(subscription, since, begun)).result()
        except BaseException:
            settle_future(open_, None)
            raise
        return lambda: settle_future(open_, None)

    def metrics(self) -> ManagerMetrics:
        """The manager's counters."""
        found: ManagerMetrics = self._asked(self._to_manager, TakeMetrics).result()
        resumes = getattr(getattr(self, "pool", None), "resumes", 0)
        clients, lead = self.count_clients(), self.leader_counters()
        dropped = self.tracing.dropped if self.tracing is not None else 0
        return msgspec.structs.replace(found, clients=clients, lead=lead, link_resumes=resumes, spans_dropped=dropped)

    def lock_waiters(self) -> list[LockWaiter]:
        """Procedures that wait for locks, in the order of the queue."""
        return self._asked(self._to_manager, ListWaiters).result()

    def dangling_locks(self) -> list[tuple[LockRecord, str]]:
        """Stored locks that no procedure will give up or that memory does not know so, with the reason."""
        return self._asked(self._to_manager, FindDangling).result()

    def manager_status(self) -> ManagerStatus | None:
        """The manager's report; None when it does not answer."""
        status: ManagerStatus | None = self._report(self._to_manager)
        return status

    def is_settled(self) -> bool:
        """Nothing is under way in the manager, and its alarm is set for what comes next. Raises `ManagerStopped`."""
        return self._asked(self._to_manager, LookSettled).result()

    def slots(self) -> tuple[SlotStatus, ...]:
        """The supervisor's report; empty when it does not answer."""
        return self._report(self._to_supervisor) or ()

    def hosts(self) -> tuple[HostInfo, ...]:
        """The worker hosts that have joined; with a directory there are none."""
        pool = getattr(self, "pool", None)
        return host_reports(pool, self.manager_status() if getattr(pool, "hosts", ()) else None)

    def drain_host(self, name: str) -> bool:
        """Have a host leave in order; False when there is none of this name."""
        pool: Any = getattr(self, "pool", None)
        return bool(getattr(pool, "hosts", ()) and pool.drain(name, "drained by an operator"))

    def _report(self, tell: Callable[[ReportStatus], None]) -> Any:
        try:
            return self._asked(tell, ReportStatus).result(_ANSWER)
        except (TimeoutError, ActorprocError):
            return None

    # ------------------------------------------------------------ messages
    def _to_manager(self, message: object) -> None:
        actor = self._manager
        if actor is not None:
            with contextlib.suppress(pykka.ActorDeadError):
                actor.tell(message)

    def _pool_event(self, event: PoolEvent) -> None:
        """The pool's listener. A worker's messages and its death reach the manager in the order they happened."""
        if isinstance(event, WorkerMessages | WorkerExceeded):
            self._hand_to_manager(event)
        else:
            self._worker_event(event)

    def _worker_event(self, event: HostJoined | HostDrains | HostLeft | WorkerDied | WorkerBooted | PoolFailed) -> None:
        """A machine or a worker came, or one is dead, or none can come any more."""
        raise NotImplementedError

    def _hand_to_manager(self, message: object) -> None:
        """As `_to_manager`, from a thread of the engine's own, which does the manager's work when the manager rests."""
        actor = self._manager
        if actor is None or not cast("CombiningInbox", actor.actor_inbox).deliver(message):
            self._to_manager(message)

    def _from_store(self, message: object) -> None:
        """Tell the manager the outcome of a job of the store, on its own thread or the one that closes the store."""
        actor = self._manager
        if actor is None or not cast("CombiningInbox", actor.actor_inbox).bring(message):
            self._to_manager(message)

    def _have_manager_listen(self) -> None:
        """Have the manager's own thread hear the pool's workers, if the pool lets it."""
        assert self._manager is not None
        ear = getattr(getattr(self, "pool", None), "ear", None) or InboxEar()
        cast("CombiningInbox", self._manager.actor_inbox).listen_at(ear)

    def _wake_manager(self) -> None:
        actor = self._manager
        if actor is not None:
            cast("CombiningInbox", actor.actor_inbox).wake()

    def _to_supervisor(
        self,
        message: AddHost
        | AddSlot
        | Booted
        | DrainHostSlots
        | Gone
        | LaunchAll
        | RemoveHost
        | ReportStatus
        | RetireSlot
        | StandDown,
    ) -> None:
        actor = self._supervisor
        if actor is not None:
            with contextlib.suppress(pykka.ActorDeadError):
                actor.tell(message)

    def _asked(self, tell: Callable[[_M], None], make: Callable[[Future[_T]], _M]) -> Future[_T]:
        """Send a message with a future in it; the future of the answer, which a stop fails."""
        future: Future[_T] = Future()
        self._replies.add(future)
        tell(make(future))
        return future
