"""The number of workers of a running manager."""

from __future__ import annotations

from actorproc.arguments import check_workers, checked_max_workers
from actorproc.facade.base import Facade
from actorproc.model.events import Resized

__all__ = ["Scaling"]


class Scaling(Facade):
    """`resize`."""

    _slots: int
    _max_slots: int

    def resize(self, workers: int, max_workers: int | None = None) -> None:
        """Have another number of worker processes, from now on; no step fails or is repeated for it.

        Returns when it is decided: new workers boot meanwhile, and one that goes ends the step it is in first. Without
        ``max_workers`` the limit for extra workers stays, or rises to ``workers``. Not stored: another manager on the
        directory begins with its own number. Raises `TypeError` or `ValueError`.
        """
        check_workers(workers)
        maximum = None if max_workers is None else checked_max_workers(max_workers, workers)
        self._running().request(lambda reply: Resized(workers, maximum, reply))
        self._slots = workers
        self._max_slots = max(workers, self._max_slots if maximum is None else maximum)
