"""The worker's stdout and stderr: what a step prints is marked with the procedure it belongs to."""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from typing import Any, BinaryIO, TextIO

from actorproc.workers.protocol.markers import UNOWNED, OutputOwner, mark

__all__ = ["Streams"]

_FDS = {"stdout": 1, "stderr": 2}


class _Marked(io.TextIOWrapper):
    """A text stream over the same pipe that writes a mark when the owner of the text changes."""

    home: Streams
    owner = UNOWNED

    def write(self, text: str, /) -> int:
        owner = self.home.owner_of()
        if owner != self.owner:
            self.owner = owner
            self.home.has_owners = True
            super().write(mark(owner))
        return super().write(text)

    def end(self) -> None:
        """The step is over; what follows is not its text."""
        self.owner = UNOWNED
        super().write(mark(UNOWNED))
        self.flush()


class Streams:
    """Replaces `sys.stdout` and `sys.stderr` for the life of the worker."""

    def __init__(self, owner_of: Callable[[], OutputOwner]) -> None:
        """`owner_of` names the step that runs on the calling thread; `UNOWNED` for none."""
        self.owner_of = owner_of
        self.has_owners = False
        """Some text may belong to a procedure whose step was not `finished` yet."""
        self._streams = {name: self._of_start(name) for name in _FDS}
        self._shown: dict[str, Any] = {}

    def finished(self, procedure: str) -> None:
        """The step of this procedure was answered."""
        self.has_owners = False  # before it is looked at: a step on another thread may begin to print meanwhile
        for stream in self._streams.values():
            if stream is not None and stream.owner.procedure == procedure:
                with contextlib.suppress(OSError, ValueError):  # closed by a step
                    stream.end()
            if stream is not None and stream.owner.procedure:
                self.has_owners = True

    def remember(self) -> None:
        """From now on `restore` puts back what `sys` has at this moment."""
        self._shown = {name: getattr(sys, name) for name in _FDS}

    def restore(self) -> None:
        """Put back the streams that a step replaced or closed. Call it when no step runs, with the descriptors
        restored."""
        shown = self._shown
        try:  # asked after every step, hence without a loop
            out, err = shown["stdout"], shown["stderr"]
            if sys.stdout is out and sys.stderr is err and not (out.closed or err.closed):
                return
        except (KeyError, AttributeError, ValueError):  # removed by a step, or detached; or there was none
            pass
        self._put_back()

    def _put_back(self) -> None:
        for name, shown in self._shown.items():
            if _is_closed(shown):
                self._open_again(name)
            elif getattr(sys, name, None) is not shown:
                setattr(sys, name, shown)

    def _of_start(self, name: str) -> _Marked | None:
        stream: TextIO | None = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            return None
        stream.flush()
        encoding = stream.encoding
        return self._install(name, stream.detach(), encoding)

    def _open_again(self, name: str) -> None:
        before = self._streams[name]
        encoding = "utf-8" if before is None else before.encoding
        again = open(_FDS[name], "wb", closefd=False)  # noqa: SIM115 - for the life of the worker
        self._streams[name] = self._shown[name] = self._install(name, again, encoding)

    def _install(self, name: str, buffer: BinaryIO, encoding: str) -> _Marked:
        marked = _Marked(buffer, encoding=encoding, errors="backslashreplace", line_buffering=True)
        marked.home = self
        setattr(sys, name, marked)
        setattr(sys, f"__{name}__", marked)
        return marked


def _is_closed(stream: Any) -> bool:
    try:
        return bool(stream is not None and stream.closed)
    except (AttributeError, ValueError):  # not every stand-in can be closed; of a detached one nothing can be asked
        return isinstance(stream, io.TextIOWrapper)
