"""Link between two programs that outlives its connections: a `LinkEnd` with threads.

A thread reads. The thread that has something to send sends it, as long as the socket has room; a second thread sends
the rest, and signs of life. No method but `detach` waits for anything.
"""

from __future__ import annotations

import logging
import struct
import threading
import time
from collections.abc import Callable

from actorproc.workers.link.resume import CAP, LinkEnd, LinkFault
from actorproc.workers.link.stream import LinkStream

__all__ = ["BEAT", "LinkSession", "hear_first", "say_first"]

logger = logging.getLogger("actorproc")

BEAT = 1.0
"""Seconds between two signs of life at most."""
_BEATS = 3
"""Signs of life at least in the time after which a silent connection counts as broken."""
_READ = 1 << 18
_ROUNDS = 16
"""Bursts that a thread sends, with those of others, before the second thread takes over."""
_FLUSH_LOOK = 0.01
"""Seconds between two looks of `flush`."""
_LENGTH = struct.Struct(">I")


def say_first(stream: LinkStream, message: bytes) -> None:
    """Send a message before a session begins on this connection.

    Args:
        stream: The connection.
        message: The bytes.

    Raises:
        OSError: The connection broke, or the other end takes no bytes.
    """
    stream.sendall(_LENGTH.pack(len(message)) + message)


def hear_first(stream: LinkStream, until: float, most: int) -> bytes:
    """Wait for a message that `say_first` sent at the other end.

    Args:
        stream: The connection.
        until: Monotonic seconds at which it must be here.
        most: Bytes that it may have.

    Returns:
        The message.

    Raises:
        LinkFault: It is longer.
        OSError: The connection broke, or nothing came in time.
    """
    (size,) = _LENGTH.unpack(_exactly(stream, _LENGTH.size, until))
    if size > most:
        msg = f"the other end begins with a message of {size} bytes; {most} are allowed"
        raise LinkFault(msg)
    return _exactly(stream, size, until)


def _exactly(stream: LinkStream, size: int, until: float) -> bytes:
    data = bytearray()
    while len(data) < size:
        chunk = stream.recv(min(size - len(data), _READ), until)
        if not chunk:
            raise LinkFault("the connection ended before the session began")
        data += chunk
    return bytes(data)


class _Connection:
    """One connection of a session."""

    def __init__(self, stream: LinkStream) -> None:
        self.stream = stream
        self.is_sending = False
        """A thread sends; it sends what others queue as well."""
        self.is_handed_over = False
        """The second thread is to send."""


