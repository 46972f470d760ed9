"""Manager's end of one connection: the client's calls are passed on to the engine, and the answers go back.

A connection has two threads, one that reads and one that writes, so a client that does not read delays no other. Its
connection is closed when its unread answers exceed a bound.
"""

from __future__ import annotations

import contextlib
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, Protocol

import msgspec

from actorproc.config import Config
from actorproc.control.checks import MOST_CHANGES, checked_definition, checked_request
from actorproc.control.doors import Entrance, Guest, Stream
from actorproc.control.methods import METHODS, REQUESTS
from actorproc.control.threads import Threads
from actorproc.control.wire import (
    SIGN_OF_LIFE,
    CallAnswer,
    ClientHello,
    RemoteCall,
    Torn,
    decode_as,
    encode,
    error_to,
    framed,
    read_frame,
)
from actorproc.engine.end_waiters import take_back
from actorproc.engine.engine import EngineTree
from actorproc.engine.messages import Patience
from actorproc.engine.runtime.subscription import DigestSubscription, Subscription
from actorproc.errors import InternalError, ManagerStopped, NotAllowed, UsageError
from actorproc.model.ids import check_id
from actorproc.model.messages.events import Submitted
from actorproc.model.rows.asks import AskKey
from actorproc.support.engine_log import engine_logger
from actorproc.workers import fork_guard

__all__ = ["Connection"]

logger = engine_logger("actorproc")

_UNSENT_BYTES = 64 * 1024 * 1024
"""Bytes that may wait for one client before its connection is given up."""
_SLOW = frozenset({"backup", "compact", "reload", "stack"})
_CALLS = 1000
"""Calls of one client that may be without an answer before no more of it are read."""
_WATCHES = 1000
"""Watches of one client."""
_WATCH = tuple[str | None, int | None, int | None, bool, bool, int, float | None]
"""The body of a watch: id, the number of the last change and of the last commit it knows, what it wants, buffer.
Last come the seconds between two digests; None: changes are told one by one."""


class _Server(Protocol):
    """Part of the server that a connection needs."""

    engine: EngineTree
    entrance: Entrance
    config: Config
    hello: ClientHello
    questions: Threads
    errands: Threads
    """For what may take long."""

    def has_left(self, connection: Connection) -> None: ...


