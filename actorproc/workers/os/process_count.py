"""Number of processes that a worker has started: those of its session, and descendants that left the session."""

from __future__ import annotations

import os

from actorproc.workers.protocol.frames import KEEPER_NAME

__all__ = ["name_and_stat", "started_by"]


def name_and_stat(pid: int | str) -> tuple[bytes, list[bytes]] | None:
    """A process's name, and what /proc/PID/stat has behind it: state, parent, group, session …; None: it is gone."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - thousands of them, when it matters
            name, _, rest = file.read().partition(b"(")[2].rpartition(b")")
    except OSError:
        return None
    return name, rest.split()


def started_by(worker: int) -> int | None:
    """Processes that live and that this one started, directly or not; None where the system does not tell (not Linux).

    The keeper of its memory (`keepers`) is none of them.

    A process that left the session of its worker and has no parent there any more is not found.
    """
    parents: dict[int, int] = {}
    found: set[int] = set()
    keeper = worker
    try:
        names = [name for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - names are all that is wanted
    except OSError:
        return None
    for name in names:
        if (known := name_and_stat(name)) is None or len(known[1]) < 4:
            continue  # it ended meanwhile
        comm, (state, parent, _, session, *_) = known
        if state in (b"Z", b"X"):
            continue
        parents[int(name)] = int(parent)
        if int(session) == worker:
            found.add(int(name))
            if comm == KEEPER_NAME:
                keeper = int(name)
    for pid in parents:
        above = pid
        line = []
        while above in parents and above not in found and above != worker:
            line.append(above)
            above = parents[above]
        if above in found or above == worker:
            found.update(line)
    found -= {worker, keeper}
    return len(found)
