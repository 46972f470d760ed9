"""One end of a link that outlives its connections, without any I/O: numbers, acknowledgements, an outbox with a bound.

::

    frame:  length of the payload · kind · lane · number of data frames received so far · payload

Data frames are numbered by their order, both ways. An end keeps what it has sent until the other one has received it.
After a break each says how many frames it has, and the other goes on from there: nothing is lost, and nothing comes
twice. Messages of one *lane* arrive in their order. Long ones are cut into chunks, and chunks of different lanes take
turns, so that a short message does not wait behind a long one of another lane.
"""

from __future__ import annotations

import math
import struct
from collections import deque
from collections.abc import Iterator

__all__ = ["CAP", "CHUNK", "LinkEnd", "LinkFault"]

CHUNK = 256 * 1024
"""Bytes of one data frame at most."""
CAP = 64 * 1024 * 1024
"""Bytes that wait for the other end, from which on messages that may be dropped are, and above which none is sent."""

_HEADER = struct.Struct(">IBIQ")
_TIME = struct.Struct(">d")
_LAST, _MORE, _BEAT, _ECHO = range(4)
"""Kinds of frames: the last chunk of a message, an earlier one, a sign of life, and the answer to it."""
_ACKNOWLEDGE_BYTES = 1024 * 1024
_ACKNOWLEDGE_FRAMES = 256
"""Data after which an end acknowledges though it has nothing to say."""
_LANES = (1 << 32) - 1


class LinkFault(ConnectionError):
    """The other end sent what is no frame of this protocol, or forgot what it had."""


