"""Hard memory limits by the kernel's control groups (cgroup v2), where this program may make groups beside its own.

A group that has processes of its own can have no controllers for groups below it, so the workers' groups are made
beside the group this program is in: under a systemd unit with ``Delegate=yes`` and ``DelegateSubgroup=`` that is
allowed. Everywhere else the host watches memory by sampling, and the worker limits what it allocates by rlimit.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

__all__ = ["CgroupRoom", "find_room"]

_MOUNT = Path("/sys/fs/cgroup")


def find_room(mount: Path = _MOUNT, own: Path = Path("/proc/self/cgroup")) -> CgroupRoom | None:
    """Where groups for workers can be made; None when the system does not have it, or does not allow it."""
    try:
        path = next(line[3:] for line in own.read_text().splitlines() if line.startswith("0::"))
        parent = (mount / path.lstrip("/")).parent
        if path.strip("/") == "" or "memory" not in (parent / "cgroup.subtree_control").read_text().split():
            return None
        room = CgroupRoom(parent / f"actorproc-{os.getpid()}")
        room.close()
        room.folder.mkdir()
        (room.folder / "cgroup.subtree_control").write_text("+memory")
    except (OSError, StopIteration):
        return None
    return room


class CgroupRoom:
    """A group that holds one group for each worker under a hard limit."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def limit(self, pid: int, size: int | None) -> None:
        """Let this process, and what it starts, have so many bytes in all; None: as much as there is."""
        group = self.folder / str(pid)
        with contextlib.suppress(OSError):  # a worker that died meanwhile
            if not group.exists():
                if size is None:
                    return
                group.mkdir()
                # One process of a group that is out of memory is killed, not all: the report names that one.
                (group / "cgroup.procs").write_text(str(pid))
            (group / "memory.max").write_text("max" if size is None else str(size))

    def was_killed(self, pid: int) -> bool:
        """Whether the kernel killed in this process's group for its limit."""
        try:
            events = (self.folder / str(pid) / "memory.events").read_text().splitlines()
        except OSError:
            return False
        return any(line.startswith("oom_kill ") and line.split()[1] != "0" for line in events)

    def forget(self, pid: int) -> None:
        """The process is gone."""
        with contextlib.suppress(OSError):
            (self.folder / str(pid)).rmdir()

    def close(self) -> None:
        """Remove all groups, those an earlier program of this pid left behind too."""
        with contextlib.suppress(OSError):
            for group in self.folder.iterdir():
                if group.is_dir():
                    group.rmdir()
            self.folder.rmdir()
