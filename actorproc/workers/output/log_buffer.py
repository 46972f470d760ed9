"""Prints and log records of procedures, kept for a while in the host's memory, and for longer in a spool.

Each procedure has a log of lines; the oldest are dropped when it exceeds its share. When all together exceed the
total, whole procedures are dropped, those that have been silent for longest. A worker's death takes nothing along;
what earlier lives of the host received is in the spool, if there is one.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from pathlib import Path

from actorproc.workers.output.spool import LogSpool, spooled
from actorproc.workers.protocol.log_entry import LogEntry
from actorproc.workers.protocol.markers import UNOWNED, OutputOwner

__all__ = ["LINE_LENGTH", "LogBuffer", "LogEntry", "shortened"]

LINE_LENGTH = 8 * 1024
"""Characters of a line that are kept; of a longer one the beginning."""
_CUT = " [...]"
_LOG_COST = 1024
"""Bytes a procedure costs beside its entries: most print a line or two, so these are most of what is kept."""


def shortened(line: str, most: int) -> str:
    """A line of at most `most` characters: of a longer one its beginning, and a mark where it was cut."""
    return line if len(line) <= most else line[: most - len(_CUT)] + _CUT


class _ProcedureLog:
    __slots__ = ("dropped", "entries", "is_whole", "size")

    def __init__(self) -> None:
        self.entries: deque[LogEntry] = deque()
        self.size = 0
        self.dropped = 0
        self.is_whole = False
        """The spool has nothing older, as far as it is known."""


class LogBuffer:
    """Logs of lines by procedure. Any thread; sizes in bytes, 0 keeps nothing."""

    def __init__(
        self,
        per_procedure: int = 256 * 1024,
        total: int = 64 * 1024 * 1024,
        *,
        directory: Path | None = None,
        spool: int = 0,
    ) -> None:
        """With a `directory` the newest `spool` bytes are kept there as well."""
        self._per_procedure = per_procedure
        self._directory = directory if spool else None
        self._spool = LogSpool(directory, spool) if directory is not None and spool else None
        self._total = total
        self._size = 0
        self._logs: OrderedDict[str, _ProcedureLog] = OrderedDict()
        self._lock = threading.Lock()

    def add(
        self,
        procedure: str,
        stream: str,
        text: str,
        *,
        level: int | None = None,
        logger: str | None = None,
        owner: OutputOwner = UNOWNED,
    ) -> None:
        """Keep one line, of this attempt of a step if it is known."""
        if not self._per_procedure:
            return
        entry = LogEntry(
            at=time.time(),
            stream=stream,
            text=shortened(text, LINE_LENGTH),
            level=level,
            logger=logger,
            step=owner.step or None,
            step_name=owner.step_name or None,
            attempt=owner.attempt or None,
        )
        cost = entry.cost
        with self._lock:
            if self._spool is not None:
                self._spool.add(procedure, entry)
            log = self._logs.get(procedure)
            if log is None:
                log = self._logs[procedure] = _ProcedureLog()
                self._size += _LOG_COST
            else:
                self._logs.move_to_end(procedure)
            log.entries.append(entry)
            log.size += cost
            self._size += cost
            while log.size > self._per_procedure and len(log.entries) > 1:
                freed = log.entries.popleft().cost
                log.size -= freed
                self._size -= freed
                log.dropped += 1
            while self._size > self._total and len(self._logs) > 1:
                self._size -= self._logs.popitem(last=False)[1].size + _LOG_COST

    def lines(self, procedure: str) -> list[LogEntry]:
        """Lines kept of a procedure, oldest first."""
        with self._lock:
            log = self._logs.get(procedure)
            found = list(log.entries) if log is not None else []
            room = self._per_procedure - (log.size if log is not None else 0)
            is_whole = log is not None and log.is_whole
        if self._directory is None or is_whole or room <= 0:
            return found
        # Not under the lock: the pool's thread must not wait for a disk.
        older = spooled(self._directory, procedure, before=found[0].at if found else None, size=room)
        if not older and log is not None:
            log.is_whole = True
        return older + found

    def close(self) -> None:
        """Nothing more comes."""
        with self._lock:
            if self._spool is not None:
                self._spool.close()
