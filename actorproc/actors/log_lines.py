"""Log lines of workers on their way to the host's logging, on the thread for callbacks.

Steps may log faster than the host's handlers write. The queue is bounded: what does not fit is counted and dropped
there; what is kept for `ProcedureManager.logs` is not concerned.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable

from actorproc.workers.frames import LogLine

__all__ = ["LogLines"]


class LogLines:
    """Takes lines from the manager's thread. `post` runs an errand on the thread for callbacks."""

    def __init__(self, post: Callable[[Callable[[], object]], None], *, bound: int = 16_384) -> None:
        self._post = post
        self._bound = bound
        self._lines: deque[LogLine] = deque()
        self._lock = threading.Lock()
        self._posted = False
        self._dropped = 0

    def put(self, line: LogLine) -> None:
        """Give a line to the host's logging soon; returns at once."""
        with self._lock:
            if len(self._lines) >= self._bound:
                self._dropped += 1
                return
            self._lines.append(line)
            if self._posted:
                return
            self._posted = True
        self._post(self._deliver)

    def _deliver(self) -> None:
        try:
            while (line := self._next()) is not None:
                _emit(line)
        except BaseException:  # a handler of the host raised: the lines after this one are not lost for it
            self._post(self._deliver)
            raise

    def _next(self) -> LogLine | None:
        with self._lock:
            if self._lines:
                return self._lines.popleft()
            dropped, self._dropped = self._dropped, 0
            self._posted = dropped > 0
        if not dropped:
            return None
        words = f"{dropped} log lines of workers were dropped: the log handlers of this program are too slow for them"
        return LogLine(None, logging.WARNING, "actorproc", words)


def _emit(line: LogLine) -> None:
    name = line.name if line.name.split(".", 1)[0] == "actorproc" else f"actorproc.{line.name}"
    logging.getLogger(name).log(line.level, "%s", line.text)
