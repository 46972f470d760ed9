"""Client's stand-in for an engine in another process, with the face of one in this process.

Stored facts are read from the store itself, which needs no manager. Facts of the live engine, and every change, go
through the control socket.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar, cast

import msgspec

from actorproc.control.channel import ControlChannel
from actorproc.control.doors import Way
from actorproc.control.interruption import refuse_whom_it_interrupts
from actorproc.control.methods import METHODS, REPEATABLE, with_dedup
from actorproc.control.pending import Pending
from actorproc.control.unix_door import UnixWay
from actorproc.control.wire import decode_as, encode
from actorproc.core.locks.request import LockWaiter
from actorproc.core.state.phases import seen_in_store
from actorproc.engine.end_waiters import AskListener, AskResult, EndWaiters, OpenWait, fail_future, pass_on
from actorproc.engine.messages import (
    Described,
    Ending,
    EndListener,
    EndWaiter,
    ManagerMetrics,
    ManagerStatus,
    Patience,
    SlotStatus,
)
from actorproc.engine.runtime.callback_thread import CallbackThread
from actorproc.engine.runtime.subscription import DigestSubscription, FeedMark, Subscription
from actorproc.errors import (
    ActorprocError,
    EngineError,
    ManagerStopped,
    ProcedureParked,
    StorageUnavailable,
    UsageError,
)
from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.messages.definitions import Definition
from actorproc.model.messages.events import Event, Published, Signalled, Submitted
from actorproc.model.reports import BackupReport, CompactionReport
from actorproc.model.rows.asks import AskKey
from actorproc.model.rows.records import LockRecord, ProcedureRecord, Trace
from actorproc.model.states import Phase
from actorproc.model.trace_context import CONTEXT
from actorproc.report.changes import Change, ChangeDigest, Overflow
from actorproc.report.hosts import HostInfo
from actorproc.store.base import ProcedureStore
from actorproc.store.directory import refuse_url
from actorproc.store.home import Home
from actorproc.store.reading import ReadingStore
from actorproc.support import trace_scope
from actorproc.support.engine_log import engine_logger
from actorproc.workers.base import HostJoined, WorkerInfo
from actorproc.workers.protocol.log_entry import LogEntry

__all__ = ["RemoteEngine", "way_to"]

logger = engine_logger("actorproc")

_T = TypeVar("_T")

_PAUSE = 0.05
_LONGEST_PAUSE = 1.0
_GLANCE = 1.0
"""Seconds for the question that an error message is waiting for."""
_BUFFER = 10_000
"""Changes that may wait at the manager's end."""


def way_to(home: Home) -> Way:
    """The way to the manager of a home: the socket in its directory, or a link to the leader.

    Args:
        home: The home.

    Returns:
        The way.
    """
    if home.is_near and home.door is not None:
        return UnixWay(home, home.door)
    from actorproc.control.link_door import LinkWay  # noqa: PLC0415 - a client of a directory loads no TLS

    return LinkWay(home)


class RemoteStore:
    """The store, read here and copied by its owner."""

    def __init__(self, reader: ReadingStore, channel: ControlChannel, *, is_near: bool) -> None:
        self._reader = reader
        self._channel = channel
        self._is_near = is_near

    def __getattr__(self, name: str) -> Any:
        return getattr(self._reader, name)

    def close(self) -> None:
        """Stop reading."""
        self._reader.close()

    def backup(self, path: str | os.PathLike[str]) -> BackupReport:
        """Have the owner copy the store; one on another machine is copied here, from the database.

        Raises `UsageError` for a path that cannot be sent to the owner.
        """
        if not self._is_near:
            copied: BackupReport = cast("ProcedureStore", self._reader).backup(path)
            return copied
        refuse_url(path, "a backup is a directory of this machine")
        full = os.path.abspath(path)  # noqa: PTH100 - without following links: the owner checks what is there
        try:
            full.encode()
        except UnicodeEncodeError:
            msg = f"the path {full!a} is no UTF-8 and cannot be sent to the running manager; back up to another one"
            raise UsageError(msg) from None
        report: BackupReport = _ask(self._channel, "backup", full)
        return report


class RemotePool:
    """The workers of the other process."""

    def __init__(self, channel: ControlChannel) -> None:
        self._channel = channel

    def facts(self) -> dict[WorkerId, WorkerInfo]:
        """Live workers."""
        return dict(_ask(self._channel, "facts"))

    def stack(self, token: StepToken) -> str:
        """The Python stack of a running step."""
        return str(_ask(self._channel, "stack", token))

    def logs(self, procedure: str) -> list[LogEntry]:
        """Prints and log records of a procedure."""
        found: list[LogEntry] = _ask(self._channel, "logs", procedure)
        return found


