"""A client's connection: calls go out, answers come back, and a lost connection is made again.

A call that may be repeated without harm is sent again to the next manager; one that may not ends in
`OutcomeUnknown`, because nobody can say whether the lost one was heard.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from actorproc.control.wire import (
    HEADER,
    PROTOCOL,
    Answer,
    Call,
    Hello,
    SocketAddress,
    Torn,
    decode_as,
    encode,
    error_from,
    framed,
    peer_uid,
    read_frame,
)
from actorproc.errors import ActorprocError, EngineError, ManagerStopped, OutcomeUnknown
from actorproc.store.directory import OWNER_FILE
from actorproc.store.owner import is_suspended, owner_of
from actorproc.workers import fork_guard

__all__ = ["Channel", "Pending"]

logger = logging.getLogger("actorproc")

_FIRST_PAUSE = 0.02
_LONGEST_PAUSE = 0.5
_LEAST_PATIENCE = 1.0
_LONGEST_GREETING = 10.0
"""Seconds for the greeting of a manager that is there; within these bounds it is the client's patience."""


class Pending:
    """A call that has no answer yet."""

    def __init__(self, call: Call, gives: Any, *, repeatable: bool) -> None:
        self.call = call
        self.gives = gives
        self.repeatable = repeatable
        self.on_change: Callable[[msgspec.Raw], None] | None = None
        """Gets what a stream brings, on the reading thread."""
        self.renew: Callable[[], bytes] | None = None
        """The body when the call is sent again."""
        self.future: Future[Any] = Future()
        self.sent = False


