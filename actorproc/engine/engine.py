"""The engine as a tree: what starts in which order, and stops in the reverse.

::

    store ─▶ manager ─▶ pool ─▶ supervisor ─▶ workers

The parts are told of each other by callbacks that only put a message into an inbox. A host that calls
`pykka.ActorRegistry.stop_all()` stops our actors too: then the tree closes itself, as after a stop without drain.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import cast

import msgspec
import pykka

from actorproc.config import Config
from actorproc.engine.end_waiters import fail_future, pass_on
from actorproc.engine.gateway import Gateway
from actorproc.engine.manager_actor import ManagerActor
from actorproc.engine.manager_parts import ManagerParts
from actorproc.engine.messages import (
    AddHost,
    Begin,
    Booted,
    Claimed,
    ClaimHost,
    Drain,
    DrainHostSlots,
    Halt,
    LaunchAll,
    LookSettled,
    ManagerStatus,
    OwnerDeposed,
    RegisterType,
    RemoveHost,
    ReplaceWorker,
    StandDown,
)
from actorproc.engine.pipeline.store_port import StorePort
from actorproc.engine.runtime.callback_thread import CallbackThread
from actorproc.engine.runtime.clock import LONGEST_WAIT, OVERSLEPT, Alarm, waiting_seconds
from actorproc.engine.runtime.thread_check import check_room_for_threads
from actorproc.engine.runtime.watchdog import ManagerWatchdog
from actorproc.engine.supervisor_actor import SupervisorActor, SupervisorParts
from actorproc.engine.workers.rolling_reload import replace_each
from actorproc.engine.workers.successions import Successions
from actorproc.errors import (
    ActorprocError,
    Deposed,
    EngineError,
    InternalError,
    ManagerStopped,
    NotAllowed,
    WorkerBootFailed,
)
from actorproc.model.ids import HeldSteps
from actorproc.model.messages.definitions import Definition
from actorproc.model.messages.events import HostAdded, ReloadBegan
from actorproc.model.reports import CompactionReport
from actorproc.model.slots import is_dedicated
from actorproc.report.changes import LifecycleEvent
from actorproc.store.base import ProcedureStore
from actorproc.store.committer import Committer
from actorproc.store.lmdb.files.standard_files import occupy_standard_files
from actorproc.support.clock import Clock
from actorproc.support.engine_log import engine_logger
from actorproc.workers.base import HostDrains, HostJoined, HostLeft, PoolFailed, WorkerBooted, WorkerDied, WorkerPool

__all__ = ["EngineTree"]

logger = engine_logger("actorproc")

_THREADS = 8
"""Threads of an engine: manager, supervisor, opening, pool, alarm, callbacks, control socket, and one to spare."""
_SLICE = 1.0
"""Seconds of one wait for an end that may have come just before it."""
_FOR_STEPS = 0.8
"""The part of a stop's time limit that running steps get."""
_CLAIM = 5.0
"""Seconds for the answer to a host that says what it has in hand."""
_NOW = 0.2
"""Seconds idle workers get to leave in order when the others are killed."""


