"""The worker's end of its channel."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Sequence

from actorproc.workers.child.guard import Guard
from actorproc.workers.frames import (
    DEFAULT_MAX_FRAME,
    FrameBuffer,
    FromWorker,
    ToWorker,
    decode_to_worker,
    encode_frame,
)

__all__ = ["Channel"]

_RECEIVE = 64 * 1024


class Channel:
    """Frames to and from the host. `receive` is for the reader thread, `send` for any thread."""

    def __init__(self, fd: int, guard: Guard) -> None:
        self._socket = socket.socket(fileno=fd)
        self._frames = FrameBuffer()
        self._guard = guard
        self._lock = threading.Lock()
        self._is_ours = True
        self.max_frame = DEFAULT_MAX_FRAME

    def receive(self) -> list[ToWorker] | None:
        """The next messages, waiting for them; None when the host is gone. Raises `FrameError`."""
        messages: list[ToWorker] = []
        while not messages:
            try:
                chunk = self._socket.recv(_RECEIVE)
            except ConnectionError:
                return None
            if not chunk:
                return None
            for body in self._frames.feed(chunk):
                messages += decode_to_worker(body)
        return messages

    def send(self, messages: Sequence[FromWorker]) -> None:
        """Write one frame, whole. Raises `FrameError` when it is too long; then nothing was written."""
        frame = encode_frame(messages, self.max_frame)
        self._guard.uninterrupted(lambda: self._write(frame))

    def _write(self, frame: bytes) -> None:
        with self._lock:
            if self._is_ours:
                self._socket.sendall(frame)

    def leave_to_parent(self) -> None:
        """In a forked copy of the worker: the channel is not its own, whatever it sends goes nowhere."""
        self._lock = threading.Lock()  # a thread that does not exist here may have held it
        self._is_ours = False
        os.close(self._socket.detach())