class Channel:
    """Calls to whichever manager runs on a directory. Any thread.

    ``patience`` is how many seconds a call waits for a manager, from the call or from the loss of the connection.
    ``greet`` gives calls to be made first on every new connection.
    """

    def __init__(self, directory: str | os.PathLike[str], *, patience: float, max_frame: int) -> None:
        self._directory = Path(directory)
        self._patience = patience
        self._max_frame = max_frame
        self._lock = threading.Condition()
        self._sending = threading.Lock()
        self._pending: dict[int, Pending] = {}
        self._greetings: list[tuple[str, str, bytes]] = []
        self._number = 0
        self._sock: socket.socket | None = None
        self._connecting = False
        self._closed = False
        self.hello: Hello | None = None
        fork_guard.guarded(self)

    # ------------------------------------------------------------ calls
    def call(
        self,
        kind: str,
        name: str,
        body: bytes,
        gives: Any,
        *,
        repeatable: bool = True,
        on_change: Callable[[msgspec.Raw], None] | None = None,
        renew: Callable[[], bytes] | None = None,
    ) -> Pending:
        """Send a call; its `future` has the answer."""
        with self._lock:
            if self._closed:
                msg = "this client was closed; make another one"
                raise ManagerStopped(msg)
            self._number += 1
            pending = Pending(Call(self._number, kind, name, msgspec.Raw(body)), gives, repeatable=repeatable)
            pending.on_change, pending.renew = on_change, renew
            self._pending[self._number] = pending
            sock = self._sock
            if sock is None:
                try:
                    self._connect_soon()
                except RuntimeError as error:
                    del self._pending[self._number]
                    msg = f"no thread for the connection to the manager: {error}; raise this program's limit of threads"
                    raise EngineError(msg) from error
        if sock is not None:
            with self._sending:
                self._send(sock, pending)
        return pending

    def drop(self, pending: Pending) -> bool:
        """Nobody waits for this call any more; whether it had no answer yet."""
        with self._lock:
            return self._pending.pop(pending.call.number, None) is not None

    def tell(self, kind: str, number: int) -> None:
        """Say something about an earlier call, if there is a connection."""
        sock = self._sock
        if sock is not None:
            with self._sending:
                _send_all(sock, framed(Call(number, kind, "", msgspec.Raw(encode(None)))))

    def greet(self, kind: str, name: str, body: bytes) -> None:
        """Make this call first on every connection to come, and now."""
        with self._lock:
            self._greetings.append((kind, name, body))
        self.call(kind, name, body, Any)

    def close(self) -> None:
        """End it; who waits gets `ManagerStopped`. Idempotent."""
        with self._lock:
            self._closed = True
            sock, self._sock = self._sock, None
            waiting, self._pending = list(self._pending.values()), {}
            self._lock.notify_all()
        if sock is not None:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
        for pending in waiting:
            _fail(pending.future, ManagerStopped("this client was closed"))

    def forget(self) -> None:
        """In a forked copy of the program, which must neither keep the connection alive nor end it.

        Threads that do not exist there may have held the locks.
        """
        self._lock, self._sending = threading.Condition(), threading.Lock()
        self._connecting, self._pending = False, {}
        sock, self._sock = self._sock, None
        if sock is not None:
            sock.close()

    @property
    def _most(self) -> int:
        """Bytes that a frame may have: a manager that is sent more hangs up, and would be sent it again."""
        return self._max_frame if self.hello is None else min(self._max_frame, self.hello.max_frame + HEADER.size)

    def _send(self, sock: socket.socket, pending: Pending) -> None:
        """Called with the right to send."""
        call = pending.call
        if pending.sent and pending.renew is not None:
            call = msgspec.structs.replace(call, body=msgspec.Raw(pending.renew()))
        pending.sent = True
        frame = framed(call)
        if len(frame) > self._most:
            self.drop(pending)
            msg = f"a call of {len(frame)} bytes is longer than a frame may be ({self._most}); send less at a time"
            _fail(pending.future, EngineError(msg))
            return
        _send_all(sock, frame)

    # ------------------------------------------------------------ the connection
    def _connect_soon(self) -> None:
        """Called with the lock held."""
        if not self._connecting and not self._closed:
            thread = threading.Thread(target=self._live, name="actorproc-client", daemon=True)
            thread.start()
            self._connecting = True

    def _live(self) -> None:
        """Connect, read to the end of the connection, and again while somebody waits."""
        goes_on = True
        while goes_on:
            try:
                with self._connect() as sock:
                    if self._begin(sock):
                        self._read(sock)
                goes_on = self._end()
            except ActorprocError as error:
                self._give_up(error)
                return
            except BaseException as error:
                logger.exception("reading from the manager at %s failed; the next call connects again", self._directory)
                self._end()
                self._give_up(EngineError(f"reading from the manager failed: {type(error).__name__}: {error}"))
                return

    def _begin(self, sock: socket.socket) -> bool:
        """Greet, and send again what has no answer; False when the client was closed meanwhile."""
        with self._sending:
            with self._lock:
                if self._closed:
                    return False
                self._sock = sock
                again = list(self._pending.values())
                greetings = list(self._greetings)
            for kind, name, body in greetings:
                frame = framed(Call(0, kind, name, msgspec.Raw(body)))
                if len(frame) <= self._most:
                    _send_all(sock, frame)
                else:
                    msg = (
                        "a class of %d bytes is not told the manager, which takes %d (Config.max_frame); it is unknown"
                    )
                    logger.warning(msg, len(frame), self._most)
            for pending in again:
                self._send(sock, pending)
        return True

    def _end(self) -> bool:
        """The connection is lost: give up what must not be repeated; True when others still wait."""
        with self._lock:
            self._sock = None
            lost = [one for one in self._pending.values() if one.sent and not one.repeatable]
            for one in lost:
                del self._pending[one.call.number]
            self._connecting = bool(self._pending) and not self._closed
            goes_on = self._connecting
        for one in lost:
            msg = f"the manager went away while {one.call.name!r} was asked; look at the procedure, and ask again"
            _fail(one.future, OutcomeUnknown(msg))
        return goes_on

    def _connect(self) -> socket.socket:
        deadline = time.monotonic() + self._patience
        pause = _FIRST_PAUSE
        while True:
            try:
                return self._try_to_connect(deadline - time.monotonic())
            except (OSError, Torn) as error:
                left = deadline - time.monotonic()
                if left <= 0 or self._closed:
                    raise ManagerStopped(self._unanswered(error)) from error
                with self._lock:
                    self._lock.wait_for(lambda: self._closed, min(pause, left))
                pause = min(2 * pause, _LONGEST_PAUSE)

    def _unanswered(self, error: Exception) -> str:
        waited = f"(waited {self._patience:g} s): {error}"
        owner = owner_of(self._directory / OWNER_FILE)
        if owner is None:
            here = f"no manager answers at {self._directory} {waited}"
            return f"{here}. Start one on this directory, or give the client more patience"
        resume = f"is suspended (kill -CONT {owner.pid})"
        state = resume if is_suspended(owner) else "is starting, stopping or overloaded"
        here = f"process {owner.pid} has the store {self._directory} and does not answer {waited}"
        return f"{here}. It {state}, or lets nobody in (Config.control)"

    def _try_to_connect(self, patience: float) -> socket.socket:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            # Also for connecting: a suspended manager takes nobody out of the line before its door, which gets full.
            sock.settimeout(min(max(patience, _LEAST_PATIENCE), _LONGEST_GREETING))
            with SocketAddress(self._directory) as address:
                sock.connect(address)
            self._check_user(sock)
            answer: Answer = decode_as(read_frame(sock, self._max_frame), Answer)
            sock.settimeout(None)
            self.hello = _checked(answer)
        except PermissionError as error:
            sock.close()
            raise EngineError(f"no permission to reach the manager at {self._directory}: {error}") from error
        except msgspec.DecodeError as error:
            sock.close()
            raise EngineError(f"what answers at {self._directory} is no actorproc manager: {error}") from error
        except BaseException:
            sock.close()
            raise
        return sock

    def _check_user(self, sock: socket.socket) -> None:
        """Raise `EngineError` when another user opened the door that is knocked at."""
        user = peer_uid(sock)
        if user != os.geteuid():
            msg = f"what answers at {self._directory} belongs to user {user}; it is told nothing"
            raise EngineError(msg)

    def _give_up(self, error: ActorprocError) -> None:
        with self._lock:
            self._connecting, self._sock = False, None
            waiting, self._pending = list(self._pending.values()), {}
        for pending in waiting:
            _fail(pending.future, error)

    def _read(self, sock: socket.socket) -> None:
        try:
            while True:
                self._hear(decode_as(read_frame(sock, 2**32 - 1), Answer))
        except (Torn, msgspec.DecodeError) as error:
            logger.debug("the connection to the manager at %s ended: %s", self._directory, error)

    def _hear(self, answer: Answer) -> None:
        with self._lock:
            pending = self._pending.get(answer.number)
            if pending is not None and answer.kind != "change":
                del self._pending[answer.number]
        if pending is None:
            return
        if answer.kind == "change":
            if pending.on_change is not None:
                pending.on_change(answer.body)
        elif answer.kind == "error":
            _fail(pending.future, error_from(answer.body))
        else:
            try:
                pending.future.set_result(decode_as(answer.body, pending.gives))
            except msgspec.DecodeError as error:
                _fail(pending.future, EngineError(f"the manager's answer cannot be read: {error}"))


def _fail(future: Future[Any], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)


def _send_all(sock: socket.socket, data: bytes) -> None:
    try:
        sock.sendall(data)
    except BaseException as error:  # Ctrl-C, too: half a frame is out, and whatever came next would be its other half
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)  # the reading thread sees it, and takes care of what has no answer
        if not isinstance(error, OSError):
            raise


def _checked(answer: Answer) -> Hello:
    """The manager's greeting. Raises its refusal, or ours."""
    if answer.kind == "error":
        raise error_from(answer.body)
    hello: Hello = decode_as(answer.body, Hello)
    if hello.protocol != PROTOCOL:
        msg = f"the manager (pid {hello.pid}) speaks protocol {hello.protocol}, this client {PROTOCOL}"
        raise EngineError(f"{msg}; use the same version of actorproc on both sides")
    return hello
