"""The key that signs pickled states: made once per store, kept beside it, readable by its owner only."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from actorproc.store.directory import KEY_FILE as FILE_NAME

__all__ = ["FILE_NAME", "keep_key", "read_key"]

_SIZE = 32


def read_key(directory: str | os.PathLike[str]) -> bytes | None:
    """The key of this store; None when it has none yet. A file of another length is no key of ours."""
    try:
        key = Path(directory, FILE_NAME).read_bytes()
    except OSError:
        return None
    return key if len(key) == _SIZE else None


def keep_key(directory: str | os.PathLike[str], key: bytes) -> bytes:
    """Store `key` unless the store has one; the key of the store from now on."""
    place = Path(directory, FILE_NAME)
    known = read_key(directory)
    if known is not None:
        return known
    # Written aside and linked, so that a crash leaves a whole key or none, and of two who come at once the first wins.
    aside = place.with_suffix(f".new-{os.getpid()}-{threading.get_ident()}")
    aside.unlink(missing_ok=True)
    descriptor = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(key)
            file.flush()
            os.fsync(file.fileno())
        try:
            place.hardlink_to(aside)
        except FileExistsError:
            known = read_key(directory)
            if known is not None:
                return known
            aside.rename(place)  # what is there is no key
    finally:
        aside.unlink(missing_ok=True)
    return key
