"""The number of processors this program may use: the default number of workers."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["usable_processors"]

_MOUNT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def usable_processors(mount: Path = _MOUNT, own: Path = _OWN) -> int:
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
    """Processors by each group with a quota that this process is in, directly or by a group above."""
    try:
        lines = own.read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            for folder in _upwards(mount, path):
                yield from _quota(_read(folder / "cpu.max"))
        elif "cpu" in names.split(","):
            for place in {names, "cpu"}:
                for folder in _upwards(mount / place, path):
                    numbers = _read(folder / "cpu.cfs_quota_us"), _read(folder / "cpu.cfs_period_us")
                    yield from _quota(" ".join(numbers))


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    """The folders from a group to the top. A container may see its own group at the top, and its path as the host's."""
    inside = Path(os.path.normpath("/" + path.strip("/"))).relative_to("/")
    yield from (mount / part for part in (inside, *inside.parents))


def _quota(text: str) -> Iterator[int]:
    """Processors by a quota and a period in microseconds; a group without a quota says "max" or -1."""
    numbers = text.split()
    if len(numbers) == 2 and all(map(str.isdecimal, numbers)) and int(numbers[1]) and int(numbers[0]):
        yield math.ceil(int(numbers[0]) / int(numbers[1]))


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
