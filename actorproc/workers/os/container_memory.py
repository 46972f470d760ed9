"""Memory of the container that this program is in: its limit, and what is in use of it."""

from __future__ import annotations

import re
from pathlib import Path

from actorproc.workers.os.container_cgroups import MOUNT, OWN, own_groups, read_group_file

__all__ = ["ContainerMemory", "container_memory"]

_LIMIT = {1: "memory.limit_in_bytes", 2: "memory.max"}
_USED = {1: "memory.usage_in_bytes", 2: "memory.current"}
"""Names of files by the version of control groups."""
_INACTIVE = re.compile(r"^(?:total_)?inactive_file (\d+)$", re.MULTILINE)
_NO_LIMIT = 1 << 60
"""Version 1 names a number near 2**63 where there is no limit."""


class ContainerMemory:
    """One control group with a limit of memory.

    Args:
        limit: Bytes that all its processes may have together.
        used: File with the number of bytes in use.
        details: File that says how many of them are pages of files that can be dropped.
    """

    def __init__(self, limit: int, used: Path, details: Path) -> None:
        self.limit = limit
        self._used = used
        self._details = details

    def used(self) -> int | None:
        """Bytes in use that cannot be dropped; None when that cannot be read."""
        used = _number(self._used)
        if used is None:
            return None
        found = _INACTIVE.findall(read_group_file(self._details))
        return max(0, used - (int(found[-1]) if found else 0))


def container_memory(mount: Path = MOUNT, own: Path = OWN) -> ContainerMemory | None:
    """The group with the least limit that this process is in, directly or by a group above.

    Args:
        mount: Place where control groups are mounted.
        own: File that says which ones this process is in.

    Returns:
        The group; None when no group has a limit.
    """
    found: list[ContainerMemory] = []
    for version, folder in own_groups("memory", mount, own):
        limit = _number(folder / _LIMIT[version])
        if limit is not None and limit < _NO_LIMIT:
            found.append(ContainerMemory(limit, folder / _USED[version], folder / "memory.stat"))
    return min(found, key=lambda memory: memory.limit, default=None)


def _number(file: Path) -> int | None:
    text = read_group_file(file).strip()
    return int(text) if text.isdecimal() else None
