"""Hard limits by the kernel's control groups, where this program may make groups of its own.

In version 2 a group that has processes of its own can have no controllers for groups below it. So the workers' groups
are made beside the group this program is in. Under a systemd unit with ``Delegate=yes`` and ``DelegateSubgroup=`` that
is allowed. Where the controller of process numbers is still in a hierarchy of version 1, groups are made below the
program's own there. Everywhere else the host watches by sampling, and the worker limits itself by rlimits.
"""

from __future__ import annotations

import contextlib
import os
import signal
from pathlib import Path

__all__ = ["Cgroups", "WorkerCgroup", "find_cgroup", "find_cgroups"]

_MOUNT = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


class Cgroups:
    """The groups of one pool, by what they limit; None: the system has no such group, or does not allow it."""

    def __init__(self, memory: WorkerCgroup | None = None, pids: WorkerCgroup | None = None) -> None:
        self.memory = memory
        self.pids = pids

    def was_killed(self, pid: int) -> bool:
        """True if the kernel killed in this process's group for its memory limit."""
        return self.memory is not None and self.memory.was_killed(pid)

    def forget(self, pid: int) -> None:
        """The process is gone."""
        for group in self._each():
            group.forget(pid)

    def close(self) -> None:
        """Remove all groups."""
        for group in self._each():
            group.close()

    def _each(self) -> set[WorkerCgroup]:
        return {group for group in (self.memory, self.pids) if group is not None}


def find_cgroups(mount: Path = _MOUNT, own: Path = _OWN) -> Cgroups:
    """Find control groups in which this program can limit memory and the number of processes."""
    groups = Cgroups(memory=find_cgroup(mount, own))
    if groups.memory is not None and "pids" in groups.memory.controllers:
        groups.pids = groups.memory
    else:
        groups.pids = _old_cgroup(mount / "pids", own)
    return groups


def find_cgroup(mount: Path = _MOUNT, own: Path = _OWN) -> WorkerCgroup | None:
    """Find the place for workers' groups in version 2; None when the system does not have it, or not allow it."""
    try:
        path = next(line[3:] for line in own.read_text(encoding="utf-8").splitlines() if line.startswith("0::"))
        parent = (mount / path.lstrip("/")).parent
        offered = (parent / "cgroup.subtree_control").read_text(encoding="utf-8").split()
        if path.strip("/") == "" or "memory" not in offered:
            return None
        controllers = tuple(name for name in ("memory", "pids") if name in offered)
        group = WorkerCgroup(parent / f"actorproc-{os.getpid()}", controllers)
        _sweep(parent)
        group.close()
        group.folder.mkdir()
        (group.folder / "cgroup.subtree_control").write_text(
            " ".join(f"+{name}" for name in controllers), encoding="utf-8"
        )
    except (OSError, StopIteration):
        return None
    return group


def _old_cgroup(mount: Path, own: Path) -> WorkerCgroup | None:
    """The same for process numbers in version 1, where groups with processes may have groups below them."""
    try:
        lines = [line.split(":", 2) for line in own.read_text(encoding="utf-8").splitlines()]
        path = next(path for _, names, path in lines if "pids" in names.split(","))
        group = WorkerCgroup(mount / path.lstrip("/") / f"actorproc-{os.getpid()}", ("pids",))
        _sweep(group.folder.parent)
        group.close()
        group.folder.mkdir()
        probe = group.folder / "probe"
        probe.mkdir()
        (probe / "pids.max").write_text("1", encoding="utf-8")
        probe.rmdir()
    except (OSError, StopIteration):
        return None
    return group


def _sweep(parent: Path) -> None:
    """Remove the groups of programs that were killed. The kernel keeps those that are not empty."""
    for folder in parent.glob("actorproc-*"):
        number = folder.name.removeprefix("actorproc-")
        if number.isdecimal() and not Path("/proc", number).exists():
            WorkerCgroup(folder, ()).close()


class WorkerCgroup:
    """A group that holds one group for each worker under a hard limit."""

    def __init__(self, folder: Path, controllers: tuple[str, ...]) -> None:
        self.folder = folder
        self.controllers = controllers

    def limit(self, pid: int, size: int | None) -> None:
        """Limit this process, and what it starts, to `size` bytes in all; None: as much as there is."""
        group = self.folder / str(pid)
        with contextlib.suppress(OSError):  # a worker that died meanwhile
            if not group.exists() and size is None:
                return
            group.mkdir(exist_ok=True)
            # One process of a group that is out of memory is killed, not all: the report names that one.
            (group / "cgroup.procs").write_text(str(pid), encoding="utf-8")
            (group / "memory.max").write_text("max" if size is None else str(size), encoding="utf-8")

    def was_killed(self, pid: int) -> bool:
        """True if the kernel killed in this process's group for its limit."""
        try:
            events = (self.folder / str(pid) / "memory.events").read_text(encoding="utf-8").splitlines()
        except OSError:
            return False
        return any(line.startswith("oom_kill ") and line.split()[1] != "0" for line in events)

    def processes(self, pid: int) -> int | None:
        """Number of processes in this one's group, beside it; None: it has no group."""
        try:
            return len((self.folder / str(pid) / "cgroup.procs").read_text(encoding="utf-8").split()) - 1
        except OSError:
            return None

    def forget(self, pid: int) -> None:
        """The process is gone: so is, in a moment, whatever it left in its group."""
        group = self.folder / str(pid)
        with contextlib.suppress(OSError):
            _kill_all(group)
            group.rmdir()

    def close(self) -> None:
        """Remove all groups, those an earlier program of this pid left behind too."""
        with contextlib.suppress(OSError):
            for group in self.folder.iterdir():
                if group.is_dir():
                    group.rmdir()
            self.folder.rmdir()


def _kill_all(group: Path) -> None:
    killer = group / "cgroup.kill"
    if killer.exists():
        killer.write_text("1", encoding="utf-8")
        return
    members = group / "cgroup.procs"
    (group / "pids.max").write_text("0", encoding="utf-8")  # who is not killed yet can start no other
    for pid in members.read_text(encoding="utf-8").split():
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(int(pid))
            try:
                # Asked again with the handle in hand: the number may have become another process's before.
                if pid in members.read_text(encoding="utf-8").split():
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
            finally:
                os.close(handle)
