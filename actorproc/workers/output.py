"""What a worker prints: drained always, kept a little, forwarded to a logger.

A pipe nobody reads blocks its writer at 64 KiB, so the pool reads whatever comes, at any rate.
"""

from __future__ import annotations

import logging
import os
import time

__all__ = ["KEEP_BYTES", "OutputPipe"]

KEEP_BYTES = 8 * 1024
"""Bytes of the end of each stream that go into a crash report."""
_CHUNK = 64 * 1024
_LINES_PER_SECOND = 500
_LINE_LENGTH = 2000

logger = logging.getLogger("actorproc.worker")


class OutputPipe:
    """The host's end of a worker's stdout or stderr. Used by the pool's thread only."""

    def __init__(self, fd: int, *, label: str, level: int) -> None:
        self.fd = fd
        self.label = label
        """Put before each forwarded line: which worker, which stream."""
        self._level = level
        self._kept = bytearray()
        self._line = b""
        self._second = 0.0
        self._forwarded = 0
        self._dropped = 0
        os.set_blocking(fd, False)

    def read(self) -> bool:
        """Take one chunk; False at the end of the stream."""
        try:
            chunk = os.read(self.fd, _CHUNK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        if not chunk:
            return False
        self._keep(chunk)
        self._forward(chunk)
        return True

    def read_rest(self) -> None:
        """Take what is there now, at most 1 MiB: a surviving grandchild may write without end."""
        for _ in range(16):
            try:
                chunk = os.read(self.fd, _CHUNK)
            except OSError:
                break
            if not chunk:
                break
            self._keep(chunk)
            self._forward(chunk)
        self._forward(b"\n" if self._line else b"")
        self._tell_dropped()

    def tail(self) -> str:
        """The last `KEEP_BYTES` of the stream, as text."""
        return self._kept.decode("utf-8", "replace")

    def _keep(self, chunk: bytes) -> None:
        self._kept += chunk[-KEEP_BYTES:]
        if len(self._kept) > KEEP_BYTES:
            del self._kept[:-KEEP_BYTES]

    def _forward(self, chunk: bytes) -> None:
        if not chunk or not logger.isEnabledFor(self._level):
            return
        *lines, rest = (self._line + chunk).split(b"\n")
        self._line = rest[-_LINE_LENGTH:]
        now = time.monotonic()
        if now - self._second >= 1.0:
            self._tell_dropped()
            self._second, self._forwarded = now, 0
        room = _LINES_PER_SECOND - self._forwarded
        for line in lines[:room]:
            if line.strip():
                logger.log(self._level, "%s %s", self.label, line[:_LINE_LENGTH].decode("utf-8", "replace").rstrip())
        self._forwarded += min(len(lines), room)
        self._dropped += max(0, len(lines) - room)

    def _tell_dropped(self) -> None:
        if self._dropped:
            logger.log(
                self._level,
                "%s %d lines were not forwarded: more than %d in a second",
                self.label,
                self._dropped,
                _LINES_PER_SECOND,
            )
            self._dropped = 0
