"""New code for the workers of a running manager."""

from __future__ import annotations

from datetime import timedelta

from actorproc.durations import in_seconds
from actorproc.facade.base import Facade

__all__ = ["Reloading"]


class Reloading(Facade):
    """`reload`."""

    def reload(self, timeout: float | timedelta = 300.0) -> int:
        """Replace all workers one by one with new ones, which import what is on disk now. No step is lost or repeated.

        A worker ends the step it is in and is replaced then; the next one follows when its successor takes steps. In
        the meantime a procedure whose step new code was handed goes to no worker with the old. What was parked is
        tried again at the end. Nothing is stored: the manager itself goes on with what it has loaded.

        Args:
            timeout: seconds, or a timedelta, for all of it. Default: 300. A worker is not ended for being late.

        Returns:
            The number of workers that were replaced.

        Raises:
            NotAllowed: the manager's own program has loaded a module that changed, or a fact that the manager decides
                on (version, retries, limits, locks) is another one in the new code, or the new code cannot be
                imported: nothing was replaced then, and the program is to be restarted.
            TimeoutError: a worker is still in its step, or its successor does not boot; the message names it.
            ManagerStopped: no manager runs.
        """
        return self._running().reload(in_seconds(timeout, "timeout"))
