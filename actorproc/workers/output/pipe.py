"""Output of a worker: drained always, kept a little, forwarded to a logger.

A pipe without a reader blocks its writer at 64 KiB, so the pool reads whatever comes, at any rate.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

from actorproc.model.lines import plain_text
from actorproc.workers.output.log_buffer import LINE_LENGTH, shortened
from actorproc.workers.output.log_records import step_facts
from actorproc.workers.protocol.markers import UNOWNED, MarkReader, OutputOwner

__all__ = ["KEEP_BYTES", "OutputPipe"]

KEEP_BYTES = 8 * 1024
"""Bytes of the end of each stream that go into a crash report."""
_CHUNK = 64 * 1024
_LINES_PER_SECOND = 500
_FORWARDED = 2000
"""Characters of a line that the logger gets."""
_LONGEST = 4 * LINE_LENGTH + 1
"""Bytes of a line that are looked at: more than what is kept of it has."""
_LINES_KEPT = 4000
"""Lines of one chunk looked at: a chunk of empty lines is no text."""

logger = logging.getLogger("actorproc.worker")


class OutputPipe:
    """The host's end of a worker's stdout or stderr. Used under the pool's lock."""

    def __init__(self, fd: int, *, label: str, level: int, name: str = "") -> None:
        self.fd = fd
        self.label = label
        """Put before each forwarded line: which worker, which stream."""
        self.name = name
        """stdout or stderr."""
        self.keep: Callable[[OutputOwner, str, str], OutputOwner] | None = None
        """Called with owner (`UNOWNED` when the output is not marked), stream name and line; gives the owner."""
        self.worker: Mapping[str, int | None] = {}
        """Slot and process of the worker, for log records."""
        self._level = level
        self._kept = bytearray()
        self._marks = MarkReader()
        self._line = b""
        self._owner = UNOWNED
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
        self._take(chunk)
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
            self._take(chunk)
        self._piece(*self._marks.rest())
        self._end_line()
        self._tell_dropped()

    def tail(self) -> str:
        """The last `KEEP_BYTES` of the stream, as text."""
        return self._kept.decode("utf-8", "replace")

    def _take(self, chunk: bytes) -> None:
        for owner, piece in self._marks.feed(chunk):
            self._piece(owner, piece)

    def _piece(self, owner: OutputOwner, piece: bytes) -> None:
        if not piece:
            return
        self._kept += piece[-KEEP_BYTES:]
        if len(self._kept) > KEEP_BYTES:
            del self._kept[:-KEEP_BYTES]
        if owner != self._owner:
            self._end_line()
            self._owner = owner
        *lines, rest = (self._line + piece).split(b"\n")
        self._line = rest[:_LONGEST]
        self._forward(lines)

    def _end_line(self) -> None:
        line, self._line = self._line, b""
        if line:
            self._forward([line])

    def _forward(self, lines: list[bytes]) -> None:
        """Give whole lines to the logger and to the log_buffer; neither gets more of a flood than it can use."""
        if not lines:
            return
        is_logged = logger.isEnabledFor(self._level)
        now = time.monotonic()
        if now - self._second >= 1.0:
            self._tell_dropped()
            self._second, self._forwarded = now, 0
        room = max(0, _LINES_PER_SECOND - self._forwarded)
        for number, line in enumerate(lines[-_LINES_KEPT:]):
            text = line[:_LONGEST].decode("utf-8", "replace").rstrip()
            owner = self._owner if self.keep is None else self.keep(self._owner, self.name, text)
            if is_logged and number < room and text.strip():
                self._log("%s %s", self.label, plain_text(shortened(text, _FORWARDED)), extra=self._facts(owner))
        self._forwarded += min(len(lines), room)
        self._dropped += max(0, len(lines) - room) if is_logged else 0

    def _tell_dropped(self) -> None:
        if self._dropped:
            dropped, self._dropped = self._dropped, 0
            words = "%s %d lines were not forwarded: more than %d in a second"
            self._log(words, self.label, dropped, _LINES_PER_SECOND)

    def _facts(self, owner: OutputOwner) -> dict[str, Any]:
        """Attributes of a log record: the step that a line is of, as far as it is known, and its worker."""
        return step_facts(
            owner.procedure,
            owner.root,
            owner.type_name,
            owner.step,
            owner.step_name or None,
            owner.attempt,
            self.worker.get("slot"),
            self.worker.get("pid"),
        )

    def _log(self, words: str, *parts: object, extra: dict[str, Any] | None = None) -> None:
        # A handler of the host that raises must not end the thread that hears all workers.
        with contextlib.suppress(Exception):
            logger.log(self._level, words, *parts, extra=self._facts(UNOWNED) if extra is None else extra)
