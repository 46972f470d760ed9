"""Limits of a step, set in its own process and taken back afterwards.

Memory is limited by RLIMIT_DATA, not RLIMIT_AS, as threads and file maps take address space and cost nothing.
Allocations use the data segment, and a refused one is an ordinary `MemoryError`. The limit is
for the whole process: whatever the engine does meanwhile on its other thread lifts it for that moment.

A raised niceness can be lowered again only by the privileged. Where that fails, the worker is `worn`: it answers its
step and asks to be replaced. A worker that belongs to one procedure keeps niceness and processors for its life.
"""

from __future__ import annotations

import contextlib
import os
import resource
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

from actorproc.errors import UsageError
from actorproc.model.policies import StepLimits
from actorproc.workers.child.process_state.process_limit import ProcessLimit

__all__ = ["Limiter"]

_PAGE = resource.getpagesize()


class Limiter:
    """The limits of the step that runs on the main thread."""

    def __init__(self) -> None:
        self.worn = ""
        """Reason why this worker must not run another step; "": it may."""
        self.process_limit = ProcessLimit()
        self._lock = threading.Lock()
        self._before: tuple[int, int] | None = None
        self._in_force: tuple[int, int] | None = None

    @contextlib.contextmanager
    def around(self, limits: StepLimits | None) -> Iterator[None]:
        """Inside, these limits hold. Raises `UsageError` when the system refuses one."""
        if limits is None:
            yield
            return
        with contextlib.ExitStack() as undo:
            if limits.nice is not None:
                self._set_nice(limits.nice, undo, keep=limits.dedicated)
            if limits.cpus is not None:
                _set_cpus(limits.cpus, undo, keep=limits.dedicated)
            if limits.processes is not None:
                undo.enter_context(self.process_limit.put(limits.processes))
            if limits.memory is not None:
                self._limit_memory(limits.memory)
                undo.callback(self._free_memory)
            yield

    @contextlib.contextmanager
    def lifted(self) -> Iterator[None]:
        """Inside, memory is not limited. For the engine's own work on other threads."""
        if self._in_force is None:
            yield
            return
        self._apply(limited=False)
        try:
            yield
        finally:
            self._apply(limited=True)

    @contextlib.contextmanager
    def suspended(self) -> Iterator[None]:
        """Inside, memory is not limited; what is set of the process's own limit there holds after the step."""
        if self._in_force is None:
            yield
            return
        with self._lock:
            assert self._before is not None
            (used, _), before = self._in_force, self._before
            resource.setrlimit(resource.RLIMIT_DATA, before)
        try:
            yield
        finally:
            with self._lock:
                soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
                wanted = used if soft == resource.RLIM_INFINITY else min(used, soft)
                self._before, self._in_force = (soft, hard), (wanted, hard)
                resource.setrlimit(resource.RLIMIT_DATA, self._in_force)

    def _set_nice(self, nice: int, undo: contextlib.ExitStack, *, keep: bool) -> None:
        before = os.getpriority(os.PRIO_PROCESS, 0)
        if before == nice or before > nice >= 0:
            return  # the whole program is nicer than that already
        try:
            os.setpriority(os.PRIO_PROCESS, 0, nice)
        except OSError as error:
            msg = f"the system does not allow Limits(nice={nice}) to this program: {error.strerror}"
            raise UsageError(msg) from error
        if not keep:
            undo.callback(self._restore_nice, before)

    def _restore_nice(self, before: int) -> None:
        try:
            os.setpriority(os.PRIO_PROCESS, 0, before)
        except OSError:
            self.worn = "the niceness of its last step cannot be lowered again without privilege"

    def _limit_memory(self, size: int) -> None:
        used = _data_bytes()
        if used is None:
            return  # only Linux counts what allocation uses
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        wanted = used + size if hard == resource.RLIM_INFINITY else min(used + size, hard)
        with self._lock:
            self._before, self._in_force = (soft, hard), (wanted, hard)
            resource.setrlimit(resource.RLIMIT_DATA, self._in_force)

    def _free_memory(self) -> None:
        with self._lock:
            before, self._before, self._in_force = self._before, None, None
            if before is not None:
                resource.setrlimit(resource.RLIMIT_DATA, before)

    def _apply(self, *, limited: bool) -> None:
        with self._lock:
            wanted = self._in_force if limited else self._before
            if wanted is not None:
                resource.setrlimit(resource.RLIMIT_DATA, wanted)


def _set_cpus(cpus: tuple[int, ...], undo: contextlib.ExitStack, *, keep: bool) -> None:
    if sys.platform != "linux":
        return
    before = os.sched_getaffinity(0)
    if before == set(cpus):
        return
    try:
        os.sched_setaffinity(0, cpus)
    except (OSError, ValueError, OverflowError) as error:
        msg = f"none of the processors in Limits(cpus={cpus}) can be used here; there are {sorted(before)}"
        raise UsageError(msg) from error
    if not keep:
        undo.callback(os.sched_setaffinity, 0, before)


def _data_bytes() -> int | None:
    try:
        return int(Path("/proc/self/statm").read_bytes().split()[5]) * _PAGE
    except (OSError, IndexError, ValueError):
        return None
