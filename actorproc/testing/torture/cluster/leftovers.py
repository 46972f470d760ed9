"""Processes that outlive what started them: found by a variable of the environment that they inherit."""

from __future__ import annotations

import contextlib
import os
import time

import psutil

from actorproc.testing.torture.record import EpisodeJournal

__all__ = ["TOKEN", "await_end"]

TOKEN = "ACTORPROC_TORTURE"  # noqa: S105 - the name of a variable that marks the processes of an episode
_ORPHAN_BOUND = 10.0
"""Seconds a worker may outlive its host. A second is promised; a machine under torture is given more."""
_STARVED_BOUND = 60.0
"""Seconds after which even a process that never gets a processor counts as an orphan."""
_NEEDS_TO_END = 1.0
"""Seconds of processor in which a worker, also one that has only begun to start, must notice that its host is gone."""


def await_end(journal: EpisodeJournal, mark: str, *, within: float = _ORPHAN_BOUND) -> None:
    """Wait until all processes of a mark have ended; those that do not are written down as orphans, and killed.

    Args:
        journal: Journal of the episode.
        mark: Value of the variable.
        within: Seconds to wait at most for those that get a processor to end with. Default: 10.
    """
    began = time.monotonic()
    had: dict[int, float] = {}
    while left := _left_over(mark):
        waited = time.monotonic() - began
        orphans = [process for process in left if not _is_starved(process, had)]
        if waited > min(_ORPHAN_BOUND, within) and (orphans or waited > _STARVED_BOUND):
            for process in orphans or left:
                journal.note("orphan", pid=process.pid, text=f"process {process.pid} outlives its host")
                journal.killing(process.pid)
                with contextlib.suppress(psutil.Error):  # it has ended in this moment
                    process.kill()
            return
        time.sleep(0.005)


def _left_over(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            is_ours = process.pid != os.getpid() and process.environ().get(TOKEN) == mark
            if is_ours and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def _is_starved(process: psutil.Process, had: dict[int, float]) -> bool:
    """True if it wants to run and has hardly run since it was first looked at; `had` keeps what it had had then."""
    try:
        times = process.cpu_times()
        used = times.user + times.system
        return used - had.setdefault(process.pid, used) < _NEEDS_TO_END and process.status() == psutil.STATUS_RUNNING
    except psutil.Error:
        return True  # it has ended
