"""Table of waits for ends of procedures, and what tells those that wait.

A wait is a future or an `EndListener`. It is kept by itself, so that a stop can tell it from any thread. It is also
kept by the id of its procedure, in a table that is the manager's alone. So no lock is needed where a signal handler
may interrupt.
"""

from __future__ import annotations

import contextlib
import copy
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import Future, InvalidStateError
from typing import Any

import msgspec

from actorproc.engine.messages import Ending, EndListener, EndWaiter, Patience
from actorproc.errors import ActorprocError, NoReply
from actorproc.model.rows.asks import AskKey

__all__ = [
    "AskListener",
    "AskResult",
    "EndWaiters",
    "OpenWait",
    "fail_as",
    "fail_future",
    "once_more",
    "pass_on",
    "settle_future",
    "take_back",
    "tell_answer",
]


# Looked up once: CPython 3.11 runs Python code for every member that is taken from its enum, and for its hash.
_CALL = Patience.CALL
_PATIENCE = 0.05
"""Seconds for the lock of a future, which is kept for an instant only."""

OpenWait = tuple[str, Patience, EndWaiter]
"""Procedure, patience, and the future or listener."""


class AskResult(msgspec.Struct, frozen=True):
    """Outcome of an ask: the encoded reply, or the end of its procedure without one."""

    reply: bytes
    ending: Ending | None = None


class AskListener(EndListener):
    """Listener that is told the reply to one ask, or the end of its procedure without one."""

    __slots__ = ("ask", "future")

    def __init__(self, ask: AskKey) -> None:
        self.ask = ask
        self.future: Future[AskResult] = Future()

    def set_result(self, found: Ending | AskResult) -> None:
        """Tell it, unless it was told before."""
        if self._leave():
            settle_future(self.future, found if isinstance(found, AskResult) else AskResult(b"", found))

    def heard(self, ending: Ending | None, error: BaseException | None) -> None:
        """Take the reason why no answer comes."""
        del ending
        if error is not None:
            fail_future(self.future, error)


def tell_answer(waiter: Future[Any] | EndListener, id: str, ask: AskKey, value: bytes | None) -> None:
    """Tell one that waits what came of its ask: the encoded reply; "" and None as in `ResolveAsk`."""
    if value:
        settle_future(waiter, AskResult(value))
        return
    why = "it was withdrawn, or is not remembered any more"
    if value is not None:
        why = "the step that took it ended without ctx.reply(…)"
    msg = f"the ask {ask.name!r} ({ask.id}) to {id} has no reply: {why}"
    fail_future(waiter, NoReply(msg, ask=ask.id, id=id))


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


def fail_as(wanted: Future[Any], found: Future[Any]) -> None:
    """Fail a caller's future as another one failed; if that did not, there is nothing to tell."""
    error = found.exception()
    if error is not None:
        fail_future(wanted, error)


def take_back(future: Future[Any], callback: Callable[[Future[Any]], object]) -> None:
    """Have a future not call this any more; the standard library has no method for it.

    Else a future that many wait for in turn, each for a while, would keep all of them until it is done. Then its
    callbacks are being called, from a list that must not get shorter meanwhile: the next one would be left out.
    """
    with future._condition, contextlib.suppress(ValueError):
        if not future.done():
            future._done_callbacks.remove(callback)  # type: ignore[attr-defined]


def once_more(error: ActorprocError) -> ActorprocError:
    """The same error anew: one object that is raised again and again keeps the frames of all who got it."""
    again = copy.copy(error)
    again.__cause__ = error.__cause__
    return again


