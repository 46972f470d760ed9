"""Control groups that this program is in: where the limits stand that its container was given."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

__all__ = ["MOUNT", "OWN", "own_groups", "read_group_file"]

MOUNT = Path("/sys/fs/cgroup")
OWN = Path("/proc/self/cgroup")


def own_groups(controller: str, mount: Path = MOUNT, own: Path = OWN) -> Iterator[tuple[int, Path]]:
    """The groups that this process is in, directly or by a group above.

    Args:
        controller: Name of the controller, such as "memory".
        mount: Place where control groups are mounted. Default: that of the system.
        own: File that says which ones this process is in. Default: that of the system.

    Yields:
        The version of control groups, 1 or 2, and the folder of the group.
    """
    for line in read_group_file(own).splitlines():
        number, _, rest = line.partition(":")
        names, _, path = rest.partition(":")
        if number == "0" and not names:
            yield from ((2, folder) for folder in _upwards(mount, path))
        elif controller in names.split(","):
            for place in {names, controller}:
                yield from ((1, folder) for folder in _upwards(mount / place, path))


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    """The folders from a group to the top. A container may see its own group at the top, and its path as the host's."""
    inside = Path(os.path.normpath("/" + path.strip("/"))).relative_to("/")
    yield from (mount / part for part in (inside, *inside.parents))


def read_group_file(file: Path) -> str:
    """The text of a file of a group; empty when it cannot be read."""
    try:
        return file.read_text(encoding="utf-8")
    except OSError:
        return ""
