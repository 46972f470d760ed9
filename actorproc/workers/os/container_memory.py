"""Memory of the container that this program is in: its limit, and what is in use of it."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["ContainerMemory", "container_memory"]

_MOUNT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")
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
        found = _INACTIVE.findall(_read(self._details))
        return max(0, used - (int(found[-1]) if found else 0))


def container_memory(mount: Path = _MOUNT, own: Path = _OWN) -> ContainerMemory | None:
    """The group with the least limit that this process is in, directly or by a group above.

    Args:
        mount: Place where control groups are mounted.
        own: File that says which ones this process is in.

    Returns:
        The group; None when no group has a limit.
    """
    found: list[ContainerMemory] = []
    for line in _read(own).splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            top, files = mount, ("memory.max", "memory.current", "memory.stat")
        elif "memory" in names.split(","):
            top, files = mount / "memory", ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")
        else:
            continue
        inside = Path(path.lstrip("/"))
        # A container may see its own group at the top, and its path as the machine's.
        for folder in (top / part for part in (inside, *inside.parents) if ".." not in part.parts):
            limit = _number(folder / files[0])
            if limit is not None and limit < _NO_LIMIT:
                found.append(ContainerMemory(limit, folder / files[1], folder / files[2]))
    return min(found, key=lambda memory: memory.limit, default=None)


def _number(file: Path) -> int | None:
    text = _read(file).strip()
    return int(text) if text.isdecimal() else None


def _read(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
