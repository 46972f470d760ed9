"""Finds the keepers of workers."""

from __future__ import annotations

from pathlib import Path

from actorproc.workers.frames import KEEPER_NAME


def keepers_of(*workers: int) -> list[int]:
    """Of the sessions of these workers: processes that keep their memory, and live."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal():
            continue
        try:
            name, _, rest = (folder / "stat").read_bytes().partition(b"(")[2].rpartition(b")")
        except OSError:
            continue  # it ended meanwhile
        state, _, _, session = rest.split()[:4]
        if name == KEEPER_NAME and int(session) in workers and state != b"Z":
            found.append(int(folder.name))
    return found
