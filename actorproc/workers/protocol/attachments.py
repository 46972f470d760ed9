"""Long states on their way to a worker: beside the frame that speaks of them, and never copied in between.

As part of a frame a state of 10 MB is copied three times. It goes into the frame, with its length into another one,
and in the worker out of the bytes received. Each copy is into untouched memory, where a page costs more than the copy
of it. So it leaves from where it is, before its frame, behind a length of its own whose highest bit is set, and is
received where it stays.
"""

from __future__ import annotations

import contextlib
import mmap
from collections import deque
from collections.abc import Sequence

import msgspec

from actorproc.workers.protocol.frames import (
    ATTACHED,
    DEFAULT_MAX_FRAME,
    HEADER,
    FrameError,
    Run,
    ToWorker,
    encode_frame,
)

__all__ = ["LONG", "Attachments", "in_pieces"]

LONG = 256 * 1024
"""Bytes from which on a state goes beside its frame; below, another call of the system costs more than a copy."""


def in_pieces(messages: Sequence[ToWorker], max_frame: int) -> list[bytes]:
    """Bytes to send for these messages, in order: their long states, each behind its length, and one frame.

    Raises `FrameError` as `encode_frame`, and for a state longer than `max_frame` bytes.
    """
    pieces: list[bytes] = []
    inside: list[ToWorker] = []
    for message in messages:
        state = message.state if type(message) is Run else None
        if state is None or len(state) < LONG:
            inside.append(message)
            continue
        size = len(state)
        if size > max_frame:
            msg = f"a state of {size} bytes exceeds the maximum of {max_frame} for a frame"
            raise FrameError(msg)
        pieces += (HEADER.pack(ATTACHED | size), state)
        inside.append(msgspec.structs.replace(message, state=None, is_attached=True))
    pieces.append(encode_frame(inside, max_frame))
    return pieces


class Attachments:
    """The worker's side: what comes beside frames, each in memory of its own, until its message comes."""

    def __init__(self) -> None:
        self._whole: deque[memoryview] = deque()
        self._coming: memoryview | None = None
        self._room: memoryview | None = None

    @property
    def room(self) -> memoryview | None:
        """Buffer for the next bytes received; None: they are of frames."""
        return self._room

    @property
    def are_here(self) -> bool:
        """Some wait for their messages."""
        return bool(self._whole)

    def begin(self, length: int, data: bytes | memoryview, max_frame: int = DEFAULT_MAX_FRAME) -> int:
        """Take the beginning of an attachment from these bytes; how many of them belong to it.

        Raises `FrameError` for an empty one, or one longer than `max_frame`.
        """
        size = length & ~ATTACHED
        if not 0 < size <= max_frame:
            msg = f"what goes with a frame announces {size} bytes; the maximum is {max_frame}"
            raise FrameError(msg)
        self._coming = self._room = _memory(size)
        taken = min(size, len(data))
        self._room[:taken] = data[:taken]
        self.came(taken)
        return taken

    def came(self, size: int) -> None:
        """So many bytes were received into `room`."""
        assert self._room is not None
        assert self._coming is not None
        self._room = self._room[size:]
        if not self._room:
            self._whole.append(self._coming)
            self._coming = self._room = None

    def give_to(self, messages: Sequence[ToWorker]) -> None:
        """Give these messages the states that came before them. Raises `FrameError` when there are not as many."""
        for message in messages:
            if isinstance(message, Run) and message.is_attached:
                if not self._whole:
                    msg = f"the state of step {message.token.step} of {message.token.procedure} did not come before it"
                    raise FrameError(msg)
                msgspec.structs.force_setattr(message, "state", self._whole.popleft())


def _memory(size: int) -> memoryview:
    """Untouched memory of `size` bytes, in large pages where the system has them, given back when dropped."""
    if not hasattr(mmap, "MADV_HUGEPAGE"):
        return memoryview(bytearray(size))
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with contextlib.suppress(OSError):  # a kernel without them
        memory.madvise(mmap.MADV_HUGEPAGE)
    return memoryview(memory)
