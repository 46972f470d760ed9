"""What procedures printed and logged, kept for a while in the host's memory.

Each procedure has a ring of lines; the oldest are dropped when it exceeds its share, and whole procedures, those that
have been silent for longest, when all together exceed the total. A worker's death takes nothing along; the host's
death does.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque

import msgspec

__all__ = ["LogBook", "LogEntry"]

_LINE_LENGTH = 8 * 1024
_OVERHEAD = 100
"""Bytes an entry costs beside its text."""


class LogEntry(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """One line of a procedure's output."""

    at: float
    """Epoch seconds (UTC) when the host received it."""
    stream: str
    """stdout, stderr, or log for a log record."""
    text: str
    level: int | None = None
    """Of a log record: its level as `logging` counts."""
    logger: str | None = None
    """Of a log record: the logger's name."""


class _Ring:
    __slots__ = ("dropped", "entries", "size")

    def __init__(self) -> None:
        self.entries: deque[LogEntry] = deque()
        self.size = 0
        self.dropped = 0


class LogBook:
    """Rings of lines by procedure. Any thread; sizes in bytes, 0 keeps nothing."""

    def __init__(self, per_procedure: int = 256 * 1024, total: int = 64 * 1024 * 1024) -> None:
        self._per_procedure = per_procedure
        self._total = total
        self._size = 0
        self._rings: OrderedDict[str, _Ring] = OrderedDict()
        self._lock = threading.Lock()

    def add(
        self, procedure: str, stream: str, text: str, *, level: int | None = None, logger: str | None = None
    ) -> None:
        """Keep one line."""
        if not self._per_procedure:
            return
        text = text[:_LINE_LENGTH]
        entry = LogEntry(at=time.time(), stream=stream, text=text, level=level, logger=logger)
        cost = len(text) + _OVERHEAD
        with self._lock:
            ring = self._rings.get(procedure)
            if ring is None:
                ring = self._rings[procedure] = _Ring()
            else:
                self._rings.move_to_end(procedure)
            ring.entries.append(entry)
            ring.size += cost
            self._size += cost
            while ring.size > self._per_procedure and len(ring.entries) > 1:
                freed = len(ring.entries.popleft().text) + _OVERHEAD
                ring.size -= freed
                self._size -= freed
                ring.dropped += 1
            while self._size > self._total and len(self._rings) > 1:
                self._size -= self._rings.popitem(last=False)[1].size

    def lines(self, procedure: str) -> list[LogEntry]:
        """What is kept of a procedure, oldest first."""
        with self._lock:
            ring = self._rings.get(procedure)
            return list(ring.entries) if ring is not None else []