class EngineTree(Gateway):
    """A started engine. One use: `start`, then `stop`.

    `make_pool` is given the store's epoch. `on_fatal` is called on a thread of its own, when a bug stopped the engine
    or no worker can be started. The engine recovers from the latter when one can.
    """

    def __init__(
        self,
        *,
        store: ProcedureStore,
        make_pool: Callable[[int], WorkerPool],
        slots: int,
        max_slots: int,
        config: Config,
        clock: Clock,
        on_fatal: Callable[[ActorprocError], None],
        on_event: Callable[[LifecycleEvent], object] | None = None,
        offer: HostAdded | None = None,
        gated: bool = False,
    ) -> None:
        super().__init__()
        self.store = store
        self.epoch = 0
        self.pool: WorkerPool
        self.host = HostJoined(0)
        """This machine, as the pool announced it."""
        self._make_pool = make_pool
        self._slots = slots
        self._max_slots = max_slots
        self._config = config
        self._clock = clock
        self._on_fatal = on_fatal
        self._on_event = on_event
        self._successions = Successions()
        self._offer = offer
        self._gated = gated
        self._callback_thread = CallbackThread()
        self._alarm = Alarm(clock)
        self._store_port = StorePort(store, config, self._from_store, self._wake_manager)
        # A signal handler may call `stop` in the middle of one of its own thread.
        self._stopping = threading.RLock()
        self._drained: Future[None] | None = None
        self._hurried = False
        """A caller with less patience wants it to stop too."""
        self._closed = threading.Event()
        """It is closing, or has closed."""
        self._ended = threading.Event()
        """It has closed."""
        self._closer: int | None = None
        """The thread that closes it."""
        self.at_close: list[Callable[[], object]] = []
        """Called when the engine closes, for whatever reason; for what stands before it."""
        self.at_end: list[Callable[[], object]] = []
        """Called when it has closed so far that all waiting callers have been answered."""
        self.changed_code: Callable[[], tuple[str, ...]] = tuple
        """Looks which modules' files were changed since they were loaded, and warns of news."""
        self.before_reload: list[Callable[[], object]] = []
        """Called before workers are replaced; raises when they must not be."""
        self.after_reload: list[Callable[[], object]] = []
        """Called when all were replaced."""
        self.on_deposed: Callable[[Deposed], object] | None = None
        """Called in place of `on_fatal` when another owner has taken the store over, and this engine has closed.

        With it the waits for ends of procedures are left for the next engine (`left_waiting`).
        """
        self.on_step_down: Callable[[], object] | None = None
        """Gives the lead to another manager; None: no other one could have it."""
        self.failure: ActorprocError | None = None
        """Error that is beyond help: a bug, a lost store, or every slot is parked and none has come back yet."""

    # ------------------------------------------------------------ start
    def start(self, definitions: Callable[[], Sequence[Definition]]) -> None:
        """Own the store, recover, start the workers. Raises what stands in the way; nothing is left running then.

        `definitions` is asked for the registered types once the store is owned.
        """
        check_room_for_threads(_THREADS)
        occupy_standard_files()  # whichever store it is: nothing that is printed may go to a worker or a client
        try:
            self._callback_thread.post(lambda: None)  # it is there now, whatever becomes of the system's threads
            self._alarm.start()
            snapshot = self._store_port.start()
            when_deposed = getattr(self.store, "when_deposed", None)
            if when_deposed is not None:  # a store that learns of a takeover between two commits says so
                when_deposed(self.depose)
            registered = definitions()
            self._known_types.update(definition.meta.type_name for definition in registered)
            self.epoch = snapshot.epoch
            self.pool = self._make_pool(snapshot.epoch)
            self._manager = ManagerActor.start(
                ManagerParts(
                    config=self._config,
                    clock=self._clock,
                    alarm=self._alarm,
                    store=self.store,
                    store_port=self._store_port,
                    pool=self.pool,
                    replies=self._replies,
                    newest=self._newest,
                    callback_thread=self._callback_thread,
                    snapshot=snapshot,
                    definitions=registered,
                    scheduling=self._config._scheduling(self._slots, self._max_slots),
                    on_gone=self._to_supervisor,
                    to_supervisor=self._to_supervisor,
                    on_broken=self._broken,
                    on_store_lost=self._store_lost,
                    on_stopped=self._stopped_by_host,
                    on_event=self._on_event,
                    offer=(self._offer or HostAdded("")) if self._slots else None,
                    recorder=self._begin_recording(self.at_end),
                    gated=self._gated,
                )
            )
            if hasattr(self.pool, "claims"):
                self.pool.claims = self._claim
            self.pool.open(self._pool_event)  # before the first commit: it may ask for a worker of a procedure's own
            self._have_manager_listen()
            for definition in registered:
                self._to_manager(RegisterType(definition))
            # Only now: the first commit's answer needs the reference that was stored above.
            self._to_manager(Begin())
            self._start_workers()
        except BaseException:
            self.stop(drain=False, timeout=self._config.stop_timeout)
            raise

    def _start_workers(self) -> None:
        self._supervisor = SupervisorActor.start(
            SupervisorParts(
                config=self._config,
                clock=self._clock,
                alarm=self._alarm,
                pool=self.pool,
                slots=self._slots,
                replies=self._replies,
                on_failed=self._failed,
                on_recovered=self._recovered,
                on_slot=self._to_manager,
                on_broken=self._broken,
            )
        )
        try:
            launched: Future[None] = self._asked(self._to_supervisor, LaunchAll)
            _wait(launched, waiting_seconds(self._config.boot_timeout), awake=True)
        except TimeoutError:
            msg = f"no answer from the worker processes within {self._config.boot_timeout:g} s (Config.boot_timeout)"
            raise WorkerBootFailed(msg) from None

    # ------------------------------------------------------------ stop
    def stop(self, *, drain: bool, timeout: float | None) -> None:
        """Stop everything in reverse order within `timeout` seconds in all. Idempotent; a second caller waits.

        With `drain` running steps are waited for (without limit when `timeout` is None); else, and when the time
        is up, they are killed and run again at the next start. A second caller with less patience ends that waiting.
        """
        if self.is_closing_here:  # this is a callback, or a signal handler, in the middle of it
            return
        timeout = waiting_seconds(timeout)
        patience = 0.0 if not drain else -1.0 if timeout is None else timeout * _FOR_STEPS
        if not self._stopping.acquire(timeout=patience):
            self._hurry()
            self._stopping.acquire()
        try:
            if not self._closed.is_set():
                self._stop(drain=drain, timeout=timeout)
            self.wait_until_closed(timeout)  # by another thread, or when the host has stopped our actors
        finally:
            self._stopping.release()

    @property
    def is_closing_here(self) -> bool:
        """The calling thread is the one that closes it."""
        return self._closer == threading.get_ident() and not self._ended.is_set()

    def wait_until_closed(self, timeout: float | None = None) -> None:
        """Wait at most `timeout` seconds for the end of a closing that has begun; not on the thread that closes."""
        if not self.is_closing_here:
            self._ended.wait(timeout)

    def _stop(self, *, drain: bool, timeout: float | None) -> None:
        patience = self._config.stop_timeout if timeout is None else timeout
        deadline = self._clock.monotonic() + patience
        idle = False
        if drain and self.failure is None:
            idle = self._ask_end(Drain, None if timeout is None else timeout * _FOR_STEPS)
            if not idle and not self.closed:
                logger.warning("running steps did not end in time; they are killed and run again at the next start")
        if drain and timeout is None:
            deadline = self._clock.monotonic() + patience
        self._to_supervisor(StandDown())
        self._ask_end(Halt, self._left(deadline))
        if self.closed:  # by a signal handler, in the middle of the above
            return
        try:
            self._close(ManagerStopped("the manager was stopped"), self._left(deadline) if idle else _NOW)
        finally:
            for actor in (self._supervisor, self._manager):
                if actor is not None:
                    with contextlib.suppress(pykka.ActorDeadError, pykka.Timeout):
                        actor.stop(timeout=self._left(deadline, 1.0))

    def _hurry(self) -> None:
        """Wait for running steps no longer."""
        self._hurried = True
        if self._drained is not None:
            fail_future(self._drained, ManagerStopped("another caller of stop() did not wait for the running steps"))

    def _ask_end(self, message: type[Drain | Halt], timeout: float | None) -> bool:
        """Tell the manager to drain or to halt, and wait for it; one that is not there needs neither."""
        if self._manager is None or not self._manager.is_alive():
            return True
        try:
            future: Future[None] = self._asked(self._to_manager, message)
            if message is Drain:
                self._drained = future
                if self._hurried:
                    return False
            _wait(future, timeout)
        except (TimeoutError, ActorprocError):
            return False
        return True

    def _close(self, why: ActorprocError, timeout: float) -> None:
        """Close everything that is not an actor, and fail all callers that still wait.

        All of it, in the reverse order of these lines, also when Ctrl-C ends the waiting for a part. A second stop
        finds it closed. The store must not stay owned, nor a caller wait for ever.
        """
        with contextlib.ExitStack() as parts:
            parts.callback(self._ended.set)
            parts.callback(self._closed.set)  # as below, unless Ctrl-C comes before
            parts.callback(self._close_store, max(timeout, 5.0))
            parts.callback(self._callback_thread.close, timeout=1.0)
            parts.callback(_call_each, self.at_end)
            parts.callback(self._close_replies, why)
            if hasattr(self, "pool"):
                parts.callback(self.pool.close, timeout)
            parts.callback(self._alarm.close)
            parts.callback(_call_each, self.at_close)
            self._closer = threading.get_ident()
            self._closed.set()

    def _close_store(self, timeout: float) -> None:
        if not self._store_port.close(timeout):
            logger.error("the last commit did not end in time; the store was not closed in order")

    def _left(self, deadline: float, least: float = 0.1) -> float:
        return min(max(least, deadline - self._clock.monotonic()), LONGEST_WAIT)

    def _stopped_by_host(self) -> None:
        """Close cleanly and at once: the host stopped our actors. On the manager's own thread, or one for this."""
        if self._closed.is_set():
            return  # it was us, after a stop that the manager could not end in time
        self._to_supervisor(StandDown())
        logger.warning("the actorproc actors were stopped from outside; the engine closes")
        self._close(ManagerStopped("the manager's actors were stopped by the host program"), _NOW)

    # ------------------------------------------------------------ trouble
    def _broken(self, error: InternalError) -> None:
        self._fatal(error, close=True)

    def step_down(self) -> None:
        """Give the lead to another manager, where several machines share the store.

        Raises:
            NotAllowed: The store is a directory.
        """
        if self.on_step_down is None:
            raise NotAllowed("a directory has one manager at a time: there is no other one that could lead; stop it")
        self.on_step_down()

    def watchdog(self, limit: float) -> ManagerWatchdog:
        """Says whether the manager's thread still answers, for a store whose owner must live.

        Args:
            limit: Seconds without an answer after which it may hang.

        Returns:
            The watchdog, for one thread.
        """

        def ask() -> Future[object]:
            return cast("Future[object]", self._asked(self._to_manager, LookSettled))

        return ManagerWatchdog(ask, (ManagerActor.on_receive.__code__, Committer.work.__code__), limit)

    def depose(self, error: Deposed) -> None:
        """Another owner has taken the store over: store nothing more, and end in order; from any thread."""
        self._store_port.depose(error)
        self._to_manager(OwnerDeposed(error))

    def _store_lost(self, error: EngineError) -> None:
        """End in order, on a thread of its own: this may be the store's."""
        if isinstance(self.failure, InternalError):
            return
        self.failure = error
        if self.on_deposed is not None and isinstance(error, Deposed):
            self.leave_ends()
        self._post_trouble(lambda: self._end_without_store(error))

    def _end_without_store(self, error: EngineError) -> None:
        self._to_supervisor(StandDown())
        if not self._closed.is_set():
            why = ManagerStopped(f"the manager has lost its store and ended: {error}")
            why.__cause__ = error
            self._close(why, _NOW)
        for actor in (self._supervisor, self._manager):
            if actor is not None:
                with contextlib.suppress(pykka.ActorDeadError, pykka.Timeout):
                    actor.stop(timeout=1.0)
        if self.on_deposed is not None and isinstance(error, Deposed):
            self.on_deposed(error)
        else:
            self._on_fatal(error)

    def _failed(self, error: EngineError) -> None:
        logger.critical("actorproc can start no worker any more: %s", error)
        self._fatal(error, close=False)

    def _recovered(self) -> None:
        if isinstance(self.failure, WorkerBootFailed):
            self.failure = None

    def _fatal(self, error: ActorprocError, *, close: bool) -> None:
        """Tell the host, on a thread of its own: the thread that found out must not wait for itself."""
        # A bug is news also to who was told that no worker can be started: from that there is a way back.
        if isinstance(self.failure, InternalError) or (self.failure is not None and not close):
            return
        self.failure = error

        def tell() -> None:
            if close:
                self._to_supervisor(StandDown())
                self.pool.close(_NOW)
            self._on_fatal(error)

        self._post_trouble(tell)

    def _post_trouble(self, tell: Callable[[], None]) -> None:
        """Run this on a thread of its own."""
        try:
            threading.Thread(target=tell, name="actorproc-fatal", daemon=True).start()
        except RuntimeError:  # the system has no more threads
            self._callback_thread.post(tell)

    # ------------------------------------------------------------ messages
    def _worker_event(self, event: HostJoined | HostDrains | HostLeft | WorkerDied | WorkerBooted | PoolFailed) -> None:
        if isinstance(event, HostJoined | HostDrains | HostLeft):
            self._host_event(event)
        elif isinstance(event, WorkerDied):
            for death in self._successions.died(event):
                self._to_manager(death)
        elif isinstance(event, WorkerBooted):
            self._worker_booted(event)
        else:
            self._to_manager(event)

    def _claim(self, host: int, slots: int, held: tuple[HeldSteps, ...]) -> Claimed:
        """Workers and steps of a host that count, of those that it has. On a thread of the door."""
        answer: Future[Claimed] = self._asked(
            self._to_manager, lambda future: ClaimHost(host, slots, f"h{host}", held, future)
        )
        return answer.result(_CLAIM)

    def _host_event(self, event: HostJoined | HostDrains | HostLeft) -> None:
        if isinstance(event, HostJoined) and event.host == 0:
            self.host = event
            return
        # The manager first: it must know a host before the workers there. The deaths of those come behind this.
        self._to_manager(event)
        if isinstance(event, HostJoined):
            self._to_supervisor(AddHost(event.host, event.slots, tuple(worker for worker, _, _ in event.living)))
        elif isinstance(event, HostDrains):
            self._to_supervisor(DrainHostSlots(event.host))
        else:
            self._to_supervisor(RemoveHost(event.host))

    def _worker_booted(self, event: WorkerBooted) -> None:
        told = self._successions.booted(event)
        (self._to_manager if told is event else self._hand_to_manager)(told)
        if not is_dedicated(event.worker.slot):
            self._to_supervisor(Booted(event.worker))
        self._callback_thread.post(self.changed_code)  # it may be the first that has loaded other files than the rest

    # ------------------------------------------------------------ verbs, any thread
    def compact(self) -> CompactionReport:
        """Compact the store between two commits, and wait for it."""
        answer: Future[CompactionReport] = Future()
        self._replies.add(answer)
        self._store_port.compact().add_done_callback(partial(pass_on, answer))
        return answer.result()

    def manager_status(self) -> ManagerStatus | None:
        """The manager's report; None when it does not answer."""
        status = super().manager_status()
        return status and msgspec.structs.replace(status, changed=self.changed_code())

    def reload(self, timeout: float) -> int:
        """Replace all workers one by one within `timeout` seconds; returns their number. See `ScaleVerbs.reload`."""
        _call_all(self.before_reload)
        self.pool.forget_spares()
        self.request(ReloadBegan)
        reason = "its code is loaded again"
        try:
            count = replace_each(self, lambda worker: self._to_manager(ReplaceWorker(worker, reason)), timeout)
        finally:
            if not self.closed:
                self.request(lambda reply: ReloadBegan(reply, is_over=True))
        _call_all(self.after_reload)
        return count

    def post(self, errand: Callable[[], object]) -> None:
        """Run a callback of the host on the thread for callbacks."""
        self._callback_thread.post(errand)

    @property
    def closed(self) -> bool:
        """It has been stopped, by us or by the host."""
        return self._closed.is_set()


def _call_all(calls: list[Callable[[], object]]) -> None:
    """Call these in order, up to the first that raises."""
    for call in calls:
        call()


def _call_each(calls: list[Callable[[], object]]) -> None:
    """Call all of these in order, whatever one of them raises."""
    with contextlib.ExitStack() as parts:
        for call in reversed(calls):
            parts.callback(call)


def _wait(future: Future[None], timeout: float | None, *, awake: bool = False) -> None:
    """Wait in slices: what a signal handler settles in the moment before a wait begins does not wake it.

    `awake`: the time begins anew when this program stood still, as its workers may have done so, too.
    """
    left = timeout = math.inf if timeout is None else timeout
    while True:
        began = time.monotonic()
        try:
            return future.result(max(0.0, min(_SLICE, left)))
        except TimeoutError:
            took = time.monotonic() - began
            left = timeout if awake and took >= _SLICE + OVERSLEPT else left - took
            if left <= 0:
                raise