class EndWaiters:
    """Waits for ends that have not come."""

    def __init__(self) -> None:
        self._open: dict[EndWaiter, tuple[str, Patience]] = {}
        """All of them, for any thread: each leaves when it was told."""
        self._by_id: dict[str, list[tuple[Patience, EndWaiter]]] = {}
        """Waiters that the manager knows of; for the manager's turn alone."""
        self._lock = threading.RLock()  # a signal handler may wait in the middle of its thread's call
        self._shared: dict[str, Future[Any]] = {}
        """One future for all who wait for a procedure at the same time, with the same patience.

        By id, of patient callers with their patience behind a blank, which no id has. Behind that stands the mark of an
        ask, which begins with NUL.
        """

    # ------------------------------------------------------------ any thread
    def shared(self, id: str, patience: Patience, ask: Callable[[], Future[Any]]) -> Future[Any]:
        """The future of the end of procedure `id`; `ask` makes it for the first who waits with this patience."""
        key = id if patience is _CALL else f"{id} {patience:d}"
        with self._lock:
            future = self._shared.get(key)
            if future is None:
                future = self._shared[key] = ask()
                future.add_done_callback(lambda _: self._shared.pop(key, None))
            return future

    def shared_answer(
        self, id: str, ask: AskKey, patience: Patience, wait: Callable[[], Future[AskResult]]
    ) -> Future[AskResult]:
        """The future of what comes of an ask, as `shared`."""
        found: Future[Any] = self.shared(f"{id} {patience:d}{ask.mark}", _CALL, wait)
        return found

    def keep(self, ends: Iterable[tuple[str, EndWaiter]], patience: Patience) -> None:
        """Keep these waits until they were told, so that a stop tells them."""
        for id, waiter in ends:
            if isinstance(waiter, EndListener):
                waiter.wait_in(self._open, id, patience)
            else:
                self._open[waiter] = id, patience
                waiter.add_done_callback(self._drop)

    def drop(self, waiters: Iterable[EndWaiter]) -> None:
        """Forget these waits, untold."""
        for waiter in waiters:
            self._drop(waiter)

    def _drop(self, waiter: EndWaiter) -> None:
        self._open.pop(waiter, None)

    def take_all(self) -> list[OpenWait]:
        """All of them; they are forgotten here."""
        waiting, self._open = self._open, {}
        with self._lock:
            self._shared = {}
        return [(id, patience, waiter) for waiter, (id, patience) in waiting.copy().items()]

    def close(self, error: ActorprocError) -> None:
        """Tell all of them that no end comes."""
        for waiter in self._open.copy():
            fail_future(waiter, error)

    # ------------------------------------------------------------ the manager's turn
    def __contains__(self, id: str) -> bool:
        return id in self._by_id

    def begin(self, id: str, waiter: EndWaiter, patience: Patience = Patience.CALL) -> None:
        """Tell this one the procedure's end when it comes."""
        self._by_id.setdefault(id, []).append((patience, waiter))

    def names(self) -> set[str]:
        """Procedures that are waited for."""
        return set(self._by_id)

    def has_patient(self, id: str) -> bool:
        """A caller waits for this procedure's end also where others are told that it cannot come."""
        return any(patience > _CALL for patience, _ in self._by_id.get(id, ()))

    def fail(self, id: str, error: ActorprocError, least: Patience = Patience.ALWAYS) -> None:
        """Tell those that wait for this procedure's end that it cannot come, but for the more patient than `least`."""
        waiting = self._by_id.pop(id, [])
        if left := [entry for entry in waiting if entry[0] > least]:
            self._by_id[id] = left
        for patience, waiter in waiting:
            if patience <= least:
                fail_future(waiter, error)

    def take(self, id: str) -> list[tuple[Patience, EndWaiter]]:
        """Take the waits for this procedure; they are forgotten here, untold."""
        return self._by_id.pop(id, [])

    def answer(self, id: str, ask: AskKey, value: bytes | None) -> None:
        """Tell those that wait for what comes of an ask."""
        waiting = self._by_id.pop(id, [])
        asking = [entry for entry in waiting if isinstance(entry[1], AskListener) and entry[1].ask == ask]
        if left := [entry for entry in waiting if entry not in asking]:
            self._by_id[id] = left
        for _, waiter in asking:
            tell_answer(waiter, id, ask, value)

    def resolve(self, ending: Ending) -> None:
        """Tell all that wait for this procedure."""
        for _, waiter in self._by_id.pop(ending.record.id, ()):
            settle_future(waiter, ending)
