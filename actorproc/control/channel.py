"""Client's end of the control socket: calls go out, answers come back, and a lost connection is made again.

A call that may be repeated without harm is sent again to the next manager. Any other ends in `OutcomeUnknown`, because
it is not known whether the lost manager has taken it. A request that a manager cannot take at the moment is sent again
within the patience.
"""

from __future__ import annotations

import itertools
import logging
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import msgspec

from actorproc.control.doors import Stream, Way
from actorproc.control.interruption import refuse_whom_it_interrupts
from actorproc.control.pending import Pending
from actorproc.control.wire import (
    HEADER,
    PROTOCOL,
    CallAnswer,
    ClientHello,
    RemoteCall,
    Torn,
    decode_as,
    encode,
    error_from,
    framed,
    read_frame,
)
from actorproc.engine.end_waiters import settle_future
from actorproc.errors import ActorprocError, EngineError, ManagerStopped, OutcomeUnknown
from actorproc.workers import fork_guard

__all__ = ["ControlChannel"]

logger = logging.getLogger("actorproc")

_FIRST_PAUSE = 0.02
_LONGEST_REFUSAL = 1.0
"""Seconds at most until a request is sent again that the manager could not take."""
_LEAST_PATIENCE = 1.0
"""Also the seconds that a connection must have stood to be good for anything; calls may wait longer for answers."""
_LONGEST_GREETING = 10.0
"""Seconds for the greeting of a manager that is there; within these bounds it is the client's patience."""


