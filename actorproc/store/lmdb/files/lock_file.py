"""LMDB's table of readers, made with all its pages before LMDB maps it.

LMDB makes the file by its length alone, so on a full disk the process would die of SIGBUS as soon as it writes to a
page of the map. Written out here, a full disk is an error like any other.
"""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from actorproc.errors import EngineError, StorageUnavailable
from actorproc.model.ids import new_id
from actorproc.store.directory import LOCK_FILE, new_private

__all__ = ["MAX_READERS", "make_lock_file"]

MAX_READERS = 512
_SIZE = 128 + 64 * MAX_READERS
"""LMDB's header, and a line of the cache for each reader. A file that is too short is made longer by LMDB."""

_NO_LINKS = {errno.EPERM, errno.ENOSYS, errno.EOPNOTSUPP, errno.EMLINK}
"""Errors of file systems that know no links."""


def make_lock_file(path: Path) -> None:
    """Make the lock file of the store in this directory unless there is one. Raises `EngineError`s.

    It appears whole, under its name: another process may be making or using it at the same time.
    """
    place = path / LOCK_FILE
    if os.path.lexists(place):
        return
    aside = path / f".{LOCK_FILE}.{new_id()}"
    try:
        with os.fdopen(new_private(aside), "wb") as file:
            file.write(bytes(_SIZE))
        _name(aside, place)
    except PermissionError as error:
        raise EngineError(f"no permission to make {place}: this user must be able to write to {path}") from error
    except OSError as error:
        raise StorageUnavailable(f"making {place}: {error.strerror}; free some space or check the disk") from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


def _name(aside: Path, place: Path) -> None:
    try:
        place.hardlink_to(aside)
    except FileExistsError:
        pass  # another process was faster
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise  # else LMDB makes one, and needs a disk that is not full
