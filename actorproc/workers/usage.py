"""What worker processes use, and which processes descend from them (psutil)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

import psutil

__all__ = ["cpu_and_rss", "descendants", "kill_all"]


def cpu_and_rss(pid: int) -> tuple[float | None, int | None]:
    """CPU seconds (user and system) and resident bytes of a live process; None for both when it is gone."""
    try:
        process = psutil.Process(pid)
        with process.oneshot():
            times = process.cpu_times()
            return times.user + times.system, process.memory_info().rss
    except psutil.Error:
        return None, None


def descendants(pid: int) -> list[psutil.Process]:
    """All processes below this one, while it still lives: those who outlive their parent are not found any more."""
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.Error:
        return []


def kill_all(processes: Iterable[psutil.Process]) -> None:
    """SIGKILL each that still lives; psutil compares start times, so a reused pid is spared."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
