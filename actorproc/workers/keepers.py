"""The keepers of workers: processes that have a worker's memory after its death (`actorproc.workers.child.keeping`).

The host lets go of a keeper when the step of its worker has started again, and before that when the step must not: what
the dead worker had mapped of files, devices and memory that others can see is free only when its memory is.
"""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections import deque
from functools import partial
from pathlib import Path
from typing import Protocol

import psutil

from actorproc.engine_log import engine_logger
from actorproc.workers.frames import KEEPER_NAME
from actorproc.workers.timers import Timers

__all__ = ["Keeper", "Keepers", "Kept"]

logger = engine_logger("actorproc.pool")

_LET_GO_AFTER = 0.02
"""Seconds for the step to start again, on the processors that the end of the memory needs as well."""
_LOOK_AGAIN = 0.005
_MOST_UNCOLLECTED = 256
_PATIENCE = 5.0
"""Seconds in which a keeper that was let go ends, if it ends at all."""
_LITTLE = 64 * 1024 * 1024
"""Bytes of which nobody asks whether there are as many again."""
_READ = 1024 * 1024
_SHARED = (b"-s ", b"xs ")
"""How the rights of a shared mapping end."""
_OTHERS_SEE = (b"hugepage", b" /dev/")
_CHARACTER_SETS = b"/gconv-modules.cache\n"
"""Of the C library, and mapped as if it were shared."""


class Keeper:
    """One of them, as its host sees it.

    Raises `OSError` when it is gone or cannot be watched. Its number is what the worker said: it is only watched by it.
    """

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)

    def close(self) -> None:
        """Watch it no longer."""
        os.close(self.pidfd)

    def is_gone(self) -> bool:
        """Its memory is free."""
        poll = select.poll()
        poll.register(self.pidfd, select.POLLIN)
        return bool(poll.poll(0))

    def holds_what_is_missed(self) -> bool:
        """Whether the memory of the dead worker is shared with others, or too much to have it twice."""
        try:
            if is_missed(_read(f"/proc/{self.pid}/maps")):
                return True
            held = int(_read(f"/proc/{self.pid}/statm").split()[1]) * os.sysconf("SC_PAGESIZE")
            return held > _LITTLE and 2 * held > psutil.virtual_memory().available
        except (OSError, ValueError, IndexError, psutil.Error):
            return True  # as if it did: then it is waited for


def is_missed(maps: bytes) -> bool:
    """Whether others can see, or miss, something of these mappings (the text of /proc/PID/maps).

    Files and memory that are shared, devices, huge pages: an open file that is mapped keeps its `flock`, for example.
    """
    shared = sum(maps.count(kind) for kind in _SHARED) - maps.count(_CHARACTER_SETS)
    return shared > 0 or any(part in maps for part in _OTHERS_SEE)


def _read(path: str) -> bytes:
    """A file of /proc. Not by `Path`: the step of the dead worker waits for it."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return b"".join(iter(partial(os.read, fd, _READ), b""))
    finally:
        os.close(fd)


class Kept(Protocol):
    """A worker's process, of which there may be a keeper."""

    keeper: Keeper | None

    def let_go(self) -> None:
        """Have the keeper end. Idempotent."""

    def forget_keeper(self) -> None:
        """Watch it no longer. Idempotent."""


class Keepers:
    """The keepers of a pool's dead workers. Used by the pool's thread only."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._ends_by: dict[Kept, float | None] = {}
        """When a keeper must have ended at the latest; None while it is not let go."""
        self._closing = False
        self._uncollected: deque[int] = deque()
        """Those that have ended, as long as the system's first process, whose children they are, does not know it."""

    def are_of_use(self) -> bool:
        """Whether workers should have keepers: not where nobody collects what has ended."""
        return len(self._uncollected) < _MOST_UNCOLLECTED

    def __bool__(self) -> bool:
        return bool(self._ends_by)

    def must_end_first(self, process: Kept) -> bool:
        """Whether a dead worker's memory has to be free before its step starts again; then its keeper is let go."""
        keeper = process.keeper
        if keeper is None or keeper.is_gone():
            return False
        if process not in self._ends_by:
            if not keeper.holds_what_is_missed():
                return False
            self._end(process)
        ends_by = self._ends_by.get(process)
        return ends_by is not None and time.monotonic() < ends_by

    def take(self, process: Kept) -> None:
        """A dead worker was reported: its keeper is let go when the step has had time to start again."""
        if process.keeper is not None and process not in self._ends_by:
            self._ends_by[process] = None
            self._timers.after(0.0 if self._closing else _LET_GO_AFTER, partial(self._end, process))

    def close(self) -> None:
        """The pool closes: nothing is kept any longer."""
        self._closing = True
        for process, ends_by in list(self._ends_by.items()):
            if ends_by is None:
                self._end(process)

    def abandon(self) -> None:
        """The same, without waiting for their ends."""
        for process in self._ends_by:
            process.let_go()
            process.forget_keeper()
        self._ends_by.clear()

    def _end(self, process: Kept) -> None:
        if self._ends_by.get(process) is None:
            process.let_go()
            self._ends_by[process] = time.monotonic() + _PATIENCE
            self._look(process)

    def _look(self, process: Kept) -> None:
        ends_by = self._ends_by.get(process)
        if ends_by is None:
            return
        if process.keeper is None or process.keeper.is_gone() or time.monotonic() > ends_by:
            del self._ends_by[process]
            if process.keeper is not None:
                self._note_end(process.keeper.pid)
            process.forget_keeper()
        else:
            self._timers.after(_LOOK_AGAIN, partial(self._look, process))

    def _note_end(self, pid: int) -> None:
        with contextlib.suppress(OSError):  # nearly always: it is the child of another process than this one
            if _is_ours(pid):
                os.waitpid(pid, os.WNOHANG)
        self._uncollected.append(pid)
        while self._uncollected and not _is_ours(self._uncollected[0]):
            self._uncollected.popleft()
        if len(self._uncollected) == _MOST_UNCOLLECTED:
            logger.warning(
                "the first process of this system does not collect the processes that have ended (a container without "
                "an init process): workers are made without keepers of their memory, and are replaced more slowly"
            )


def _is_ours(pid: int) -> bool:
    """A process of this number is a keeper that has ended, and is not collected."""
    try:
        name, _, rest = Path(f"/proc/{pid}/stat").read_bytes().partition(b"(")[2].rpartition(b")")
    except OSError:
        return False
    return name == KEEPER_NAME and rest.split()[0] == b"Z"
