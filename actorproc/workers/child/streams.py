"""The worker's stdout and stderr: what a step prints is marked with the procedure it belongs to."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from typing import TextIO

from actorproc.workers.markers import mark

__all__ = ["Streams"]


class _Marked(io.TextIOWrapper):
    """A text stream over the same pipe that writes a mark when the owner of the text changes."""

    owner_of: Callable[[], str]
    owner = ""

    def write(self, text: str, /) -> int:
        owner = self.owner_of()
        if owner != self.owner:
            self.owner = owner
            super().write(mark(owner))
        return super().write(text)

    def end(self, owner: str) -> None:
        """The step of this procedure is over; what follows is not its text."""
        if self.owner == owner:
            self.owner = ""
            super().write(mark(""))
            self.flush()


class Streams:
    """Replaces `sys.stdout` and `sys.stderr` for the life of the worker."""

    def __init__(self, owner_of: Callable[[], str]) -> None:
        """`owner_of` names the procedure whose step runs on the calling thread; "" for none."""
        self._streams = [self._marked(name, owner_of) for name in ("stdout", "stderr")]

    def finished(self, procedure: str) -> None:
        """The step of this procedure was answered."""
        for stream in self._streams:
            if stream is not None and stream.owner == procedure:
                with contextlib.suppress(OSError, ValueError):  # closed by a step
                    stream.end(procedure)

    @staticmethod
    def _marked(name: str, owner_of: Callable[[], str]) -> _Marked | None:
        stream: TextIO | None = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            return None
        stream.flush()
        encoding = stream.encoding
        marked = _Marked(stream.detach(), encoding=encoding, errors="backslashreplace", line_buffering=True)
        marked.owner_of = owner_of
        setattr(sys, name, marked)
        setattr(sys, f"__{name}__", marked)
        return marked
