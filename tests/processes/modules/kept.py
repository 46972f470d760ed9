"""Finds the keepers of workers."""

from __future__ import annotations

from pathlib import Path

from actorproc.workers.os.process_count import name_and_stat
from actorproc.workers.protocol.frames import KEEPER_NAME


def keepers_of(*workers: int) -> list[int]:
    """Of the sessions of these workers: processes that keep their memory, and live."""
    found = []
    for folder in Path("/proc").iterdir():
        if not folder.name.isdecimal() or (known := name_and_stat(folder.name)) is None:
            continue
        name, (state, _, _, session, *_) = known
        if name == KEEPER_NAME and int(session) in workers and state != b"Z":
            found.append(int(folder.name))
    return found