class LinkSession:
    """One end of a link.

    Args:
        hear: Called with each message, in order, on the thread that reads. It may raise `LinkFault`, which breaks the
            connection as bytes do that are no frame.
        on_break: Called once for each connection that broke by itself, with the reason, on the thread that reads. After
            a `LinkFault` the session cannot go on.
        silence: Seconds without a byte after which a connection counts as broken.
        name: Name of the other end, for the names of threads.
        cap: Bytes that may wait for the other end. Default: `CAP`.
    """

    def __init__(
        self,
        hear: Callable[[bytes], None],
        on_break: Callable[[OSError], None],
        *,
        silence: float,
        name: str,
        cap: int = CAP,
    ) -> None:
        self._hear = hear
        self._on_break = on_break
        self._silence = silence
        self._beat = min(BEAT, silence / _BEATS)
        self._name = name
        self._end = LinkEnd(cap=cap)
        self._lock = threading.Lock()
        """Guards the end and the fields below; never held while bytes leave or a message is heard."""
        self._hearing = threading.RLock()
        """Held while bytes are taken in, and their messages heard."""
        self._connection: _Connection | None = None
        self._work = threading.Condition(self._lock)
        self._closed = False
        self._heard = self._begun = time.monotonic()
        self.sent_bytes = 0
        self.received_bytes = 0
        self.resumes = 0
        """Connections after the first."""
        self.late_beats = 0
        """Signs of life that left more than a beat too late: this machine, or this program, is overloaded."""
        self._second = threading.Thread(target=self._send_rest, name=f"actorproc-link-{name}-send", daemon=True)
        self._has_second = False
        """The second thread was started, or is about to be."""

    # ------------------------------------------------------------ facts
    @property
    def silent_for(self) -> float:
        """Seconds since the last byte from the other end."""
        return time.monotonic() - self._heard

    @property
    def unheard_for(self) -> float:
        """Seconds for which this end does not know that the other one has heard it.

        A connection may carry bytes in one direction only. So this counts from the last sign of life that was answered.
        """
        return time.monotonic() - max(self._begun, self._end.answered_beat)

    @property
    def is_connected(self) -> bool:
        """There is a connection that has not broken."""
        return self._connection is not None

    @property
    def is_full(self) -> bool:
        """More waits for the other end than should."""
        return self._end.is_full

    @property
    def outstanding(self) -> int:
        """Bytes that the other end has not acknowledged."""
        return self._end.outstanding

    def unacknowledged(self) -> list[bytes]:
        """The messages that the other end may not have, of long ones what is left of them."""
        with self._lock:
            return list(self._end.unacknowledged())

    @property
    def dropped(self) -> int:
        """Messages that were dropped because too much waited."""
        return self._end.dropped

    @property
    def round_trip(self) -> float | None:
        """Seconds to the other end and back, measured last; None: not yet."""
        return self._end.round_trip

    # ------------------------------------------------------------ connections
    def attach(self, stream: LinkStream, received: int, since: float | None = None) -> None:
        """Go on over this connection: the first one, or one after `detach`.

        Args:
            stream: The connection, from now on the session's.
            received: Number of frames that the other end has received, as it says; 0 at first.
            since: Monotonic seconds of a message that the other end has answered already. Default: None, now.

        Raises:
            LinkFault: That cannot be. The session cannot go on.
        """
        stream.silence = stream.stuck = self._silence
        connection = _Connection(stream)
        with self._lock:
            if self._closed or self._connection is not None:
                raise LinkFault("the session has ended, or has a connection")
            self._end.resume(received)
            self._heard = time.monotonic()
            self._begun = self._heard if since is None else since
            self._connection = connection
            connection.is_sending = connection.is_handed_over = True
            is_first, self._has_second = not self._has_second, True
            self.resumes += not is_first
            self._work.notify_all()
        if is_first:
            try:
                self._second.start()
            except RuntimeError:  # no thread is left on this machine: the next connection asks for one again
                self._has_second = False
                raise
        name = f"actorproc-link-{self._name}-read"
        threading.Thread(target=self._read, args=(connection,), name=name, daemon=True).start()

    def detach(self) -> int:
        """Leave the present connection, if there is one; nothing of it is heard any more.

        Returns:
            The number of frames received, which the other end needs in order to go on.
        """
        with self._lock:
            connection, self._connection = self._connection, None
            received = self._end.broke()
        if connection is not None:
            connection.stream.hang_up()
        with self._hearing:  # what was received is heard by now
            return received

    def hang_up(self) -> None:
        """Break the present connection, as a network does; the session may go on over the next. Waits for nothing."""
        connection = self._connection
        if connection is not None:
            connection.stream.hang_up()

    def close(self) -> None:
        """End the session; a message may be heard that was received before. Waits for nothing. Idempotent."""
        with self._lock:
            self._closed = True
            connection, self._connection = self._connection, None
            self._work.notify_all()
        if connection is not None:
            connection.stream.hang_up()

    def forget(self) -> None:
        """Close the socket in a forked copy of the program, without a word to the other end."""
        connection = self._connection
        if connection is not None:
            connection.stream.close()

    # ------------------------------------------------------------ sending
    def put(self, lane: int, message: bytes, *, may_drop: bool = False) -> bool:
        """Send a message, over the next connection if there is none now.

        Args:
            lane: The lane; only messages of one lane keep their order.
            message: The bytes.
            may_drop: Drop it when too much waits for the other end. Default: False.

        Returns:
            False if it was dropped.
        """
        with self._lock:
            if not self._end.put(lane, message, may_drop=may_drop):
                return False
            connection = self._connection
            if connection is None or connection.is_sending:
                return True
            connection.is_sending = True
        self._send(connection)
        return True

    def flush(self, within: float) -> bool:
        """Wait until the other end has received everything. Not for a thread of the session.

        Args:
            within: Seconds to wait at most.

        Returns:
            True if it has; False if it has not, or there is no connection.
        """
        until = time.monotonic() + within
        while self.outstanding and time.monotonic() < until:
            with self._lock:
                connection = self._connection
                if connection is None:
                    return False
                self._end.beat(time.monotonic())  # its answer acknowledges
                is_mine = not connection.is_sending
                connection.is_sending = True
            if is_mine:
                self._send(connection)
            time.sleep(_FLUSH_LOOK)
        return not self.outstanding

    def _send(self, connection: _Connection, *, may_wait: bool = False) -> None:
        """Send all there is. For the thread that has set `is_sending`."""
        stream, rounds = connection.stream, 0
        try:
            while data := self._taken(connection):
                rounds += 1
                if may_wait:
                    stream.sendall(data)
                elif not stream.send_now(data) or rounds >= _ROUNDS:
                    with self._lock:
                        connection.is_handed_over = True
                        self._work.notify_all()
                    return
        except OSError:  # the thread that reads finds the end, and says why
            stream.hang_up()

    def _taken(self, connection: _Connection) -> bytes:
        with self._lock:
            if self._connection is not connection:
                return b""
            data = self._end.take()
            self.sent_bytes += len(data)
            if not data:
                connection.is_sending = False
            return data

    def _send_rest(self) -> None:
        """Send what others had no room for, and signs of life."""
        due = time.monotonic() + self._beat
        while True:
            with self._lock:
                while not self._closed and not self._is_handed_over() and (wait := due - time.monotonic()) > 0:
                    self._work.wait(wait)
                if self._closed:
                    return
                connection, now = self._connection, time.monotonic()
                if now >= due:
                    self.late_beats += now - due > BEAT
                    due = now + self._beat
                    if connection is not None:
                        self._end.beat(now)
                if connection is None or (connection.is_sending and not connection.is_handed_over):
                    continue
                connection.is_sending, connection.is_handed_over = True, False
            try:
                connection.stream.send_rest()
            except OSError:
                connection.stream.hang_up()
            else:
                self._send(connection, may_wait=True)

    def _is_handed_over(self) -> bool:
        return self._connection is not None and self._connection.is_handed_over

    # ------------------------------------------------------------ receiving
    def _read(self, connection: _Connection) -> None:
        stream = connection.stream
        try:
            while True:
                data = stream.recv(_READ)
                if not data:
                    raise ConnectionResetError("the other end has closed the connection")  # noqa: TRY301
                with self._hearing:
                    messages = self._fed(connection, data)
                    if messages is None:
                        return
                    for message in messages:
                        self._hear(message)
        except OSError as error:
            self._broke(connection, error)
        except Exception as error:
            logger.exception("a message of %s could not be handled; its link is given up", self._name)
            self._broke(connection, LinkFault(f"a message could not be handled: {error}"))
        finally:
            stream.hang_up()
            stream.close()

    def _fed(self, connection: _Connection, data: bytes) -> list[bytes] | None:
        with self._lock:
            if self._connection is not connection:
                return None
            self._heard = now = time.monotonic()
            self.received_bytes += len(data)
            messages = self._end.feed(data, now)
            if connection.is_sending or not self._end.has_news:
                return messages
            connection.is_sending = True
        self._send(connection)
        return messages

    def _broke(self, connection: _Connection, error: OSError) -> None:
        with self._lock:
            if self._connection is not connection:
                return
            self._connection = None
            self._end.broke()
        self._on_break(error)