class ControlChannel:
    """Calls to whichever manager runs at the end of a way. Any thread.

    ``patience`` is how many seconds a call waits for a manager, from the call or from the loss of the connection.
    ``greet`` gives calls to be made first on every new connection.
    """

    def __init__(self, way: Way, *, patience: float, max_frame: int) -> None:
        self._way = way
        self._patience = patience
        self._max_frame = max_frame
        self._lock = threading.Condition()
        self._sending = threading.RLock()
        self._pending: dict[int, Pending] = {}
        self._refused: list[Pending] = []
        """Pending calls that are to be sent again when the timer ends."""
        self._timer: threading.Timer | None = None
        self._greetings: list[tuple[str, str, bytes]] = []
        self._numbers = itertools.count(1)
        self._stream: Stream | None = None
        self._connecting = False
        self._reader: threading.Thread | None = None
        self._closed = False
        self.hello: ClientHello | None = None
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
        refuse_whom_it_interrupts(self._lock, self._sending)
        call, deadline = (
            RemoteCall(next(self._numbers), kind, name, msgspec.Raw(body)),
            time.monotonic() + self._patience,
        )
        pending = Pending(call, gives, deadline, repeatable=repeatable)
        pending.on_change, pending.renew = on_change, renew
        try:
            self._begin_call(pending)
        except BaseException:  # Ctrl-C, too: who was told of an error is not to see it done later
            self.drop(pending)
            raise
        return pending

    def _begin_call(self, pending: Pending) -> None:
        with self._lock:
            if self._closed:
                raise ManagerStopped("this client was closed; make another one")
            self._pending[pending.call.number] = pending
            stream = self._stream  # in one go with the above: a connection sends what waits when it begins
            if stream is None:
                try:
                    self._connect_soon()
                except RuntimeError as error:
                    del self._pending[pending.call.number]
                    msg = f"no thread for the connection to the manager: {error}; raise this program's limit of threads"
                    raise EngineError(msg) from error
        if stream is not None:
            with self._sending:
                self._send(stream, pending)

    def drop(self, pending: Pending) -> bool:
        """Forget a call whose caller gave up; returns True if it had no answer yet."""
        with self._lock:
            return self._pending.pop(pending.call.number, None) is not None

    def tell(self, kind: str, number: int) -> None:
        """Say something about an earlier call, if there is a connection."""
        stream = self._stream
        if stream is not None:
            with self._sending:
                _send_all(stream, framed(RemoteCall(number, kind, "", msgspec.Raw(encode(None)))))

    def greet(self, kind: str, name: str, body: bytes) -> None:
        """Make this call first on every connection to come, and now."""
        with self._lock:
            if (kind, name, body) not in self._greetings:
                self._greetings.append((kind, name, body))
        self.call(kind, name, body, Any)

    def close(self) -> None:
        """End it; who waits gets `ManagerStopped`. Idempotent."""
        with self._lock:
            self._closed = True
            stream, self._stream = self._stream, None
            waiting, self._pending = list(self._pending.values()), {}
            timer, self._timer = self._timer, None
            self._lock.notify_all()
        if timer is not None:
            timer.cancel()
        if stream is not None:
            stream.hang_up()
        for pending in waiting:
            pending.fail(ManagerStopped("this client was closed"))

    def forget(self) -> None:
        """In a forked copy of the program, which must neither keep the connection alive nor end it.

        Threads that do not exist there may have held the locks.
        """
        self._lock, self._sending = threading.Condition(), threading.RLock()
        self._connecting, self._reader, self._pending = False, None, {}
        self._refused, self._timer = [], None
        stream, self._stream = self._stream, None
        if stream is not None:
            stream.close()

    @property
    def is_connected(self) -> bool:
        """There is a connection at the moment."""
        return self._stream is not None

    @property
    def _most(self) -> int:
        """Bytes that a frame may have: a manager that is sent more hangs up, and would be sent it again."""
        return self._max_frame if self.hello is None else min(self._max_frame, self.hello.max_frame + HEADER.size)

    def _send(self, stream: Stream, pending: Pending) -> None:
        """Called with the right to send."""
        call = pending.call
        if pending.sent and pending.renew is not None:
            call = msgspec.structs.replace(call, body=msgspec.Raw(pending.renew()))
        pending.sent = True
        frame = framed(call)
        if len(frame) > self._most:
            self.drop(pending)
            msg = f"a call of {len(frame)} bytes is longer than a frame may be ({self._most}); send less at a time"
            pending.fail(EngineError(msg))
            return
        _send_all(stream, frame)

    # ------------------------------------------------------------ the connection
    def _connect_soon(self) -> None:
        """Called with the lock held."""
        if not self._connecting and not self._closed:
            thread = threading.Thread(target=self._live, name="actorproc-client", daemon=True)
            thread.start()
            self._connecting = True

    def _live(self) -> None:
        """Connect, read to the end of the connection, and again while a caller waits."""
        with self._lock:
            if self._reader is not None:
                return  # Ctrl-C met the start of that one, so it was not noted
            self._reader, self._connecting = threading.current_thread(), True
        pause = 0.0
        try:
            while (stream := self._connect(pause)) is not None:
                begun = time.monotonic()
                self._use(stream)
                is_good = time.monotonic() - begun > _LEAST_PATIENCE
                self._lose(was_good=is_good)
                pause = 0.0 if is_good else _longer(pause, self._way.longest_pause)
                # A manager that takes calls and always hangs up must not keep them for ever.
                self._give_up_late_ones(ConnectionError("the connection is always closed again"))
        except ActorprocError as error:
            self._give_up(error)
        except BaseException as error:
            logger.exception("reading from the manager at %s failed; the next call connects again", self._way.words)
            self._lose(was_good=False)
            self._give_up(EngineError(f"reading from the manager failed: {type(error).__name__}: {error}"))

    def _use(self, stream: Stream) -> None:
        try:
            if self._begin(stream):
                self._read(stream)
        finally:
            stream.hang_up()  # or who sends would wait for a manager that does not read, and we for our turn to send
            stream.close()

    def _rest(self, pause: float) -> bool:
        """Wait before the next try; False when no caller waits any more: then this thread is at its end.

        With full jitter: all clients of a manager lose it at the same moment.
        """
        with self._lock:
            self._lock.wait_for(lambda: self._closed, random.uniform(0.0, pause))  # noqa: S311
            if self._pending and not self._closed:
                return True
            self._connecting, self._reader = False, None
            return False

    def _begin(self, stream: Stream) -> bool:
        """Greet, and send again what has no answer; False when the client was closed meanwhile."""
        with self._sending:
            with self._lock:
                if self._closed:
                    return False
                self._stream = stream
                again = list(self._pending.values())
                self._refused.clear()
                greetings = list(self._greetings)
            for kind, name, body in greetings:
                frame = framed(RemoteCall(0, kind, name, msgspec.Raw(body)))
                if len(frame) <= self._most:
                    _send_all(stream, frame)
                else:
                    msg = (
                        "a class of %d bytes is not told the manager, which takes %d (Config.max_frame); it is unknown"
                    )
                    logger.warning(msg, len(frame), self._most)
            for pending in again:
                self._send(stream, pending)
        return True

    def _lose(self, *, was_good: bool) -> None:
        """The connection is lost: give up what must not be repeated. The others have their patience anew.

        But not those that lose one after the other before these are good for anything: they may be the reason.
        """
        deadline = time.monotonic() + self._patience
        with self._lock:
            self._stream = None
            waiting = list(self._pending.values())
            lost = [one for one in waiting if one.sent and not one.repeatable]
            for one in lost:
                del self._pending[one.call.number]
            for one in waiting:
                if not one.refusals and (was_good or not one.lost_one):
                    one.deadline = deadline
                one.lost_one = one.sent and not was_good
        for one in lost:
            msg = f"the manager went away while {one.call.name!r} was asked; look at the procedure, and ask again"
            one.fail(OutcomeUnknown(msg))

    def _connect(self, pause: float) -> Stream | None:
        """A connection, after a pause; None when no caller waits for an answer any more."""
        while self._rest(pause):
            try:
                return self._try_to_connect(self._time_left())
            except (OSError, Torn) as error:
                self._give_up_late_ones(error)
                pause = min(_longer(pause, self._way.longest_pause), max(self._time_left(), 0.0))
        return None

    def _time_left(self) -> float:
        """Seconds until the first of those that wait is given up."""
        with self._lock:
            return min((one.deadline for one in list(self._pending.values())), default=0.0) - time.monotonic()

    def _give_up_late_ones(self, error: Exception) -> None:
        if self._time_left() > 0:
            return
        why = self._way.unanswered(f"(waited {self._patience:g} s): {error}")
        now = time.monotonic()
        with self._lock:
            late = [one for one in list(self._pending.values()) if one.deadline <= now]
            for one in late:
                del self._pending[one.call.number]
        for one in late:
            stopped = ManagerStopped(why)
            stopped.__cause__ = error
            one.fail(stopped)

    def _try_to_connect(self, patience: float) -> Stream:
        # Also for connecting: a suspended manager accepts no connection, and its backlog gets full.
        stream = self._way.connect(min(max(patience, _LEAST_PATIENCE), _LONGEST_GREETING))
        try:
            answer: CallAnswer = decode_as(read_frame(stream, self._max_frame), CallAnswer)
            self.hello = _checked(answer)
            self._way.greeted(stream, self.hello.epoch)
        except msgspec.DecodeError as error:
            stream.close()
            raise EngineError(f"what answers at {self._way.words} is no actorproc manager: {error}") from error
        except BaseException:
            stream.close()
            raise
        return stream

    def _give_up(self, error: ActorprocError) -> None:
        with self._lock:
            self._connecting, self._reader, self._stream = False, None, None
            waiting, self._pending = list(self._pending.values()), {}
        for pending in waiting:
            pending.fail(error)

    def _read(self, stream: Stream) -> None:
        try:
            while True:
                self._hear(decode_as(read_frame(stream, 2**32 - 1), CallAnswer))
        except (Torn, msgspec.DecodeError) as error:
            logger.debug("the connection to the manager at %s ended: %s", self._way.words, error)

    def _hear(self, answer: CallAnswer) -> None:
        error = _error_in(answer) if answer.kind == "error" else None
        with self._lock:
            pending = self._pending.get(answer.number)
            if pending is not None and error is not None and pending.waits_out(error) and self._ask_again(pending):
                return
            if pending is not None and answer.kind != "change":
                del self._pending[answer.number]
        if pending is None:
            return
        try:
            if answer.kind == "change":
                if pending.on_change is not None:
                    pending.on_change(answer.body)
            elif error is not None:
                pending.fail(error)
            else:
                settle_future(pending.future, decode_as(answer.body, pending.gives))
        except Exception as error:  # noqa: BLE001 - whatever an odd answer leads to, its call has an end
            self.drop(pending)
            pending.fail(EngineError(f"the manager's answer cannot be read: {error}"))

    def _ask_again(self, pending: Pending) -> bool:
        """Send it again in a moment: its manager, or the next one, may take it then. Called with the lock held.

        Returns False when no thread can be had for that.
        """
        pending.refusals += 1
        pending.sent = False  # it was not taken, or may be taken twice
        if self._timer is None:
            # Full jitter: the manager refuses all its clients at the same moment.
            most = min(_FIRST_PAUSE * 2**pending.refusals, _LONGEST_REFUSAL)
            timer = threading.Timer(random.uniform(0.0, most), self._send_refused)  # noqa: S311
            timer.daemon = True
            try:
                timer.start()
            except RuntimeError:
                return False
            self._timer = timer
        self._refused.append(pending)
        return True

    def _send_refused(self) -> None:
        with self._sending:
            with self._lock:
                self._timer = None
                refused, self._refused = self._refused, []
                again = [one for one in refused if one.call.number in self._pending]
                stream = self._stream
            if stream is not None:  # else the next connection sends them
                for pending in again:
                    self._send(stream, pending)


def _error_in(answer: CallAnswer) -> Exception:
    try:
        return error_from(answer.body)
    except Exception as error:  # noqa: BLE001 - whatever an odd answer leads to, its call has an end
        return EngineError(f"the manager's answer cannot be read: {error}")


def _longer(pause: float, longest: float) -> float:
    return min(2 * pause, longest) or _FIRST_PAUSE


def _send_all(stream: Stream, data: bytes) -> None:
    try:
        stream.sendall(data)
    except BaseException as error:  # Ctrl-C, too: half a frame is out, and whatever came next would be its other half
        stream.hang_up()  # the reading thread sees it, and takes care of what has no answer
        if not isinstance(error, OSError):
            raise


def _checked(answer: CallAnswer) -> ClientHello:
    """The manager's greeting. Raises its refusal, or ours."""
    if answer.kind == "error":
        raise error_from(answer.body)
    hello: ClientHello = decode_as(answer.body, ClientHello)
    if hello.protocol != PROTOCOL:
        msg = f"the manager (pid {hello.pid}) speaks protocol {hello.protocol}, this client {PROTOCOL}"
        raise EngineError(f"{msg}; use the same version of actorproc on both sides")
    return hello