class LinkEnd:
    """Sender and receiver of messages over connections that may break.

    Args:
        cap: Bytes that may wait for the other end. Default: `CAP`.
        largest: Bytes of one message at most. Default: 2 GiB.
    """

    def __init__(self, *, cap: int = CAP, largest: int = 1 << 31) -> None:
        self.received = 0
        """Data frames received, of all connections together."""
        self.outstanding = 0
        """Bytes of messages that the other end has not acknowledged, sent or not."""
        self.dropped = 0
        """Messages that were dropped because too much waited."""
        self.round_trip: float | None = None
        """Seconds from the last sign of life to its answer; None: there was none yet."""
        self.answered_beat = -math.inf
        """Monotonic seconds of the last sign of life that was answered: since then the other end has heard this one."""
        self._cap = cap
        self._largest = largest
        self._lanes: dict[int, deque[memoryview]] = {}
        """Rests of messages to be sent, by lane; the first lane is the next one to have its turn."""
        self._kept: deque[tuple[int, int, memoryview]] = deque()
        """Data frames that were sent and not acknowledged: kind, lane, payload."""
        self._kept_bytes = 0
        self._acknowledged = 0
        """Number of the first of them."""
        self._again = 0
        """Number of them that go out once more, after a break: all behind the first so many were not sent again yet."""
        self._control: deque[bytes] = deque()
        """Signs of life and answers to be sent: kind and payload."""
        self._told = 0
        """Number of frames received as the other end was told it last."""
        self._untold_bytes = 0
        self._buffer = bytearray()
        self._parts: dict[int, list[bytes]] = {}
        """Chunks of messages that are not whole yet, by lane."""
        self._part_bytes: dict[int, int] = {}

    # ------------------------------------------------------------ sending
    @property
    def is_full(self) -> bool:
        """More waits for the other end than should."""
        return self.outstanding >= self._cap

    def put(self, lane: int, message: bytes | memoryview, *, may_drop: bool = False) -> bool:
        """Queue a message.

        Args:
            lane: The lane; only messages of one lane keep their order.
            message: The bytes, at least one. They must not change any more.
            may_drop: Drop it when too much waits. Default: False.

        Returns:
            False if it was dropped.

        Raises:
            ValueError: It is empty, or too long.
        """
        size = len(message)
        if not 0 < size <= self._largest:
            msg = f"a message of {size} bytes cannot be sent; 1 to {self._largest} can"
            raise ValueError(msg)
        if may_drop and self.outstanding >= self._cap:
            self.dropped += 1
            return False
        self.outstanding += size
        lane &= _LANES
        queue = self._lanes.get(lane)
        if queue is None:
            queue = self._lanes[lane] = deque()
        queue.append(memoryview(message))
        return True

    def unacknowledged(self) -> Iterator[bytes]:
        """The messages that the other end may not have, of long ones what is left of them."""
        yield from (bytes(payload) for _, _, payload in self._kept)
        yield from (bytes(message) for queue in self._lanes.values() for message in queue)

    def beat(self, now: float) -> None:
        """Queue a sign of life, which the other end answers.

        Args:
            now: Monotonic seconds.
        """
        self._control.append(bytes((_BEAT,)) + _TIME.pack(now))

    def take(self, most: int = CHUNK) -> bytes:
        """Bytes to be sent next; b"" when there are none.

        Args:
            most: Bytes of payload after which no further frame is added. Default: `CHUNK`.

        Returns:
            Whole frames.
        """
        parts: list[bytes | memoryview] = []
        received, size = self.received, 0
        while self._control:
            control = self._control.popleft()
            parts += (_HEADER.pack(len(control) - 1, control[0], 0, received), control[1:])
        while size < most and (frame := self._next()) is not None:
            kind, lane, payload = frame
            parts += (_HEADER.pack(len(payload), kind, lane, received), payload)
            size += len(payload)
        if not parts and self._must_acknowledge():
            parts.append(_HEADER.pack(0, _ECHO, 0, received))
        if parts:
            self._told, self._untold_bytes = received, 0
        return b"".join(parts)

    def _next(self) -> tuple[int, int, memoryview] | None:
        kept = self._kept
        if self._again:
            frame = kept[len(kept) - self._again]
            self._again -= 1
            return frame
        if not self._lanes or self._kept_bytes >= self._cap:
            return None
        lane = next(iter(self._lanes))
        queue = self._lanes.pop(lane)
        message = queue[0]
        if len(message) > CHUNK:
            frame = _MORE, lane, message[:CHUNK]
            queue[0] = message[CHUNK:]
        else:
            frame = _LAST, lane, message
            queue.popleft()
        if queue:
            self._lanes[lane] = queue  # behind the others
        kept.append(frame)
        self._kept_bytes += len(frame[2])
        return frame

    @property
    def has_news(self) -> bool:
        """There is something to be sent soon that no `put` has brought: an answer, or an acknowledgement."""
        return bool(self._control) or self._must_acknowledge()

    def _must_acknowledge(self) -> bool:
        return self.received - self._told >= _ACKNOWLEDGE_FRAMES or self._untold_bytes >= _ACKNOWLEDGE_BYTES

    # ------------------------------------------------------------ receiving
    def feed(self, data: bytes, now: float = 0.0) -> list[bytes]:
        """Take bytes of the connection.

        Args:
            data: The bytes, cut anywhere.
            now: Monotonic seconds, for the round trip. Default: 0.

        Returns:
            The messages that are whole by now, in order.

        Raises:
            LinkFault: They are no frames of this protocol. The link cannot go on.
        """
        buffer: bytes | bytearray = data
        if self._buffer:
            self._buffer += data
            buffer = self._buffer
        messages: list[bytes] = []
        start, end = 0, len(buffer)
        while end - start >= _HEADER.size:
            length, kind, lane, acknowledged = _HEADER.unpack_from(buffer, start)
            if length > CHUNK or kind > _ECHO:
                msg = f"the other end sent a frame of kind {kind} with {length} bytes, which there is none of"
                raise LinkFault(msg)
            begin = start + _HEADER.size
            if begin + length > end:
                break
            self._acknowledge(acknowledged)
            payload = bytes(memoryview(buffer)[begin : begin + length])
            if kind <= _MORE:
                self._receive(kind, lane, payload, messages)
            else:
                self._hear_control(kind, payload, now)
            start = begin + length
        if buffer is self._buffer:
            del self._buffer[:start]
        else:
            self._buffer += data[start:]
        return messages

    def _receive(self, kind: int, lane: int, payload: bytes, messages: list[bytes]) -> None:
        self.received += 1
        self._untold_bytes += len(payload)
        parts = self._parts.get(lane)
        if parts is None and kind == _LAST:
            messages.append(payload)
            return
        if parts is None:
            parts, self._part_bytes[lane] = self._parts.setdefault(lane, []), 0
        parts.append(payload)
        size = self._part_bytes[lane] = self._part_bytes[lane] + len(payload)
        if size > self._largest:
            msg = f"the other end sends a message of more than {self._largest} bytes"
            raise LinkFault(msg)
        if kind == _LAST:
            messages.append(b"".join(parts))
            del self._parts[lane], self._part_bytes[lane]

    def _hear_control(self, kind: int, payload: bytes, now: float) -> None:
        if kind == _BEAT:
            self._control.append(bytes((_ECHO,)) + payload)
        elif len(payload) == _TIME.size:
            (sent,) = _TIME.unpack(payload)
            self.answered_beat = max(self.answered_beat, min(sent, now))
            self.round_trip = max(0.0, now - sent)

    def _acknowledge(self, count: int) -> None:
        kept = self._kept
        if not self._acknowledged <= count <= self._acknowledged + len(kept) - self._again:
            msg = f"the other end says it received {count} frames of {self._acknowledged} to the last one sent"
            raise LinkFault(msg)
        while self._acknowledged < count:
            size = len(kept.popleft()[2])
            self._kept_bytes -= size
            self.outstanding -= size
            self._acknowledged += 1

    # ------------------------------------------------------------ breaks
    def broke(self) -> int:
        """Note that the connection is gone.

        Returns:
            The number of frames received, which the other end needs in order to go on.
        """
        self._buffer.clear()
        self._control.clear()
        self._again = len(self._kept)
        return self.received

    def resume(self, received: int) -> None:
        """Go on over a new connection, after `broke`.

        Args:
            received: Number of frames that the other end has received, as it says.

        Raises:
            LinkFault: That cannot be: it is not the end that this one spoke to.
        """
        self._again = 0
        self._acknowledge(received)
        self._again = len(self._kept)
