"""Table of waiting callers: of verbs by number, of handles by procedure id.

Futures are our own, not Pykka's, so that a stop can fail all of them.
"""

from __future__ import annotations

import contextlib
import copy
import itertools
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from typing import Any, NamedTuple

from actorproc.engine.messages import Ending, EndListener, Patience
from actorproc.errors import ActorprocError, NotAllowed

__all__ = [
    "ReplyTable",
    "SharedEnds",
    "Waiters",
    "WaitingForEnds",
    "fail_future",
    "pass_on",
    "settle_future",
    "take_back",
]


# Looked up once: CPython 3.11 runs Python code for every member that is taken from its enum, and for its hash.
_CALL = Patience.CALL
_PATIENCE = 0.05
"""Seconds for the lock of a future, which is kept for an instant only."""


def settle_future(future: Future[Any] | EndListener, value: Any) -> None:
    """Set a result; a future that its caller cancelled or that was failed before stays as it is."""
    _tell(future, future.set_result, value)


def fail_future(future: Future[Any] | EndListener, error: BaseException) -> None:
    """Set an exception, as `settle_future`."""
    _tell(future, future.set_exception, error)


def _tell(future: Future[Any] | EndListener, tell: Callable[[Any], None], what: Any) -> None:
    """Tell it; on a thread of its own where its lock is taken.

    A thread that is about to wait for a future has its lock for an instant. A signal handler that runs in it, and stops
    the engine, waits for the caller of this, with the lock in the hands of its own thread.
    """
    if isinstance(future, Future):
        if not future._condition.acquire(timeout=_PATIENCE):
            with contextlib.suppress(RuntimeError):  # no more threads: wait for it after all
                threading.Thread(target=_told, args=(tell, what), name="actorproc-answer", daemon=True).start()
                return
        else:
            future._condition.release()  # its callbacks must not run under it
    _told(tell, what)


def _told(tell: Callable[[Any], None], what: Any) -> None:
    with contextlib.suppress(InvalidStateError):
        tell(what)


def pass_on(wanted: Future[Any] | EndListener, found: Future[Any]) -> None:
    """Settle a caller's future as another one ended; one that a stop has failed meanwhile stays as it is."""
    error = found.exception()
    if error is not None:
        fail_future(wanted, error)
    else:
        settle_future(wanted, found.result())


def take_back(future: Future[Any], callback: Callable[[Future[Any]], object]) -> None:
    """Have a future not call this any more; the standard library has no method for it.

    Else a future that many wait for in turn, each for a while, would keep all of them until it is done. Then its
    callbacks are being called, from a list that must not get shorter meanwhile: the next one would be left out.
    """
    with future._condition, contextlib.suppress(ValueError):
        if not future.done():
            future._done_callbacks.remove(callback)  # type: ignore[attr-defined]


def _once_more(error: ActorprocError) -> ActorprocError:
    """The same error anew: one object that is raised again and again keeps the frames of all who got it."""
    again = copy.copy(error)
    again.__cause__ = error.__cause__
    return again


class ReplyTable:
    """Callers waiting for an answer. Thread-safe; once closed it refuses and fails everything with one error.

    Without a lock, for a signal handler that stops the engine may run in the middle of any of this: who is kept looks
    afterwards whether the table was closed, and who closes it does that first.
    """

    def __init__(self) -> None:
        self._waiting: dict[int, Future[Any]] = {}
        self._listening: dict[EndListener, str] = {}
        """Listeners, with the id of their procedure."""
        self._numbers = itertools.count(1)
        self._closed: list[ActorprocError] = []
        """Reasons for closing it; the first counts."""
        self.answered_by: set[int] = set()
        """The threads that give the answers at this moment, and must not wait for one."""

    def open(self) -> tuple[int, Future[Any]]:
        """A number for the event and the future its answer comes in."""
        future: Future[Any] = Future()
        return self._keep(future), future

    def add(self, future: Future[Any]) -> int:
        """Keep a caller's own future, so that a stop fails it; returns its number."""
        number = self._keep(future)
        future.add_done_callback(lambda _: self._waiting.pop(number, None))
        return number

    def _keep(self, future: Future[Any]) -> int:
        if threading.get_ident() in self.answered_by and not self._closed:
            msg = (
                "this was asked on the manager's own thread, by a log handler or in __del__, and would wait there for "
                "an answer of that thread for ever; have a thread of yours ask"
            )
            raise NotAllowed(msg)
        number = next(self._numbers)
        self._waiting[number] = future
        if self._closed:
            self._waiting.pop(number, None)
            raise _once_more(self._closed[0])
        return number

    def listen(self, ends: Iterable[tuple[str, EndListener]]) -> None:
        """Keep these listeners, each with its procedure, until they have heard, so that a stop tells them."""
        listening, kept = self._listening, list(ends)
        for id, listener in kept:
            listener.wait_in(listening, id)
        if self._closed:
            for _, listener in kept:
                listening.pop(listener, None)
            raise _once_more(self._closed[0])

    def settle(self, number: int, value: object) -> None:
        """Answer with a value; unknown numbers are ignored (the caller was failed before)."""
        future = self._waiting.pop(number, None)
        if future is not None:
            settle_future(future, value)

    def fail(self, number: int, error: ActorprocError) -> None:
        """Answer with an error."""
        future = self._waiting.pop(number, None)
        if future is not None:
            fail_future(future, error)

    def close_but_for(self, ends: SharedEnds, error: ActorprocError) -> WaitingForEnds:
        """As `close`, but for those who wait for an end, which are returned and not told."""
        self._closed.append(error)
        futures = ends.taken()
        excepted = {id(future) for _, _, future in futures}
        for number, future in list(self._waiting.copy().items()):
            if id(future) in excepted:
                self._waiting.pop(number, None)
        listeners, self._listening = self._listening, {}
        self.close(error)
        return WaitingForEnds(futures, listeners)

    def close(self, error: ActorprocError) -> None:
        """Fail every waiting caller and all who come later. The first error stays."""
        self._closed.append(error)
        waiting: list[Future[Any] | EndListener] = [*self._waiting.copy().values(), *self._listening.copy()]
        self._waiting.clear()
        for future in waiting:
            fail_future(future, self._closed[0])


