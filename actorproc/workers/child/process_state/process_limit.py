"""Process limit for a step that starts processes without end, until the host sees it.

The host counts the processes of a limited step ten times a second and kills what has too many. That is the limit; but a
fork bomb doubles thousands of times in between. So the kernel is told to refuse at some distance above the limit. It
does so by the worker's own control group, where the host could make one, else by RLIMIT_NPROC. Both count threads, and
the latter all that runs for the same user, here and in other containers; hence the distance.
"""

from __future__ import annotations

import _thread
import contextlib
import os
import resource
from pathlib import Path

__all__ = ["ProcessLimit"]

_DISTANCE = 256
"""Processes and threads above the limit at which the kernel refuses."""
_MOST = 1 << 22
"""No Linux has more processes and threads than that."""


class ProcessLimit:
    """The kernel's own limit around a step. Used by the thread that runs steps."""

    def __init__(self) -> None:
        self.cgroup = ""
        """Folder of the control groups; "": there is none."""
        self._group: Path | None = None

    def put(self, processes: int) -> contextlib.ExitStack:
        """Set the limit. Close the returned `ExitStack` to lift it."""
        lifting = contextlib.ExitStack()
        if self.cgroup and self._limit_group(processes):
            lifting.callback(self._free_group)
        else:
            before = _limit_user(processes)
            if before is not None:
                lifting.callback(resource.setrlimit, resource.RLIMIT_NPROC, before)
        return lifting

    def _limit_group(self, processes: int) -> bool:
        group = Path(self.cgroup, str(os.getpid()))
        try:
            if self._group is None:
                group.mkdir(exist_ok=True)
                (group / "cgroup.procs").write_text(str(os.getpid()), encoding="utf-8")
                self._group = group
            inside = int((group / "pids.current").read_text(encoding="utf-8"))
            (group / "pids.max").write_text(str(inside + processes + _DISTANCE), encoding="utf-8")
        except (OSError, ValueError):
            return False
        return True

    def _free_group(self) -> None:
        with contextlib.suppress(OSError):
            assert self._group is not None
            (self._group / "pids.max").write_text("max", encoding="utf-8")


def _limit_user(processes: int) -> tuple[int, int] | None:
    """Set RLIMIT_NPROC; what it was before, or None when it has no effect on this user, as on root."""
    before = soft, hard = resource.getrlimit(resource.RLIMIT_NPROC)
    highest = _MOST if hard == resource.RLIM_INFINITY else min(hard, _MOST)
    try:
        if not _refuses_at(0, hard):
            resource.setrlimit(resource.RLIMIT_NPROC, before)
            return None
        # What runs for this user cannot be counted from within a container; but the kernel tells when it refuses.
        lowest, most = 0, highest
        while lowest + 1 < most:
            middle = (lowest + most) // 2
            if _refuses_at(middle, hard):
                lowest = middle
            else:
                most = middle
        wanted = min(most + processes + _DISTANCE, highest if soft == resource.RLIM_INFINITY else soft)
        resource.setrlimit(resource.RLIMIT_NPROC, (wanted, hard))
    except (OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NPROC, before)
        return None
    return before


def _refuses_at(soft: int, hard: int) -> bool:
    """True if the kernel refuses one thread more with this limit."""
    resource.setrlimit(resource.RLIMIT_NPROC, (soft, hard))
    try:
        _thread.start_new_thread(int, ())
    except RuntimeError:
        return True
    return False