class RemoteEngine:
    """Remote face of `EngineTree`, for the verbs of a client."""

    def __init__(
        self,
        home: Home,
        *,
        patience: float,
        max_frame: int,
        allow_any_filesystem: bool = False,
    ) -> None:
        self._home = home
        self._allow_any_filesystem = allow_any_filesystem
        self._patience = patience
        self._channel = ControlChannel(way_to(home), patience=patience, max_frame=max_frame)
        self._callback_thread = CallbackThread()
        self._opening = threading.RLock()
        self._store: RemoteStore | None = None
        self._ends = EndWaiters()
        self.pool = RemotePool(self._channel)
        self.failure: ActorprocError | None = None
        self.closed = False

    @property
    def host(self) -> HostJoined:
        """The machine of the manager, as far as is known before the first connection."""
        hello = self._channel.hello
        return HostJoined(0, hello.limits, hello.process_limits) if hello is not None else HostJoined(0)

    @property
    def store(self) -> ProcedureStore:
        """The store, opened for reading when it is first needed. Raises `EngineError` when there is none."""
        store = self._store
        return cast("ProcedureStore", store) if store is not None else self.wait_out(self._opened)

    def _opened(self) -> ProcedureStore:
        refuse_whom_it_interrupts(self._opening)
        with self._opening:
            self._refuse_when_closed()
            if self._store is None:
                reader = self._home.reader(allow_any_filesystem=self._allow_any_filesystem, patience=self._patience)
                self._store = RemoteStore(reader, self._channel, is_near=self._home.is_near)
                try:
                    self._refuse_when_closed()  # by a signal handler, in the middle of the above
                except ManagerStopped:
                    self._store = None
                    reader.close()
                    raise
            return cast("ProcedureStore", self._store)

    def _refuse_when_closed(self) -> None:
        if self.closed:
            raise ManagerStopped("this client was closed")

    def open(self) -> None:
        """Open the store for reading, once a manager has made it. Raises `EngineError` when none does in time."""
        until = time.monotonic() + self._patience
        was_there = self._home.exists()
        while True:
            try:
                _ = self.store
            except EngineError:
                # One that is being made at this moment is no store for some milliseconds.
                if was_there or self.closed or time.monotonic() > until:
                    raise
                time.sleep(_PAUSE)
            else:
                return

    def wait_out(self, call: Callable[[], _T]) -> _T:
        """Make a call to the store; again, within the patience, while the store cannot be reached.

        Args:
            call: The call, which changes nothing by a repetition.

        Returns:
            Its result.

        Raises:
            StorageUnavailable: The store could not be reached within the patience.
        """
        until = time.monotonic() + self._patience
        while True:
            try:
                return call()
            except StorageUnavailable:
                if self._home.is_near or self.closed or time.monotonic() > until:
                    raise
            # Full jitter: all clients of a database lose it at the same moment.
            time.sleep(random.uniform(0.0, _LONGEST_PAUSE))  # noqa: S311

    def close(self) -> None:
        """Leave the manager and the store alone. Idempotent."""
        with self._opening:
            self.closed = True
            store, self._store = self._store, None
        self._channel.close()
        self._callback_thread.close(timeout=1.0)
        if store is not None:
            store.close()

    # ------------------------------------------------------------ requests
    def request(self, make: Callable[[int], Event]) -> Any:
        """Send an event that names a reply, and wait for the reply."""
        return self.ask(make).result()

    def ask(
        self, make: Callable[[int], Event], ends: Sequence[EndWaiter] = (), patience: Patience = Patience.CALL
    ) -> Future[Any]:
        """Send an event that names a reply; the future of the reply. `ends` are told what it submits ended with."""
        event = with_dedup(make(0))
        if isinstance(event, Submitted):
            here = trace_scope.current()
            trace = Trace(here) if here else None
            # An id of ours may be known when the submit is repeated: then it is the same submit.
            news = tuple(
                msgspec.structs.replace(new, fresh=False, trace=new.trace or trace) for new in event.procedures
            )
            event = msgspec.structs.replace(event, procedures=news)
        elif isinstance(event, Signalled | Published) and (here := trace_scope.current()):
            event = msgspec.structs.replace(event, trace=here[:CONTEXT])
        name = type(event).__name__
        gives = tuple[str, ...] if isinstance(event, Submitted) else Any
        request = self._channel.call("request", name, encode(event), gives, repeatable=name in REPEATABLE)

        if isinstance(event, Submitted):
            for new, end in zip(event.procedures, ends, strict=False):
                # In the manager's inbox right behind the submit: so it has begun when this is asked.
                watch = self._channel.call("end_of", new.id, encode((new.id, patience)), Ending)
                tell = partial(self._pass_on, request, watch, new.id, end, patience)
                request.future.add_done_callback(tell)
        return request.future

    def _pass_on(
        self, request: Pending, watch: Pending, id: str, end: EndWaiter, patience: Patience, reply: Future[Any]
    ) -> None:
        is_taken = reply.exception() is None
        if is_taken:
            self._ends.keep(((id, end),), patience)
        if is_taken and not request.refusals:
            watch.future.add_done_callback(partial(pass_on, end))
            return
        self._channel.drop(watch)
        if is_taken:  # it was taken at a later try only, and this was asked behind the first one
            self._callback_thread.post(lambda: self._watch_for(end, id, patience))

    def _watch_for(self, end: EndWaiter, id: str, patience: Patience) -> None:
        try:
            self._end_of(id, patience).add_done_callback(partial(pass_on, end))
        except ActorprocError as error:
            fail_future(end, error)

    def register(self, definition: Definition) -> None:
        """Make a class known to the manager, and to every later one."""
        self._channel.greet("call", "learn", encode((definition,)))

    # ------------------------------------------------------------ ends
    def recent_end(self, id: str) -> None:
        """End that came a moment ago; known only where the manager runs."""

    def watch(self, id: str, patience: Patience = Patience.CALL) -> Future[Ending]:
        """A future of the procedure's end, over restarts of the manager.

        For callbacks and futures, which wait on when it is parked, that is logged here, too.
        """
        if patience is Patience.ALWAYS:
            self._end_of(id, Patience.CALL).add_done_callback(partial(_log_parked, id))
        return self._end_of(id, patience)

    def _end_of(self, id: str, patience: Patience) -> Future[Ending]:
        body = encode((id, patience))
        return self._ends.shared(id, patience, lambda: self._channel.call("end_of", id, body, Ending).future)

    def watch_ask(self, id: str, ask: AskKey, patience: Patience = Patience.CALL) -> Future[AskResult]:
        """A future of what comes of an ask that was sent, over restarts of the manager."""
        body = encode((id, ask, patience))
        return self._ends.shared_answer(
            id, ask, patience, lambda: self._channel.call("answer_to", id, body, AskResult).future
        )

    def go_on_waiting(
        self, left: Iterable[OpenWait], tell: Callable[[EndWaiter, Future[Any]], object] = pass_on
    ) -> None:
        """Tell those that an engine of this process has left waiting when it stopped."""
        for id, patience, waiter in left:
            found: Future[Any]
            try:
                if isinstance(waiter, AskListener):
                    found = self.watch_ask(id, waiter.ask, patience)
                else:
                    found = self.watch(id, patience)
            except ActorprocError as error:
                found = Future()
                found.set_exception(error)
            found.add_done_callback(partial(tell, waiter))

    def glance(self, id: str) -> Described | None:
        """State of a procedure; None when it is unknown, or no manager answers within a second."""
        if not self._channel.is_connected:
            return None  # its time limit is over: the caller does not wait for a manager as well
        method = METHODS["glance"]
        pending = self._channel.call("call", "glance", encode((id,)), method.gives)
        try:
            found: Described | None = pending.future.result(_GLANCE)
        except (TimeoutError, ActorprocError):
            return None
        finally:
            self._channel.drop(pending)
        return found

    def hear_each(self, ends: Sequence[tuple[str, EndListener]]) -> None:
        """Have each of these listeners told the end of its procedure."""
        self._ends.keep(ends, Patience.CALL)
        for id_, listener in ends:
            self.watch(id_).add_done_callback(partial(pass_on, listener))

    # ------------------------------------------------------------ streams
    def subscribe(self, subscription: Subscription, since: int | None) -> Callable[[], None]:
        """Tell a subscription what changes; after a loss of the manager it goes on where it stood, as far as known."""
        last, mark = since, FeedMark(0, 0)
        digest = subscription if isinstance(subscription, DigestSubscription) else None

        def arrived(body: msgspec.Raw) -> None:
            nonlocal last, mark
            kind, item = decode_as(body, tuple[str, msgspec.Raw])
            if digest is not None:
                found = decode_as(item, ChangeDigest)
                digest.gather(found.at, found.rows, found.removed, found.omitted)
                digest.release()
                return
            if kind == Overflow.__name__:
                subscription.mark_gap(decode_as(item, Overflow).seq)
                return
            if kind == FeedMark.__name__:
                mark = decode_as(item, FeedMark)
                last = mark.seq
                return
            change: Change = decode_as(item, Change)
            last = change.seq
            subscription.offer(change)

        def asked() -> bytes:
            nonlocal last
            if digest is not None:
                first, last = last, 0  # asked again: the manager was away, and something may have been missed
                return encode((None, first, None, True, True, 1, digest.interval))
            batch = mark.batch_at(last)
            return encode((subscription.id, last, batch, subscription.steps, subscription.progress, _BUFFER, None))

        pending = self._channel.call("watch", "", asked(), Any, on_change=arrived, renew=asked)

        def over(future: Future[Any]) -> None:
            error = future.exception()
            # A watch of all ends with the manager; but one that no manager has heard of has watched nothing.
            is_end = isinstance(error, ManagerStopped) and subscription.id is None and pending.sent
            subscription.end(None if is_end else error)

        pending.future.add_done_callback(over)

        def leave() -> None:
            # Told by another thread: this may be called by the garbage collector, in the middle of another call.
            if self._channel.drop(pending):
                self._callback_thread.post(lambda: self._channel.tell("unwatch", pending.call.number))
            subscription.end()

        return leave

    # ------------------------------------------------------------ questions
    def describe(self, records: tuple[ProcedureRecord, ...]) -> tuple[Described, ...]:
        """The live view of these heads; of those that have ended the stored one, which needs no manager."""
        stored = {record.id: seen_in_store(record, is_owned=True) for record in records}
        live = tuple(record for record in records if stored[record.id][0] is not Phase.DONE)
        asked: tuple[Described, ...] = _ask(self._channel, "describe", live) if live else ()
        if len(live) == len(records):
            return asked
        found = iter(asked)
        return tuple(
            Described(record, *stored[record.id], None) if stored[record.id][0] is Phase.DONE else next(found)
            for record in records
        )

    def lock_waiters(self) -> list[LockWaiter]:
        """Procedures that wait for locks, in the order of the queue."""
        found: list[LockWaiter] = _ask(self._channel, "lock_waiters")
        return found

    def dangling_locks(self) -> list[tuple[LockRecord, str]]:
        """Stored locks that no procedure will give up."""
        found: list[tuple[LockRecord, str]] = _ask(self._channel, "dangling_locks")
        return found

    def reach(self) -> None:
        """Wait for a manager that answers. Raises `ManagerStopped` when none does within the patience."""
        _ask(self._channel, "manager_status")

    def manager_status(self) -> ManagerStatus | None:
        """The manager's report; None when it does not answer."""
        try:
            status: ManagerStatus | None = _ask(self._channel, "manager_status")
        except ActorprocError:
            return None
        return status

    def metrics(self) -> ManagerMetrics:
        """The manager's counters."""
        found: ManagerMetrics = _ask(self._channel, "metrics")
        return found

    def slots(self) -> tuple[SlotStatus, ...]:
        """The supervisor's report; empty when it does not answer."""
        try:
            found: tuple[SlotStatus, ...] = _ask(self._channel, "slots")
        except ActorprocError:
            return ()
        return found

    def open_gate(self) -> None:
        """Let the steps run after a gated start."""
        _ask(self._channel, "open_gate")

    def compact(self) -> CompactionReport:
        """Compact the store between two commits, and wait for it."""
        report: CompactionReport = _ask(self._channel, "compact")
        return report

    def reload(self, timeout: float) -> int:
        """Replace all workers one by one; how many."""
        count: int = _ask(self._channel, "reload", timeout)
        return count

    def hosts(self) -> tuple[HostInfo, ...]:
        """The worker hosts that have joined the leader."""
        found: tuple[HostInfo, ...] = _ask(self._channel, "hosts")
        return found

    def drain_host(self, name: str) -> bool:
        """Have a host leave in order; False when there is none of this name."""
        found: bool = _ask(self._channel, "drain_host", name)
        return found

    def step_down(self) -> None:
        """Have the leader give the lead to another manager."""
        _ask(self._channel, "step_down")

    def post(self, errand: Callable[[], object]) -> None:
        """Run a callback on the thread for callbacks."""
        self._callback_thread.post(errand)


def _log_parked(id: str, future: Future[Ending]) -> None:
    error = None if future.cancelled() else future.exception()
    if isinstance(error, ProcedureParked):
        logger.warning("callbacks or futures of %s wait on: %s", id, error)


def _ask(channel: ControlChannel, name: str, *arguments: object) -> Any:
    method = METHODS[name]
    return channel.call("call", name, encode(arguments), method.gives, repeatable=method.repeatable).future.result()
