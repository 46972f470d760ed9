"""The worker's end of its channel."""

from __future__ import annotations

import errno
import os
import socket
import threading
from collections import deque
from collections.abc import Sequence

from actorproc.workers.child.process_state.guard import Guard
from actorproc.workers.child.process_state.limits import Limiter
from actorproc.workers.protocol.attachments import Attachments
from actorproc.workers.protocol.exit_codes import EXIT_CHANNEL
from actorproc.workers.protocol.frames import (
    DEFAULT_MAX_FRAME,
    FrameBuffer,
    FromWorker,
    ToWorker,
    decode_to_worker,
    encode_frame,
)

__all__ = ["WorkerChannel"]

_RECEIVE = 64 * 1024


class WorkerChannel:
    """Frames to and from the host. `receive` is for the reader thread, `send` for any thread."""

    def __init__(self, fd: int, guard: Guard) -> None:
        self._socket = socket.socket(fileno=fd)
        self._attachments = Attachments()
        self._frames = FrameBuffer(begin_attachment=self._attachments.begin)
        self._received = memoryview(bytearray(_RECEIVE))
        """Made once: when a step has used up what its limit allows, there would be no room for it."""
        self._guard = guard
        self._lock = threading.RLock()
        self._is_writing = False
        self._late: deque[bytes] = deque()
        """Frames of a signal handler of user code that ran in the middle of a frame of its own thread."""
        self._is_ours = True
        self.max_frame = DEFAULT_MAX_FRAME
        self.limiter = Limiter()
        """A step's memory limit is not for what the reader thread needs."""

    def allow(self, max_frame: int) -> None:
        """Let frames have up to `max_frame` bytes, both ways. For the reader thread."""
        self.max_frame = self._frames.max_frame = max_frame

    def receive(self) -> list[ToWorker] | None:
        """The next messages, waiting for them; None when the host is gone. Raises `FrameError`."""
        messages: list[ToWorker] = []
        while not messages:
            room = self._attachments.room
            try:
                size = self._socket.recv_into(self._received if room is None else room)
            except ConnectionError:
                return None
            except OSError as error:
                _leave_if_closed(error)
                raise
            if not size:
                return None
            if room is not None:
                self._attachments.came(size)
                continue
            with self.limiter.lifted():
                for body in self._frames.feed(self._received[:size]):
                    messages += decode_to_worker(body)
            if self._attachments.are_here:
                self._attachments.give_to(messages)
        return messages

    def send(self, messages: Sequence[FromWorker]) -> None:
        """Write one frame, whole. Raises `FrameError` when it is too long; then nothing was written."""
        self._guard.uninterrupted(self._write, encode_frame(messages, self.max_frame))

    def _write(self, frame: bytes) -> None:
        with self._lock:
            self._late.append(frame)
            if self._is_writing:
                return  # the interrupted call writes it, after its own
            while self._late:  # looked at when `_is_writing` is over, so that nothing is left behind
                self._is_writing = True
                try:
                    if self._late:  # else a handler that ran a moment ago has written everything
                        self._write_out(self._late.popleft())
                finally:
                    self._is_writing = False

    def _write_out(self, frame: bytes) -> None:
        if not self._is_ours:
            return
        try:
            self._socket.sendall(frame)
        except OSError as error:
            _leave_if_closed(error)
            raise

    def leave_to_parent(self) -> None:
        """In a forked copy of the worker: the channel is not its own, whatever it sends goes nowhere."""
        self._lock = threading.RLock()  # a thread that does not exist here may have held it
        self._is_writing = False
        self._is_ours = False
        os.close(self._socket.detach())


def _leave_if_closed(error: OSError) -> None:
    """The code of a step closed our descriptor, perhaps put another in its place: nothing can be said any more."""
    if error.errno in {errno.EBADF, errno.ENOTSOCK, errno.ENOTCONN}:
        os._exit(EXIT_CHANNEL)
