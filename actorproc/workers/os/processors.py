"""The number of processors this program may use: the default number of workers."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

from actorproc.workers.os.container_cgroups import MOUNT, OWN, own_groups, read_group_file

__all__ = ["usable_processors"]


def usable_processors(mount: Path = MOUNT, own: Path = OWN) -> int:
    """The least of what affinity and control groups leave to this process, at least 1.

    `os.cpu_count` tells what the machine has: in a container with two processors of 64, or under ``taskset``, that
    would be as many workers that wait for each other. A quota that is no whole number is rounded up, as loky does.
    ``PYTHON_CPU_COUNT`` and ``-X cpu_count`` (Python 3.13) overrule both.

    Args:
        mount: where control groups are mounted.
        own: the file that says which ones this process is in.
    """
    allowed = _affinity()
    told: int | None = os.process_cpu_count() if hasattr(os, "process_cpu_count") else None
    if told is not None and told != allowed:
        return max(told, 1)
    return max(min((allowed, *_quotas(mount, own))), 1)


def _affinity() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except (AttributeError, OSError):  # macOS has none
        return os.cpu_count() or 1


def _quotas(mount: Path, own: Path) -> Iterator[int]:
    """Processors by each group with a quota that this process is in."""
    for version, folder in own_groups("cpu", mount, own):
        names = ("cpu.max",) if version == 2 else ("cpu.cfs_quota_us", "cpu.cfs_period_us")
        yield from _quota(" ".join(read_group_file(folder / name) for name in names))


def _quota(text: str) -> Iterator[int]:
    """Processors by a quota and a period in microseconds; a group without a quota says "max" or -1."""
    numbers = text.split()
    if len(numbers) == 2 and all(map(str.isdecimal, numbers)) and int(numbers[1]) and int(numbers[0]):
        yield math.ceil(int(numbers[0]) / int(numbers[1]))
