"""Staging directory, the hidden one in which a backup is made, and what is left of backups that were killed.

A process that makes a backup holds the lock (flock) of its hidden directory, which the kernel releases when the process
ends, however it ends. So one that can be locked is left over, and the next backup to the same place removes
it. Where the file system knows no such locks nothing is removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from actorproc.model.ids import new_id
from actorproc.store.directory import BLOBS, DATA_FILE, KEY_FILE, LOCK_FILE

__all__ = ["aside_of"]

_NEW_ID = r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_OURS = re.compile(rf"{re.escape(DATA_FILE)}|{BLOBS}|{re.escape(KEY_FILE)}|(\.?){re.escape(LOCK_FILE)}(\.{_NEW_ID})?")
"""Names that a backup gives to its files. A directory with any other name in it is not removed."""


@contextlib.contextmanager
def aside_of(destination: Path) -> Iterator[Path]:
    """A new private directory beside `destination`, which is gone afterwards unless it was renamed.

    Those that were left beside it go first. Raises `OSError`.
    """
    for left in _left_beside(destination):
        _remove_if_nobodys(left)
    path, fd = _made(destination)
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if fd >= 0:
            os.close(fd)


def _made(destination: Path) -> tuple[Path, int]:
    """The directory, and the open file whose lock it has."""
    while True:
        path = destination.parent / f".{destination.name}.{new_id()}"
        path.mkdir(mode=0o700)
        try:
            path.chmod(0o700)  # the umask may have taken away even our own bits
            fd = _open(path)
        except FileNotFoundError:
            continue  # another backup took it for one that was left
        with contextlib.suppress(OSError):  # a file system without such locks: then no backup removes it either
            fcntl.flock(fd, fcntl.LOCK_EX)
        if os.path.lexists(path):
            return path, fd
        os.close(fd)


def _open(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)


def _left_beside(destination: Path) -> list[Path]:
    name = re.compile(rf"\.{re.escape(destination.name)}\.{_NEW_ID}")
    try:
        return [path for path in destination.parent.iterdir() if name.fullmatch(path.name)]
    except OSError:
        return []  # it may be written to and not be looked into


def _remove_if_nobodys(path: Path) -> None:
    """Remove it unless a backup is being made in it, or it holds what is not of a backup."""
    with contextlib.suppress(OSError):  # nothing hangs on it
        fd = _open(path)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # By the open directory: another user, in a place where all may write, may put a link in that of his own.
            names = os.listdir(fd)  # noqa: PTH208
            if os.fstat(fd).st_uid == os.geteuid() and all(map(_OURS.fullmatch, names)):
                for name in names:
                    if name == BLOBS:
                        _remove_blobs(fd)
                    else:
                        os.unlink(name, dir_fd=fd)
                path.rmdir()
        finally:
            os.close(fd)


def _remove_blobs(aside: int) -> None:
    """Remove the directory of long values in the directory that is open as `aside`. Raises `OSError`."""
    fd = os.open(BLOBS, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=aside)
    try:
        for name in os.listdir(fd):  # noqa: PTH208
            os.unlink(name, dir_fd=fd)
    finally:
        os.close(fd)
    os.rmdir(BLOBS, dir_fd=aside)
