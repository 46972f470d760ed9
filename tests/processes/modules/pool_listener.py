"""A pool of real worker processes with a listener that remembers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from actorproc.model.ids import WorkerId
from actorproc.testing.pool_suite import PoolListener
from actorproc.workers.pool.local_pool import LocalPool
from actorproc.workers.protocol.frames import Heartbeat, LogLine

BOUND = 20.0
"""Seconds after which a condition that should hold soon is given up."""


class Listener(PoolListener):
    """A listener of a local pool, made with the given options, unless a pool is given."""

    def __init__(self, pool: Any = None, **options: Any) -> None:
        super().__init__(LocalPool(**options) if pool is None else pool, bound=BOUND)

    def pid(self, worker: WorkerId) -> int:
        return self.pool.facts()[worker].pid

    def heartbeat(self, worker: WorkerId) -> Heartbeat:
        return self.next_message(Heartbeat, worker)

    def log_line(self, worker: WorkerId) -> LogLine:
        return self.next_message(LogLine, worker)


def is_gone(pid: int) -> bool:
    """No such process, or a zombie that another process has to collect."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def open_files() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
