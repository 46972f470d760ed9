"""Between the callers of an executor and its manager: calls go in together, ends come out one by one.

Two daemon threads, started at the first call. The *sender* takes all calls that came while the last commit was under
way and submits them in one commit. The *receiver* (`receiver.py`) turns ends into results. Neither knows the executor
itself, so that one that is dropped can be collected.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import wait

import msgspec

from actorproc.api.handle import late
from actorproc.api.manager import ProcedureManager
from actorproc.api.queries import Queries
from actorproc.errors import ActorprocError, DuplicateProcedure, ManagerBusy, ManagerStopped
from actorproc.executor.futures import CallBatch, DurableFuture
from actorproc.executor.receiver import AnyFuture, EndReceiver
from actorproc.executor.taken import Taken
from actorproc.model.messages.events import AbortRequested, Submitted
from actorproc.model.policies import StepLimits
from actorproc.model.rows.records import IdReuse, NewProcedure, Trace
from actorproc.model.states import Phase
from actorproc.procedure.authoring.call import Call, PickledCall
from actorproc.support import trace_scope

__all__ = ["CallQueue", "on_its_way"]

logger = logging.getLogger("actorproc")

_MOST_CALLS = 1000
_MOST_BYTES = 4 * 1024 * 1024
"""One commit takes no more than this, so that it stays short."""
_TAKEN_PAUSE = 0.1
"""Seconds between looks at what was taken."""
_BUSY_PAUSE = 0.05
"""Seconds between tries while the manager has no room for more procedures (`ManagerBusy`)."""


class CallQueue:
    """Calls on their way. May be used from any thread."""

    def __init__(
        self,
        manager: ProcedureManager,
        setup: bytes,
        priority: int,
        tags: tuple[str, ...],
        *,
        is_own: bool,
        watch: Callable[[CallQueue], threading.Thread],
    ) -> None:
        self._manager = self.manager = manager
        self._is_own = is_own
        self._setup = setup
        self._priority = priority
        self._tags = tags
        # Reentrant: a signal handler, or `__del__` of what the collector finds, may cancel in the middle of a submit.
        self._lock = threading.RLock()
        self._news = threading.Condition(self._lock)
        self._all_done = threading.Condition(self._lock)
        self._open = CallBatch()
        self._full: deque[CallBatch] = deque()
        self._held: CallBatch | None = None
        """The one for which the manager has no room, between two tries."""
        self._unfinished: dict[AnyFuture, None] = {}
        self._taken = Taken(manager)
        self.receiver = EndReceiver(manager, self._count_off)
        self._threads: tuple[threading.Thread, ...] = ()
        self._closing = self._is_asleep = False
        self._watch, self._is_watched = watch, False
        self._watcher: threading.Thread | None = None
        self.over = threading.Event()
        """The executor has ended, so its watcher may."""
        self.is_left = False
        """The program was interrupted: it waits for no call any more."""
        self.is_finishing = False
        """The executor was shut down or dropped: what it has is awaited."""
        self.pid = os.getpid()
        """The process that makes calls."""
        self.dropped: object = None
        """The executor's weak reference to itself, kept where it outlives the executor."""

    # ------------------------------------------------------------ callers
    def put(
        self,
        id: str,
        call: PickledCall,
        name: str,
        limits: StepLimits | None = None,
        *,
        alone: bool = False,
        reuse: IdReuse | None = None,
    ) -> AnyFuture:
        """Queue a call; `alone` in a commit of its own, because its id may be refused."""
        with self._lock:
            self._refuse_when_closed()
            self._start()
            batch = CallBatch() if alone else self._open
            future: AnyFuture = DurableFuture(id, self, batch)
            future.is_named = alone
            if self._manager._tracing is not None:
                future.trace = trace_scope.current()
            if reuse is not None:
                future.reuse = reuse
            batch.calls.append((future, call, name, not alone, limits))
            batch.size += len(call) if isinstance(call, bytes) else sum(map(len, call))
            self._unfinished[future] = None
            if not self._is_watched:
                self._is_watched = True
                self._watcher = self._watch(self)
            if alone:
                self._turn_over()
                self._full.append(batch)
            elif len(batch.calls) >= _MOST_CALLS or batch.size >= _MOST_BYTES:
                self._turn_over()
            self._news.notify()
        return future

    def _refuse_when_closed(self) -> None:
        if self._closing:  # a signal handler in the middle of this call has shut the executor down
            msg = "cannot schedule new futures after shutdown"
            raise RuntimeError(msg)

    @property
    def is_interrupted(self) -> bool:
        """True while this thread is inside one of these methods: it must not wait for a thread that needs its lock."""
        return bool(self._lock._is_owned())  # type: ignore[attr-defined]  # as conditions ask it

    def _turn_over(self) -> None:
        if self._open.calls:
            full, self._open = self._open, CallBatch()
            self._full.append(full)

    def attach(self, id: str) -> AnyFuture:
        """The future of a call that is stored already."""
        future: AnyFuture = DurableFuture(id, self, None)
        tree = self._manager._running()
        with self._lock:
            self._refuse_when_closed()
            self._start()
            self._unfinished[future] = None
        try:
            self.receiver.watch(tree, [future])
        except BaseException:  # the manager was stopped meanwhile
            self._count_off((future,))
            raise
        return future

    def cancel(self, future: AnyFuture) -> bool:
        """Cancel a call no worker has yet: one that is not sent at once, else by aborting its procedure."""
        if os.getpid() != self.pid:
            return False  # a forked copy: the call is the parent's, and what is locked here may stay so
        if self._withdraw(future):
            return True
        if _on_event_loop() or self.is_interrupted:
            threading.Thread(target=self._abort, args=([future],), name="actorproc-cancel", daemon=True).start()
            return False
        self._abort([future])
        return future.cancelled()

    def cancel_waiting(self) -> None:
        """Cancel every call that no worker has yet, the newest first.

        The oldest ones, as many as there are workers, count as begun: they would be if nothing were stored first.
        """
        with self._lock:
            futures = list(reversed(self._unfinished))[: -self._manager._slots]
        self.cancel_each(futures)

    def cancel_each(self, futures: Iterable[AnyFuture]) -> None:
        """Cancel those of these that no worker has yet, all at once."""
        if os.getpid() != self.pid:
            return
        left = [future for future in futures if not self._withdraw(future) and not future.done()]
        if self.is_interrupted:
            self.receiver.do(functools.partial(self._abort, left))
        else:
            self._abort(left)

    def cancel_soon(self, futures: list[AnyFuture]) -> None:
        """As `cancel_each`, on a thread of its own. Waits for nothing and takes no lock."""
        self.receiver.do(functools.partial(self.cancel_each, futures))

    def is_running(self, id: str) -> bool:
        """A worker has the call."""
        try:
            return self._manager.info(id).phase is Phase.RUNNING
        except ActorprocError:
            return False

    def took(self, id: str) -> None:
        """The program has the outcome of this call: what is stored of it goes soon."""
        self._taken.add(id)
        if self._is_asleep:
            with self._lock:
                self._news.notify()

    def late(self, id: str, timeout: float | None) -> TimeoutError:
        """The error of a wait for this call whose time is up."""
        return late(id, timeout, self._manager._glance(id))

    def finish(self, look: Callable[[], object] = int, every: float | None = None) -> None:
        """Wait until every call has ended, and end the threads. Nothing is taken from then on.

        ``look`` is called after each ``every`` seconds of waiting, and ends it by raising.
        """
        with self._lock:
            while self._unfinished:
                if not self._all_done.wait(every):
                    look()
            self._closing = True
            self._news.notify()
            threads = self._threads
        if threads:
            sender, receiver = threads
            if threading.current_thread() not in threads:
                sender.join()
            self._taken.drop_all()
            self.receiver.leave()
            self.over.set()
            if threading.current_thread() not in threads:
                receiver.join()
                if self._watcher is not None:
                    self._watcher.join()

    # ------------------------------------------------------------ leaving
    @property
    def unfinished(self) -> list[AnyFuture]:
        """Futures of the calls that have not ended."""
        with self._lock:
            return list(self._unfinished)

    def needs_no_watch(self) -> bool:
        """Every call has ended, so nothing is lost with the program: the next call has it watched again."""
        with self._lock:
            self._is_watched = bool(self._unfinished) and not self.is_left
            return not self._is_watched

    # ------------------------------------------------------------ cancelling
    def _withdraw(self, future: AnyFuture) -> bool:
        """Take a call out of a batch that has not been sent, or was refused for want of room."""
        with self._lock:
            batch = future._batch  # not that of a part of it that was stored
            is_here = batch is not None and (batch is self._open or batch is self._held or batch in self._full)
            if not is_here or not future.claim():
                return False
            assert batch is not None
            batch.calls.remove(next(entry for entry in batch.calls if entry[0] is future))
        future.cancel_now()
        self._count_off((future,))
        return True

    def _abort(self, futures: list[AnyFuture]) -> None:
        """Abort the procedures of those that no worker has."""
        self._await_sent(futures)
        # Without a running manager nothing is cancelled, and nothing need be: the futures know that it stopped.
        with contextlib.suppress(ActorprocError):
            tree = self._manager._running()
            heads = tree.store.procedures([future.id for future in futures])
            # One that runs is left alone: it would be asked to abort, and would say no.
            running = {seen.record.id for seen in tree.describe(tuple(heads)) if seen.phase is Phase.RUNNING}
            asked = [
                (future, tree.ask(functools.partial(AbortRequested, future.id)))
                for future in futures
                if future.id not in running and not future.done()
            ]
            for future, reply in asked:
                ending = Queries(tree).ending(future.id) if reply.exception() is None else None
                if ending is not None:
                    if self.receiver.deliver(future, ending):
                        self._count_off((future,))
                    wait([future])  # the receiver may have been first, and be about to set it

    def _await_sent(self, futures: list[AnyFuture]) -> None:
        """Wait until all are stored or refused, as an abort must come after its submit.

        Those for which the manager has no room are withdrawn meanwhile.
        """
        while (batch := next(filter(None, map(on_its_way, futures)), None)) is not None:
            with contextlib.suppress(TimeoutError):
                batch.durable.exception(_BUSY_PAUSE / 2)
                continue
            for future in futures:
                self._withdraw(future)

    # ------------------------------------------------------------ sender
    def _start(self) -> None:
        if self._threads:
            return
        sender = threading.Thread(target=self._work, args=(self._send_all,), name="actorproc-calls", daemon=True)
        receiver = threading.Thread(target=self._work, args=(self.receiver.run,), name="actorproc-results", daemon=True)
        try:
            self._threads = (sender, receiver)
            receiver.start()
            sender.start()
        except BaseException:  # the system has no more threads, or Ctrl-C: the caller is told, and may try again
            self._threads = ()
            raise

    def _work(self, work: Callable[[], None]) -> None:
        with self._lock:  # the starting thread has it: so it is decided whether this is one of the two
            if threading.current_thread() not in self._threads:
                return
        work()

    def _send_all(self) -> None:
        if self._is_own:
            # It has started, unless a signal handler submitted while it does: then this waits. What it raises is
            # raised to the caller who starts it, and every batch is told that the manager does not run.
            with contextlib.suppress(ActorprocError):
                self._manager.start()
        while (batch := self._next()) is not None:
            self._send(batch)
            del batch  # with its futures: results belong to the callers alone

    def _next(self) -> CallBatch | None:
        with self._lock:
            self._taken.drop_some()
            while not self._full and not self._open.calls and not self._closing:
                # While calls are under way results are taken at any time: to be woken for each would take longer.
                patience = _TAKEN_PAUSE if self._unfinished or self._taken.is_busy else None
                self._is_asleep = patience is None
                self._news.wait(patience)
                self._is_asleep = False
                self._taken.drop_some()
            if self._full:
                return self._full.popleft()
            if not self._open.calls:
                return None
            batch, self._open = self._open, CallBatch()
            return batch

    def _send(self, batch: CallBatch) -> None:
        try:
            news, futures = self._described(batch)
            size = len(news)
            while news:
                if self._submitted(news[:size], futures[:size]):
                    for future in futures[:size]:
                        future.stored()
                    del news[:size], futures[:size]
                    batch = self._parted(batch, futures)
                elif size > 1:
                    size //= 2  # there may be room for fewer
                else:
                    left = self._pause(batch)
                    kept = [(new, future) for new, future in zip(news, futures, strict=True) if future in left]
                    news, futures = [new for new, _ in kept], [future for _, future in kept]
            batch.durable.set_result(None)
        except BaseException as error:  # noqa: BLE001 - whatever it is, waiting callers must get it
            self._refuse(batch, error)

    def _parted(self, batch: CallBatch, left: list[AnyFuture]) -> CallBatch:
        """The rest of a batch of which a part is stored; who waits for that part need not wait for the rest."""
        if not left:
            return batch
        rest, staying = CallBatch(), set(left)
        with self._lock:
            rest.calls = [entry for entry in batch.calls if entry[0] in staying]
            for future in left:
                future._batch = rest
        batch.durable.set_result(None)
        return rest

    def _pause(self, batch: CallBatch) -> set[AnyFuture]:
        """Wait before the next try, and let calls be withdrawn meanwhile; those that were not."""
        with self._lock:
            self._held = batch
        time.sleep(_BUSY_PAUSE)
        with self._lock:
            self._held = None
            return {entry[0] for entry in batch.calls}

    def _submitted(self, news: list[NewProcedure], futures: list[AnyFuture]) -> bool:
        """Submit these in one commit; False when the manager has no room for them. Raises any other refusal."""
        tree = self._manager._running()
        try:
            refused = tree.ask(functools.partial(Submitted, tuple(news)), self.receiver.listeners(futures)).exception()
        except ManagerStopped as error:
            refused = error
        if isinstance(refused, ManagerStopped) and self._manager._successor is not None:
            # The engine stopped for another one, which may find them stored: they were in one commit.
            tree = self._manager._running()
            if news[0].reuse is not None or tree.store.procedure(news[0].id) is None:
                return self._submitted(news, futures)
            self.receiver.watch(tree, futures)
            return True
        if refused is None or isinstance(refused, ManagerBusy):
            return refused is None
        if isinstance(refused, DuplicateProcedure) and len(news) == 1 and news[0].reuse is None:
            # A call of the same id was under way: that one it is, whatever its arguments, as when it is there already.
            known = tree.store.procedure(news[0].id)
            if known is not None and known.type_name == Call.type_name:
                self.receiver.watch(tree, futures)
                return True
        raise refused

    def _described(self, batch: CallBatch) -> tuple[list[NewProcedure], list[AnyFuture]]:
        """The procedures of a batch; a call that cannot be stored (too large) fails by itself."""
        # As `ProcedureManager._describe` does it, but what is the same for all calls was checked once.
        describe = self._manager._types.runtime_of(Call(b"")).describe
        priority, tags = self._priority, self._tags
        news, futures = [], []
        for future, call, name, is_fresh, limits in batch.calls:
            try:
                new = describe(
                    Call(call, self._setup), id=future.id, fresh=is_fresh, owner=name, priority=priority, tags=tags
                )
                if future.reuse is not None:
                    new = msgspec.structs.replace(new, reuse=future.reuse)
                if future.trace:
                    new = msgspec.structs.replace(new, trace=Trace(future.trace))
                if limits is not None:
                    new = msgspec.structs.replace(new, limits=limits)
                self._manager._check_size(new, of_call=True)
            except ActorprocError as error:
                self._refuse_one(future, error)
            else:
                news.append(new)
                futures.append(future)
        return news, futures

    def _refuse(self, batch: CallBatch, error: BaseException) -> None:
        for future, *_ in batch.calls:
            if future._batch is not None:  # what is stored already goes on, and its end is watched for
                self._refuse_one(future, error)
        batch.durable.set_exception(error)

    def _refuse_one(self, future: AnyFuture, error: BaseException) -> None:
        """Let the receiver tell it: callbacks may ask for what this thread is to do next."""
        future.refused(error)
        self.receiver.refuse(future, error)

    def _count_off(self, over: Iterable[AnyFuture]) -> None:
        """Count off calls that have ended and whose callers know."""
        with self._lock:
            for future in over:
                self._unfinished.pop(future, None)
            if not self._unfinished:
                self._all_done.notify_all()


def on_its_way(future: AnyFuture) -> CallBatch | None:
    """The batch with which a call will be stored, or has not been refused yet."""
    while (batch := future._batch) is not None and not future.done():
        if not batch.durable.done():
            return batch
        if future._batch is batch:  # else it went into the rest of that batch meanwhile
            return None
    return None


def _on_event_loop() -> bool:
    asyncio = sys.modules.get("asyncio")
    return asyncio is not None and asyncio._get_running_loop() is not None
