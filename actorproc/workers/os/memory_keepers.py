"""The keepers of workers: processes that have a worker's memory after its death.

A worker makes its own (`actorproc.workers.child.process_state.memory_keeper`).

The host lets go of a keeper when the step of its worker has started again, and before that when the step must not: what
the dead worker had mapped of files, devices and memory that others can see is free only when its memory is.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections import deque
from functools import partial
from typing import Protocol

import psutil

from actorproc.support.engine_log import engine_logger
from actorproc.workers.os.process_count import name_and_stat
from actorproc.workers.os.timers import PoolTimers
from actorproc.workers.os.usage import free_memory, has_ended
from actorproc.workers.protocol.frames import KEEPER_NAME

__all__ = ["Keeper", "Keepers", "Kept", "find_keeper", "is_missed"]

logger = engine_logger("actorproc.pool")

_LET_GO_AFTER = 0.02
"""Seconds for the step to start again, on the processors that the end of the memory needs as well."""
_LOOK_AGAIN = 0.005
_PATIENCE = 5.0
"""Seconds in which a keeper that was let go ends, if it ends at all."""
_MOST_UNCOLLECTED = 32
"""A container may be allowed no more than a hundred processes in all."""
_COLLECTED_WITHIN = 30.0
"""Seconds after which a log record says that ended processes are not collected."""
_LITTLE = 64 * 1024 * 1024
"""Bytes up to which it is not asked whether there are as many again."""
_READ = 1024 * 1024
_OF_THE_C_LIBRARY = (b"/gconv-modules.cache", b"/locale-archive")
_LOCALES = b"/locale/"


class Keeper:
    """One of them, as its host sees it. Raises `OSError` when it is gone or cannot be watched."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.pidfd = os.pidfd_open(pid)

    def kill(self) -> None:
        """End it."""
        with contextlib.suppress(OSError):
            signal.pidfd_send_signal(self.pidfd, signal.SIGKILL)

    def close(self) -> None:
        """Watch it no longer."""
        os.close(self.pidfd)

    def is_gone(self) -> bool:
        """Its memory is free."""
        return has_ended(self.pidfd)

    def holds_what_is_missed(self) -> bool:
        """True if the memory of the dead worker is shared with others, or too much to have it twice."""
        try:
            maps = _read(f"/proc/{self.pid}/maps")
            if not maps or is_missed(maps):  # no mappings: it is ending, and its memory is not free
                return True
            held = int(_read(f"/proc/{self.pid}/statm").split()[1]) * os.sysconf("SC_PAGESIZE")
            return held > _LITTLE and 2 * held > free_memory()
        except (OSError, ValueError, IndexError, psutil.Error):
            return True  # as if it did: then it is waited for


def find_keeper(pid: int, worker: int) -> Keeper | None:
    """The keeper of this worker, by the number that the worker says; None when it is none, or cannot be watched."""
    try:
        keeper = Keeper(pid)
    except (OSError, OverflowError):
        return None
    # With the handle in hand: before, the number may have become another process's.
    if _stands_for(pid, worker) and not keeper.is_gone():
        return keeper
    keeper.close()
    return None


def _stands_for(pid: int, worker: int) -> bool:
    found = name_and_stat(pid)
    return found is not None and found[0] == KEEPER_NAME and int(found[1][3]) == worker


def _has_ended(pid: int) -> bool:
    """A process of this number is a keeper that has ended, and is not collected."""
    found = name_and_stat(pid)
    return found is not None and found[0] == KEEPER_NAME and found[1][0] == b"Z"


def is_missed(maps: bytes) -> bool:
    """True if others can see, or miss, something of these mappings (the text of /proc/PID/maps).

    That is all that is shared, devices, huge pages, and files: one that is open and mapped keeps its `flock`, even a
    private mapping. Files of code are not, nor what the C library maps.
    """
    shared = maps.count(b"-s ") + maps.count(b"xs ")
    code: set[bytes] = set()
    files: set[bytes] = set()
    for line in maps.split(b"\n"):
        # Nearly all: memory without a file, and libraries. A slash begins the path, there is none before it.
        if b"/" not in line or line.endswith(b".so") or b".so." in line:
            continue
        start = line.index(b"/")
        path = line[start:]
        if b"x" in line[:start]:
            code.add(path)
        elif not (path.endswith(_OF_THE_C_LIBRARY) or _LOCALES in path):
            files.add(path)
        elif b"s " in line[:start]:
            shared -= 1
    return shared > 0 or not files <= code


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

    def __init__(self, timers: PoolTimers) -> None:
        self._timers = timers
        self._ends_by: dict[Kept, float | None] = {}
        """Time at which a keeper must have ended at the latest; None while it is not let go."""
        self._closing = False
        self._uncollected: deque[tuple[int, float]] = deque()
        """Those that have ended, and when, while the system's first process, whose children they are, ignores it."""
        self._has_warned = False

    def are_of_use(self) -> bool:
        """True when a worker should have a keeper: not where ended processes are not collected."""
        while self._uncollected and not _has_ended(self._uncollected[0][0]):
            self._uncollected.popleft()
        if len(self._uncollected) < _MOST_UNCOLLECTED:
            return True
        if not self._has_warned and time.monotonic() > self._uncollected[0][1] + _COLLECTED_WITHIN:
            self._has_warned = True
            logger.warning(
                "the first process of this system does not collect the processes that have ended (a container without "
                "an init process): workers are made without keepers of their memory, and are replaced more slowly"
            )
        return False

    def __bool__(self) -> bool:
        return bool(self._ends_by)

    def must_end_first(self, process: Kept) -> bool:
        """True if a dead worker's memory has to be free before its step starts again; then its keeper is let go."""
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
        if not _has_ended(pid):
            return
        with contextlib.suppress(OSError):  # nearly always: it is another process's child than this one's
            os.waitpid(pid, os.WNOHANG)
        self._uncollected.append((pid, time.monotonic()))
