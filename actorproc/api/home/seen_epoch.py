"""Highest epoch of a shared store that this machine has seen, kept beside the log spool.

A database that was failed over may have lost the newest epochs. The next leader is above those that its machine and its
clients remember. So no number is given twice.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from actorproc.errors import ActorprocError
from actorproc.store.directory import new_private, read_private
from actorproc.store.home import Home

__all__ = ["note_epoch", "seen_epoch"]

_FILE = "epoch"
_MOST = 200
"""Bytes of the file: the id of the store, and the number."""


def seen_epoch(home: Home) -> int:
    """The highest epoch of this store that was noted here.

    Args:
        home: The home of the store.

    Returns:
        The epoch; 0 when none was noted, or another store was there at the time.
    """
    if home.spool is None:
        return 0
    with contextlib.suppress(OSError, ValueError, ActorprocError):
        store, _, number = read_private(home.spool / _FILE, _MOST)[0].decode().partition(" ")
        epoch = int(number)
        reader = home.reader()
        try:
            return epoch if reader.store_id == store else 0
        finally:
            reader.close()
    return 0


def note_epoch(home: Home, store_id: str, epoch: int) -> None:
    """Note an epoch, as far as that can be written.

    Args:
        home: The home of the store.
        store_id: The id of the store.
        epoch: The epoch.
    """
    if home.spool is None:
        return
    file = Path(home.spool) / _FILE
    draft = file.with_name(f"{_FILE}.{os.getpid()}")
    with contextlib.suppress(OSError):
        draft.unlink(missing_ok=True)
        fd = new_private(draft)
        try:
            os.write(fd, f"{store_id} {epoch}".encode())
        finally:
            os.close(fd)
        draft.replace(file)
