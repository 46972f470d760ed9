"""Log lines of workers on their way to the host's logging, on the thread for callbacks.

Steps may log faster than the host's handlers write. What does not fit is counted and dropped there; what is kept for
`ProcedureManager.logs` is not concerned.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from actorproc.actors.outlet import Outlet
from actorproc.workers.frames import LogLine

__all__ = ["LogLines"]


class LogLines:
    """Takes lines from the manager's thread. `post` runs an errand on the thread for callbacks."""

    def __init__(self, post: Callable[[Callable[[], object]], None], *, bound: int = 16_384) -> None:
        self._outlet = Outlet(self._deliver, post, bound=bound)
        self._told = 0
        self.put = self._outlet.put

    def _deliver(self, line: LogLine) -> None:
        try:
            _emit(line.name, line.level, line.text)
        finally:
            dropped = self._outlet.lost - self._told
            if dropped and not self._outlet:
                self._told += dropped
                slow = "the log handlers of this program are too slow for them"
                _emit("actorproc", logging.WARNING, f"{dropped} log lines of workers were dropped: {slow}")


def _emit(name: str, level: int, text: str) -> None:
    known = name if name.split(".", 1)[0] == "actorproc" else f"actorproc.{name}"
    logging.getLogger(known).log(level, "%s", text)