class WaitingForEnds(NamedTuple):
    """Callers that wait for ends of procedures when the engine stops, and whom another engine is to tell."""

    futures: list[tuple[str, Patience, Future[Ending]]]
    listeners: dict[EndListener, str]

    def fail(self, error: BaseException) -> None:
        """Tell all of them that there is no other engine."""
        for _, _, future in self.futures:
            fail_future(future, error)
        for listener in self.listeners.copy():
            fail_future(listener, error)


class SharedEnds:
    """Futures of ends that have not come: one for all who wait for a procedure at the same time. Thread-safe.

    Callers with another patience share another one.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may wait in the middle of its thread's call
        self._waiting: dict[str, Future[Ending]] = {}
        """By id, of patient callers with their patience behind a blank, which no id has."""

    def of(self, id: str, patience: Patience, ask: Callable[[], Future[Ending]]) -> Future[Ending]:
        """The future of the end of procedure `id`; `ask` makes it for the first who waits."""
        key = id if patience is _CALL else f"{id} {patience:d}"
        with self._lock:
            future = self._waiting.get(key)
            if future is None:
                future = self._waiting[key] = ask()
                future.add_done_callback(lambda _: self._waiting.pop(key, None))
            return future

    def taken(self) -> list[tuple[str, Patience, Future[Ending]]]:
        """All of them, with procedure and patience; they are forgotten here."""
        with self._lock:
            waiting, self._waiting = self._waiting, {}
        found = [(*key.partition(" ")[::2], future) for key, future in waiting.items()]
        return [(id, Patience(int(patience)) if patience else _CALL, future) for id, patience, future in found]


class Waiters:
    """Futures of handles, and listeners, by procedure id. Used while holding the manager's turn only."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[Future[Ending] | EndListener]] = {}
        self._patient: dict[str, list[tuple[Patience, Future[Ending] | EndListener]]] = {}
        """Waits that go on where others are told that the end cannot come."""

    def __contains__(self, id: str) -> bool:
        return id in self._waiting or id in self._patient

    def add(
        self,
        id: str,
        future: Future[Ending] | EndListener,
        patience: Patience = Patience.CALL,
    ) -> None:
        """Wait for this procedure's end."""
        if patience is _CALL:
            self._waiting.setdefault(id, []).append(future)
        else:
            self._patient.setdefault(id, []).append((patience, future))

    def names(self) -> set[str]:
        """Procedures that are waited for."""
        return {*self._waiting, *self._patient}

    def has_patient(self, id: str) -> bool:
        """A caller waits for this procedure's end however long it takes."""
        return id in self._patient

    def fail(self, id: str, error: ActorprocError, least: Patience = Patience.ALWAYS) -> None:
        """Tell those that wait for this procedure's end that it cannot come, but for the more patient than `least`."""
        for future in self._waiting.pop(id, ()):
            fail_future(future, error)
        if id in self._patient and least is not _CALL:
            told = [entry for entry in self._patient[id] if entry[0] <= least]
            left = [entry for entry in self._patient[id] if entry[0] > least]
            if left:
                self._patient[id] = left
            else:
                del self._patient[id]
            for _, future in told:
                fail_future(future, error)

    def resolve(self, ending: Ending) -> None:
        """Tell all that wait for this procedure."""
        for future in self._waiting.pop(ending.record.id, ()):
            settle_future(future, ending)
        if self._patient:
            for _, future in self._patient.pop(ending.record.id, ()):
                settle_future(future, ending)