class Connection:
    """One client."""

    def __init__(self, server: _Server, guest: Guest) -> None:
        self._server = server
        self._engine = server.engine
        self._guest = guest
        self._stream: Stream | None = None
        """None until it is known who it is."""
        self._outbox: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._waiting = 0
        self._lock = threading.Lock()
        self._closed = False
        self._answered = threading.Condition()
        self._unanswered = 0
        """Calls whose answers have not been decided on; the ends and changes that are waited for do not count."""
        self._submitting: set[str] = set()
        """Ids of this client's submits that are not answered yet."""
        self._leaves: dict[int, Callable[[], None]] = {}
        """Functions that end watches, by the number of the call."""
        self._ends: dict[Callable[[Future[Any]], None], Future[Any]] = {}
        """Waiters for ends and answers, each with its future."""
        self.threads = (
            threading.Thread(target=self._read, name="actorproc-control-read", daemon=True),
            threading.Thread(target=self._write, name="actorproc-control-write", daemon=True),
        )
        fork_guard.guarded(self)

    def start(self) -> None:
        """Find out who it is, greet, then serve."""
        for thread in self.threads:
            thread.start()

    def close(self) -> None:
        """End it. Idempotent, any thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            leaves, self._leaves = list(self._leaves.values()), {}
            ends, self._ends = self._ends, {}
        for tell, future in ends.items():
            take_back(future, tell)
        for leave in leaves:
            leave()
        with self._answered:
            self._answered.notify_all()
        # First: it wakes the reading thread, which a mere close would leave asleep. Then the writing one may close.
        self._guest.hang_up()
        self._outbox.put(None)
        self._server.has_left(self)

    def forget(self) -> None:
        """In a forked copy of the program: else a client would not see that the program has died."""
        with contextlib.suppress(OSError):
            self._guest.close()

    # ------------------------------------------------------------ out
    def _answer(self, number: int, kind: str, body: bytes) -> None:
        frame = framed(CallAnswer(number, kind, msgspec.Raw(body)))
        with self._lock:
            if self._closed:
                return
            self._waiting += len(frame)
            too_much = self._waiting > max(_UNSENT_BYTES, 2 * len(frame))
        self._outbox.put(frame)
        if too_much:
            logger.warning("a client of the control socket reads too slowly; its connection is closed")
            self.close()

    def _write(self) -> None:
        beat = self._server.entrance.beat
        try:
            while (frame := self._next_frame(beat)) is not None:
                assert self._stream is not None  # the first frame greets
                self._stream.sendall(frame)
                with self._lock:
                    self._waiting -= len(frame)
        except OSError as error:
            logger.debug("a connection of a client ended: %s", error)
        self.close()
        self._guest.close()

    def _next_frame(self, beat: float | None) -> bytes | None:
        """The next frame to send; without one for `beat` seconds, a sign of life. None: the end."""
        while True:
            try:
                return self._outbox.get(timeout=beat)
            except queue.Empty:
                if not self._server.entrance.is_fit():
                    return None
                if self._stream is not None:
                    self._stream.sendall(SIGN_OF_LIFE)

    # ------------------------------------------------------------ in
    def _read(self) -> None:
        limit = self._server.config.max_frame
        try:
            stream = self._stream = self._guest.admit()
            if stream is None:
                self.close()
                return
            if not self._server.entrance.is_fit():
                self.close()
                return
            self._answer(0, "hello", encode(self._server.hello))
            while True:
                self._take(decode_as(read_frame(stream, limit), RemoteCall))
        except NotAllowed as error:
            self._guest.turn_away(error)
        except OSError as error:  # not let in: the entrance says so where that is of use
            logger.debug("a connection of a client was not let in: %s", error)
        except (Torn, msgspec.DecodeError) as error:
            if not self._closed:
                logger.debug("a connection of the control socket ended: %s", error)
        except Exception:
            logger.exception("a connection of the control socket failed")
        self.close()

    def _take(self, call: RemoteCall) -> None:
        kinds: dict[str, Callable[[RemoteCall], None]] = {
            "request": self._request,
            "call": self._call,
            "end_of": self._end_of,
            "answer_to": self._answer_to,
            "watch": self._watch,
            "unwatch": self._unwatch,
        }
        try:
            kinds.get(call.kind, _unknown)(call)
        except msgspec.DecodeError as error:
            self._fail(call.number, UsageError(f"{call.name[:40]!r} does not take these arguments: {error}"))
        except ManagerStopped:
            self.close()  # as in `_settle`
        except Exception as error:  # noqa: BLE001 - it is the caller's
            self._fail(call.number, error)

    def _take_turn(self) -> None:
        """Wait while this client has too many calls without an answer. Only the thread that reads from it waits."""
        with self._answered:
            self._answered.wait_for(lambda: self._unanswered < _CALLS or self._closed)
            self._unanswered += 1

    def _give_turn_back(self) -> None:
        with self._answered:
            self._unanswered -= 1
            self._answered.notify()

    def _settle_turn(self, number: int, future: Future[Any]) -> None:
        self._give_turn_back()
        self._settle(number, future)

    def _fail(self, number: int, error: BaseException) -> None:
        self._answer(number, "error", error_to(error))

    def _settle(self, number: int, future: Future[Any]) -> None:
        if future.cancelled():  # the door is being shut
            return
        error = future.exception()
        if isinstance(error, ManagerStopped):
            self.close()  # it goes on with the next manager: a client waits for that one
        elif error is not None:
            self._fail(number, error)
        else:
            try:
                body = encode(future.result())
            except Exception as unsendable:
                # What is raised here is not looked at: without an answer the client would wait for ever.
                logger.exception("the answer to a call of the control socket cannot be sent")
                self._fail(number, InternalError(f"the answer cannot be sent: {unsendable}"))
            else:
                self._answer(number, "ok", body)

    def _request(self, call: RemoteCall) -> None:
        kind = REQUESTS.get(call.name)
        if kind is None:
            msg = f"this manager takes no request {call.name!r:.40}; use the same version on both sides"
            raise UsageError(msg)
        traced = self._engine.tracing is not None
        event = checked_request(decode_as(call.body, kind), self._server.config.max_state, traced=traced)
        ids = frozenset(new.id for new in event.procedures) if isinstance(event, Submitted) else frozenset()
        if isinstance(event, Submitted):
            self._server.entrance.check_types({new.type_name for new in event.procedures}, self._engine.knows)
        self._take_turn()
        with self._lock:
            self._submitting |= ids
        try:
            future = self._engine.ask(lambda reply: msgspec.structs.replace(event, reply=reply))
        except BaseException:
            self._submitted(ids)
            self._give_turn_back()
            raise
        if ids:
            future.add_done_callback(lambda _: self._submitted(ids))
        future.add_done_callback(partial(self._settle_turn, call.number))

    def _submitted(self, ids: frozenset[str]) -> None:
        """These submits are answered."""
        with self._lock:
            self._submitting -= ids

    def _call(self, call: RemoteCall) -> None:
        method = METHODS.get(call.name)
        if method is None:
            msg = f"this manager has no method {call.name!r:.40} for others; use the same version on both sides"
            raise UsageError(msg)
        arguments = decode_as(call.body, method.arguments)
        if call.name == "learn":  # in order: a submit of the class may come next
            self._engine.learn(checked_definition(*arguments))
            self._answer(call.number, "ok", encode(None))
            return
        owner = getattr(self._engine, method.owner) if method.owner else self._engine
        self._take_turn()
        pool = self._server.errands if call.name in _SLOW else self._server.questions
        try:
            future = pool.submit(_shown, getattr(owner, call.name), arguments)
        except RuntimeError:  # the door is being shut
            self.close()
            return
        future.add_done_callback(partial(self._settle_turn, call.number))

    def _end_of(self, call: RemoteCall) -> None:
        id_, patience = decode_as(call.body, tuple[str, Patience])
        with self._lock:
            is_new = id_ in self._submitting
        # A wait that others began before this submit would end in an `UnknownProcedure`.
        watch = self._engine.watch_anew if is_new else self._engine.watch
        self._tell_end(call.number, watch(check_id(id_), patience))

    def _answer_to(self, call: RemoteCall) -> None:
        id_, ask, patience = decode_as(call.body, tuple[str, AskKey, Patience])
        self._tell_end(call.number, self._engine.watch_ask(check_id(id_), ask, patience))

    def _tell_end(self, number: int, future: Future[Any]) -> None:
        def tell(future: Future[Any]) -> None:
            with self._lock:
                self._ends.pop(tell, None)
            self._settle(number, future)

        with self._lock:
            self._ends[tell] = future
        future.add_done_callback(tell)
        if self._closed:  # before it was among those that `close` takes back
            take_back(future, tell)

    # ------------------------------------------------------------ streams
    def _watch(self, call: RemoteCall) -> None:
        id_, since, batch, steps, progress, bound, digest = decode_as(call.body, _WATCH)
        if id_ is not None:
            check_id(id_)
        if call.number in self._leaves or len(self._leaves) >= _WATCHES:
            msg = f"this connection watches as call {call.number} already, or has {_WATCHES} watches; end one first"
            raise UsageError(msg)
        bound = max(1, min(bound, MOST_CHANGES))
        # A mark comes with each commit, which is too much for each of many that watch one procedure.
        marks = id_ is None
        subscription: Subscription
        if digest is not None:
            subscription = DigestSubscription(digest)
        else:
            subscription = Subscription(id_, steps=steps, progress=progress, bound=bound, marks=marks, batch=batch)
        leave = self._engine.subscribe(subscription, since)

        def end() -> None:
            leave()
            subscription.end()

        with self._lock:
            gone = self._closed
            self._leaves[call.number] = end
        if gone:
            end()
            return
        self._pump(call.number, subscription)

    def _pump(self, number: int, subscription: Subscription) -> None:
        """Pass on what is there, and come again when there is more; the thread that changed it does the work."""
        try:
            while True:
                ready, item = subscription.take_now(
                    lambda: _ignore_stopped(self._server.questions, self._pump, number, subscription)
                )
                if not ready:
                    return
                if item is None:
                    self._answer(number, "ok", encode(None))
                    break
                self._answer(number, "change", encode((type(item).__name__, item)))
        except ManagerStopped:
            self.close()
        except Exception as error:  # noqa: BLE001 - it is the watcher's
            self._fail(number, error)
        with self._lock:
            leave = self._leaves.pop(number, None)
        if leave is not None:
            leave()

    def _unwatch(self, call: RemoteCall) -> None:
        with self._lock:
            leave = self._leaves.pop(call.number, None)
        if leave is not None:
            leave()


def _unknown(call: RemoteCall) -> None:
    msg = f"this manager knows no call of the kind {call.kind!r:.40}; use the same version on both sides"
    raise UsageError(msg)


def _ignore_stopped(pool: Threads, work: Callable[..., None], *arguments: object) -> None:
    with contextlib.suppress(RuntimeError):  # the door is being shut
        pool.submit(work, *arguments)


def _shown(method: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """A result as msgpack can hold it: mappings by structs become pairs."""
    result = method(*arguments)
    return list(result.items()) if isinstance(result, dict) else result
