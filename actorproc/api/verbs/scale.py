"""The number of workers of a running manager."""

from __future__ import annotations

from actorproc.api.verbs.base import EngineVerbs
from actorproc.engine.arguments import check_workers, checked_max_workers
from actorproc.model.messages.events import Resized

__all__ = ["ScaleVerbs"]


class ScaleVerbs(EngineVerbs):
    """`resize`."""

    _slots: int
    _max_slots: int

    def resize(self, workers: int, max_workers: int | None = None) -> None:
        """Change the number of worker processes, from now on; no step fails or is repeated for it.

        Returns when it is decided: new workers boot meanwhile, and a worker that goes ends its step first. The number
        is not stored: another manager on the directory begins with its own.

        Args:
            workers: Number of worker processes, 1 to 999.
            max_workers: Greatest number with extra workers; ``workers`` to 999. Default: None, the limit stays, or
                rises to ``workers``.

        Raises:
            TypeError: A number is no int.
            ValueError: ``workers`` is not 1 to 999, or ``max_workers`` not ``workers`` to 999.
            ManagerStopped: No manager runs.
        """
        check_workers(workers)
        maximum = None if max_workers is None else checked_max_workers(max_workers, workers)
        self._running().request(lambda reply: Resized(workers, maximum, reply))
        self._slots = workers
        self._max_slots = max(workers, self._max_slots if maximum is None else maximum)
