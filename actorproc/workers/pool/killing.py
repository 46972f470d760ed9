"""End of a worker process by force: stacks of its threads, SIGTERM, and SIGKILL for its group and what left it."""

from __future__ import annotations

import signal
from functools import partial

from actorproc.workers.base import DUMP_SECONDS
from actorproc.workers.os.timers import PoolTimers
from actorproc.workers.os.usage import to_be_killed_with
from actorproc.workers.pool.worker_link import WorkerLink

__all__ = ["Killer"]


class Killer:
    """Ends processes by signals, under the lock under which they are reaped: no number can be a stranger's yet."""

    def __init__(self, timers: PoolTimers) -> None:
        self._timers = timers

    def kill(self, link: WorkerLink, grace: float, kind: str, reason: str, *, ask: bool = True) -> None:
        """Kill for this reason, after `grace` seconds in which the step may end by itself; the first reason stays.

        Without `ask` there is no SIGTERM, and without `grace` no stack either.
        """
        if link.dead or (link.process is not None and link.process.is_over()):
            return  # it has ended by itself, which the pool's thread is about to find out
        self._mark(link, kind, reason)
        if link.process is None:
            return
        if grace <= 0:
            self._kill(link)
            return
        link.process.ask_for_stacks()
        # Not at once: a thread with a signal pending is passed over, and only in the main thread does SIGTERM
        # interrupt a system call.
        if ask:
            self._timers.after(DUMP_SECONDS, partial(self._terminate, link))
        link.family = to_be_killed_with(link.process.pid)
        self._timers.after(grace, partial(self._kill, link))

    def kill_at_once(self, link: WorkerLink, kind: str, reason: str) -> None:
        """The same without grace."""
        self.kill(link, 0.0, kind, reason)

    @staticmethod
    def _mark(link: WorkerLink, kind: str, reason: str) -> None:
        if not link.killed_as:
            link.killed_as, link.kill_reason = kind, reason

    @staticmethod
    def _terminate(link: WorkerLink) -> None:
        if not link.dead and link.process is not None:
            link.process.signal(signal.SIGTERM)

    @staticmethod
    def _kill(link: WorkerLink) -> None:
        if link.dead or link.process is None:
            return
        known = {process.pid for process in link.family}
        link.family += [process for process in to_be_killed_with(link.process.pid) if process.pid not in known]
        link.process.kill_group()
