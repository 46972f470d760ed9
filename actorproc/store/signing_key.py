"""The keys that sign what is pickled: kept beside the store, readable by its owner only.

The file holds one key of 32 bytes after the other, the newest first. The first is made once per store; `rotate` puts
another one before it, and what the older ones signed is accepted as long as they are kept.
"""

from __future__ import annotations

import os
import threading
from pathlib import Path

from actorproc.errors import EngineError, StorageUnavailable
from actorproc.store.directory import KEY_FILE as FILE_NAME, new_private, read_private

__all__ = ["FILE_NAME", "keep_keys", "keys_in", "read_keys", "rotate", "rotated"]

_SIZE = 32
_MOST = 64
"""Keys of one store; a rotation beyond it drops the oldest."""


def read_keys(directory: str | os.PathLike[str]) -> tuple[bytes, ...]:
    """The keys of this store, the newest first; none when it has none yet. A file of another length holds no keys."""
    try:
        return _keys_in(Path(directory, FILE_NAME))
    except OSError:
        return ()


def _known(place: Path) -> tuple[bytes, ...]:
    """The same, for who is about to write: keys that are there and cannot be read now must not be lost."""
    try:
        return _keys_in(place)
    except FileNotFoundError:
        return ()
    except OSError as error:
        msg = f"the signing key {place} cannot be read: {error.strerror}; make it readable, what is pickled needs it"
        raise EngineError(msg) from error


def _keys_in(place: Path) -> tuple[bytes, ...]:
    content, _ = read_private(place, _SIZE * _MOST + 1)
    return keys_in(content)


def keys_in(content: bytes) -> tuple[bytes, ...]:
    """The keys in the content of such a file; none when it is that of another file."""
    if len(content) % _SIZE or len(content) > _SIZE * _MOST:
        return ()
    return tuple(content[start : start + _SIZE] for start in range(0, len(content), _SIZE))


def keep_keys(directory: str | os.PathLike[str], key: bytes) -> tuple[bytes, ...]:
    """Store `key` unless the store has one; the keys of the store from now on.

    Raises `EngineError` when there are keys that cannot be read, or none can be written.
    """
    place = Path(directory, FILE_NAME)
    known = _known(place)
    if known:
        return known
    # Written aside and linked, so that a crash leaves a whole key or none, and of two who come at once the first wins.
    aside = _written_aside(place, key)
    try:
        try:
            place.hardlink_to(aside)
        except FileExistsError:
            known = _known(place)
            if known:
                return known
            aside.rename(place)  # what is there is no key
    finally:
        aside.unlink(missing_ok=True)
    return (key,)


def rotate(directory: str | os.PathLike[str], *, forget: bool = False) -> tuple[bytes, ...]:
    """Put a new key before those of the store, or with `forget` in their place; the keys from now on.

    For the owner of the store: a manager reads the keys when it starts. Raises as `keep_keys` does.
    """
    place = Path(directory, FILE_NAME)
    keys = rotated(() if forget else _known(place))
    aside = _written_aside(place, b"".join(keys))
    try:
        aside.rename(place)
    finally:
        aside.unlink(missing_ok=True)
    descriptor = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return keys


def rotated(known: tuple[bytes, ...]) -> tuple[bytes, ...]:
    """A new key before those that are known; the oldest goes when there are too many."""
    return (os.urandom(_SIZE), *known[: _MOST - 1])


def _written_aside(place: Path, content: bytes) -> Path:
    """A new file beside `place`, on disk; never something that was planted there."""
    aside = place.with_suffix(f".new-{os.getpid()}-{threading.get_ident()}")
    aside.unlink(missing_ok=True)
    try:
        with os.fdopen(new_private(aside), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        aside.unlink(missing_ok=True)
        msg = f"the signing key {place} cannot be written: {error.strerror}; what was there before is as it was"
        raise StorageUnavailable(msg) from error
    return aside
