"""Number of processes that a worker has started: those of its session, and descendants that left the session."""

from __future__ import annotations

import os

__all__ = ["started_by"]


def _stat(pid: str) -> list[bytes] | None:
    """Fields of /proc/PID/stat behind the process's name: state, parent, group, session …; None: it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - thousands of them, when it matters
            rest = file.read().rpartition(b")")[2]
    except OSError:
        return None
    return rest.split()


def started_by(worker: int) -> int | None:
    """Processes that live and that this one started, directly or not; None where the system does not tell (not Linux).

    A process that left the session of its worker and has no parent there any more is not found.
    """
    parents: dict[int, int] = {}
    found: set[int] = set()
    try:
        names = [name for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - names are all that is wanted
    except OSError:
        return None
    for name in names:
        if (known := _stat(name)) is None or len(known) < 4:
            continue  # it ended meanwhile
        state, parent, _, session, *_ = known
        if state in (b"Z", b"X"):
            continue
        parents[int(name)] = int(parent)
        if int(session) == worker:
            found.add(int(name))
    for pid in parents:
        above = pid
        line = []
        while above in parents and above not in found and above != worker:
            line.append(above)
            above = parents[above]
        if above in found or above == worker:
            found.update(line)
    return len(found - {worker})
