"""Use of memory, processor and threads by worker processes, and the processes that descend from them."""

from __future__ import annotations

import contextlib
import os
import select
from collections.abc import Iterable
from pathlib import Path

import psutil

from actorproc.workers.resource_trackers import is_tracker

__all__ = [
    "cpu_and_rss",
    "family_usage",
    "has_ended",
    "is_above_rlimits",
    "kill_all",
    "to_be_killed_with",
]

_UNKNOWN = (psutil.Error, OSError)
"""Errors that psutil raises: its own, and those of reading /proc when this program has no descriptors left."""
_CAP_SYS_ADMIN, _CAP_SYS_RESOURCE = 1 << 21, 1 << 24


def cpu_and_rss(pid: int) -> tuple[float | None, int | None]:
    """CPU seconds (user and system) and resident bytes of a live process; None for both when it is gone."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return times.user + times.system, process.memory_info().rss
    except _UNKNOWN:
        return None, None


def family_usage(pid: int) -> tuple[float, int] | None:
    """CPU seconds and resident bytes of a process and all below it, children that ended included; None: it is gone."""
    try:
        cpu, rss = _cpu_and_rss(psutil.Process(pid))
    except _UNKNOWN:
        return None
    for process in _below(pid):
        with contextlib.suppress(*_UNKNOWN):  # it ended meanwhile
            more_cpu, more_rss = _cpu_and_rss(process)
            cpu += more_cpu
            rss += more_rss
    return cpu, rss


def _cpu_and_rss(process: psutil.Process) -> tuple[float, int]:
    with process.oneshot():
        times = process.cpu_times()
        used = times.user + times.system + times.children_user + times.children_system
        return used, process.memory_info().rss


def _below(pid: int) -> list[psutil.Process]:
    """Descendants, by the kernel's own lists of children where there are any: psutil reads the whole process table."""
    found: list[psutil.Process] = []
    waiting = [pid]
    while waiting:
        parent = waiting.pop()
        try:
            tasks = list(Path(f"/proc/{parent}/task").iterdir())
            children = [int(name) for task in tasks for name in (task / "children").read_text(encoding="utf-8").split()]
        except (OSError, ValueError):
            return descendants(pid) if parent == pid else found
        for child in children:
            waiting.append(child)
            with contextlib.suppress(*_UNKNOWN):
                found.append(psutil.Process(child))
    return found


def descendants(pid: int) -> list[psutil.Process]:
    """All processes below this one, while it still lives: those who outlive their parent are not found any more."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except _UNKNOWN:
        return []


def to_be_killed_with(pid: int) -> list[psutil.Process]:
    """The processes below this one that die with it: all but resource trackers, which clean up behind them."""
    return [process for process in descendants(pid) if not _is_tracker(process)]


def _is_tracker(process: psutil.Process) -> bool:
    try:
        return is_tracker(process.cmdline())
    except _UNKNOWN:
        return False


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """SIGKILL each that still lives; psutil compares start times, so a reused pid is spared."""
    for process in processes:
        with contextlib.suppress(*_UNKNOWN):
            process.kill()


def has_ended(pidfd: int) -> bool:
    """True if the kernel says now that this process has exited."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))


def is_above_rlimits() -> bool:
    """True if the kernel lets this program start as many processes as it likes, as it lets root."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
        capabilities = int(next(line for line in lines if line.startswith("CapEff:")).split()[1], 16)
    except (OSError, StopIteration, ValueError):
        return os.geteuid() == 0
    return os.geteuid() == 0 or bool(capabilities & (_CAP_SYS_ADMIN | _CAP_SYS_RESOURCE))
