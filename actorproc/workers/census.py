"""How many processes a worker has started: those of its session, and those below it that left the session."""

from __future__ import annotations

import os

__all__ = ["started_by"]


def started_by(worker: int, keeper: int | None = None) -> int | None:
    """Processes that live and that this one started, directly or not; None where the system does not tell (not Linux).

    Its `keeper` is none of them.

    Whoever left the session of its worker and has no parent there any more is not found.
    """
    parents: dict[int, int] = {}
    found: set[int] = set()
    try:
        names = [name for name in os.listdir("/proc") if name.isdecimal()]  # noqa: PTH208 - names are all that is wanted
    except OSError:
        return None
    for name in names:
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - thousands of them, when it matters
                state, parent, _, session = file.read().rpartition(b")")[2].split()[:4]
        except (OSError, ValueError):
            continue  # it ended meanwhile
        if state in (b"Z", b"X"):
            continue
        parents[int(name)] = int(parent)
        if int(session) == worker and int(name) != keeper:
            found.add(int(name))
    for pid in parents:
        above = pid
        line = []
        while above in parents and above not in found and above != worker:
            line.append(above)
            above = parents[above]
        if above in found or above == worker:
            found.update(line)
    found.discard(worker)
    return len(found)
