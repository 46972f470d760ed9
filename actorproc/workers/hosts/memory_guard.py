"""Guard of a container's memory: the largest worker is killed before the kernel ends the whole container.

Kubernetes, systemd and Ray end all processes of a container that is out of memory, the agent and its other steps among
them. That would look like the loss of a host.
"""

from __future__ import annotations

import threading
import time

from actorproc.support.engine_log import engine_logger
from actorproc.workers.base import WorkerPool
from actorproc.workers.os.container_memory import ContainerMemory

__all__ = ["MemoryGuard"]

logger = engine_logger("actorproc.host")

_PART = 0.9
"""Part of the limit above which a worker is killed."""
_LOOK = 0.1
"""Seconds between two looks."""
_REST = 1.0
"""Seconds after a kill in which memory may come back, before another worker is killed."""


class MemoryGuard:
    """Looks at the memory of the container of an agent.

    Args:
        memory: The memory of the container.
    """

    def __init__(self, memory: ContainerMemory) -> None:
        self._memory = memory
        self._pool: WorkerPool | None = None
        self._over = threading.Event()
        self._rests_until = 0.0

    def start(self) -> None:
        """Begin to look, on a thread of its own, until `stop`."""
        threading.Thread(target=self._run, name="actorproc-host-memory", daemon=True).start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()

    def guard(self, pool: WorkerPool | None) -> None:
        """Guard by the workers of this pool.

        Args:
            pool: The pool; None: there is none.
        """
        self._pool = pool

    def look(self) -> bool:
        """Kill the largest worker if too little is left.

        Returns:
            True if one was killed.
        """
        pool, used, limit = self._pool, self._memory.used(), self._memory.limit
        if pool is None or used is None or used < _PART * limit or time.monotonic() < self._rests_until:
            return False
        sizes = {worker: fact.rss or 0 for worker, fact in pool.facts().items()}
        if not sizes:
            return False
        largest = max(sizes, key=lambda worker: sizes[worker])
        why = (
            f"killed because {used / 1e6:.0f} of the {limit / 1e6:.0f} MB that the container of its host may have were "
            f"in use, and it had most of them, {sizes[largest] / 1e6:.0f} MB"
        )
        logger.warning("worker %d.%d is %s", largest.slot, largest.incarnation, why)
        pool.kill(largest, reason=why, kind="memory-limit", ask=False)
        self._rests_until = time.monotonic() + _REST
        return True

    def _run(self) -> None:
        while not self._over.wait(_LOOK):
            self.look()
