"""Worker quotas: shares that classes of work have of the workers, and workers kept free for them (as in IoTDB).

A class uses a worker while one of its steps is in that worker's hands; with shares in force a worker holds steps of
one class at a time. While another class that is below its own share wants a worker, a class gets none beyond its
share; every share is at least one worker. Other workers are for all. A reserved worker is kept
free for its class even when nothing of that class is there; one worker at least is always left for the others.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from actorproc.core.queues.worker_table import Worker, WorkerTable

__all__ = ["WorkerShares"]


class WorkerShares:
    """Worker quotas by class of work. Classes that are not named have a share of 1 and nothing reserved."""

    def __init__(self, shares: Mapping[str, float], reserved: Mapping[str, int]) -> None:
        self._shares = dict(shares)
        self._reserved = dict(reserved)

    def open_to(self, worker_table: WorkerTable, work_class: str, wanting: Collection[str]) -> list[Worker]:
        """Workers that may get a step of this class, while the classes in `wanting` have steps to hand out too."""
        pool = worker_table.for_all()
        open_workers = [worker for worker in pool if worker.queue and worker.work_class == work_class]
        idle = [worker for worker in pool if not worker.queue]
        if idle and self._may_take_one(pool, len(pool), len(idle), work_class, wanting):
            open_workers += idle
        return open_workers

    def would_use_another(self, worker_table: WorkerTable, work_class: str, wanting: Collection[str]) -> bool:
        """True if one worker more than there are, with nothing to do, might get a step of this class."""
        pool = worker_table.for_all()
        idle = sum(not worker.queue for worker in pool)
        return self._may_take_one(pool, len(pool) + 1, idle + 1, work_class, wanting)

    def _may_take_one(
        self, pool: list[Worker], size: int, idle: int, work_class: str, wanting: Collection[str]
    ) -> bool:
        used: dict[str, int] = {}
        for worker in pool:
            if worker.queue:
                used[worker.work_class] = used.get(worker.work_class, 0) + 1
        mine = used.get(work_class, 0)
        if mine < self._reserved.get(work_class, 0):
            return True
        if not self._is_beyond_reservations(used, size, idle, work_class):
            return False
        if mine < self._cap(work_class, size):
            return True
        return not any(other != work_class and used.get(other, 0) < self._cap(other, size) for other in wanting)

    def _is_beyond_reservations(self, used: dict[str, int], size: int, idle: int, work_class: str) -> bool:
        """A worker is left when all that is reserved for others and not used by them is set aside."""
        others = [(name, count) for name, count in self._reserved.items() if name != work_class]
        unreserved = max(1, size - sum(count for _, count in others))
        outside = sum(count for name, count in used.items() if name not in self._reserved)
        if not used.get(work_class) and outside < unreserved and work_class not in self._reserved:
            return True
        missing = sum(max(0, count - used.get(name, 0)) for name, count in others)
        return idle > missing

    def _cap(self, work_class: str, size: int) -> int:
        return max(1, int(self._shares.get(work_class, 1.0) * size + 1e-9))
