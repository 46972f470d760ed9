"""New code for the workers of a running manager."""

from __future__ import annotations

from datetime import timedelta

from actorproc.api.verbs.base import EngineVerbs
from actorproc.support.durations import in_seconds

__all__ = ["ReloadVerbs"]


class ReloadVerbs(EngineVerbs):
    """`reload`."""

    def reload(self, timeout: float | timedelta = 300.0) -> int:
        """Replace all workers one by one with new ones, which import the code on disk now. No step is lost or repeated.

        A worker ends its step and is replaced then; the next one follows when its successor takes steps. In the
        meantime a procedure with a step in a new worker goes to no old one. Parked procedures are tried again at the
        end. Nothing is stored: the manager itself goes on with what it has loaded.

        Args:
            timeout: Seconds, or a timedelta, for all of it. A worker is not ended for being late. Default: 300.

        Returns:
            The number of workers that were replaced.

        Raises:
            NotAllowed: The manager's own program has loaded a module that changed, or the new code cannot be imported.
                Or a fact that the manager decides by (version, retries, limits, locks) is another one in the new code.
                Nothing was replaced then; restart the program.
            TimeoutError: A worker is still in its step, or its successor does not boot; the message names it.
            ManagerStopped: No manager runs.
        """
        return self._running().reload(in_seconds(timeout, "timeout"))
