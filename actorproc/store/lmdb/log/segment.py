"""One file of a log: a head, and then records. The rest of it is zeros, or what is left of an earlier use.

Zeros are written before a record comes. So a sync of the record need not wait for a change of the file's length, nor
for a new place on the disk. For the same reason the file is used again and not made anew.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import stat
import struct
import zlib
from pathlib import Path
from typing import NamedTuple

from actorproc.errors import EngineError, StorageUnavailable, StoreDamaged
from actorproc.store.directory import new_private

__all__ = ["RECORDS_AT", "Segment", "damaged", "is_segment", "names_of", "numbers_in", "size_of_logs", "sync_data"]

RECORDS_AT = 512
"""Bytes in front of the first record."""
_MAGIC = b"ap-log1\n"
_HEAD = struct.Struct(">8sQQ8sI")  # magic, number of the log, epoch, salt, checksum of these
_CLOSED_AT = 256
_CLOSED = b"closed"
_FIRST, _LARGEST_STEP = 64 << 10, 1 << 20
"""Bytes by which a file is made longer, at first and at most."""
_PREFIX = "log-"


def names_of(number: int) -> tuple[str, str]:
    """Names of the two files of a log."""
    return f"{_PREFIX}{number}-0", f"{_PREFIX}{number}-1"


def is_segment(name: str) -> bool:
    """True for the name of such a file."""
    number, _, which = name.removeprefix(_PREFIX).partition("-")
    return name.startswith(_PREFIX) and number.isdecimal() and which in {"0", "1"}


def numbers_in(directory: Path) -> dict[int, list[str]]:
    """Names of all files of logs in a directory, by the number of the log. Raises `OSError`."""
    found: dict[int, list[str]] = {}
    for name in os.listdir(directory):  # noqa: PTH208
        if is_segment(name):
            found.setdefault(int(name.split("-")[1]), []).append(name)
    return found


def size_of_logs(directory: Path) -> int:
    """Bytes of all these files. Raises `OSError`."""
    found = 0
    for names in numbers_in(directory).values():
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                found += (directory / name).stat().st_size
    return found


class _Head(NamedTuple):
    number: int
    epoch: int
    salt: bytes


class Segment:
    """An open file of a log."""

    def __init__(self, fd: int, path: Path, head: _Head) -> None:
        self.fd = fd
        self.path = path
        self.epoch = head.epoch
        self.mark = head.salt
        """Bytes that no other file has."""
        self.salt = zlib.crc32(head.salt)
        """Beginning of the checksums of its records."""
        self.length = os.fstat(fd).st_size

    @classmethod
    def make(cls, path: Path, number: int, epoch: int) -> Segment:
        """A new file, which is on the disk then. Raises `OSError`."""
        fd = new_private(path)
        os.close(fd)
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            salt = os.urandom(8)
            packed = _HEAD.pack(_MAGIC, number, epoch, salt, 0)[:-4]
            head = packed + zlib.crc32(packed).to_bytes(4)
            _write(fd, head.ljust(_FIRST, b"\0"), 0)
            os.fsync(fd)
            return cls(fd, path, _Head(number, epoch, salt))
        except BaseException:
            os.close(fd)
            raise

    @classmethod
    def open(cls, path: Path, number: int, *, writable: bool = False) -> Segment:
        """An existing file.

        Raises:
            StoreDamaged: It is gone, or another one.
            StorageUnavailable: It cannot be opened now.
            EngineError: It is not ours.
        """
        try:
            fd = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        except FileNotFoundError as error:
            raise damaged(path, "it is gone") from error
        except OSError as error:
            is_ours_to_mend = error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.ENXIO)
            kind = EngineError if is_ours_to_mend else StorageUnavailable
            raise kind(f"cannot open {path}: {error.strerror}") from error
        try:
            _check_owner(fd, path)
            return cls(fd, path, _head_of(fd, path, number))
        except BaseException:
            os.close(fd)
            raise

    def read(self, at: int = 0, size: int | None = None) -> bytes:
        """Bytes of it, from one on. Raises `OSError`."""
        there = max(0, os.fstat(self.fd).st_size - at)
        wanted = there if size is None else min(size, there)
        found = b""
        while wanted > len(found) and (more := os.pread(self.fd, wanted - len(found), at + len(found))):
            found += more
        return found

    def growth(self, end: int) -> int:
        """Bytes that are added to have it at least so long."""
        step = min(max(self.length, _FIRST), _LARGEST_STEP)
        return max(0, -(-(end - self.length) // step) * step)

    def make_room(self, end: int) -> None:
        """Have it at least so long. Raises `OSError`, and its records are as they were then."""
        zeros = self.growth(end)
        if zeros:
            _write(self.fd, bytes(zeros), self.length)
            self.length += zeros

    def write(self, data: bytes, at: int) -> None:
        """Put a record there, for which there is room. Raises `OSError`."""
        _write(self.fd, data, at)

    def forbid(self) -> None:
        """Tell the process that writes it, if there is one still, that its records count no more. Raises `OSError`."""
        _write(self.fd, _CLOSED, _CLOSED_AT)

    def is_forbidden(self) -> bool:
        """True after `forbid`. Raises `OSError`."""
        return os.pread(self.fd, len(_CLOSED), _CLOSED_AT) == _CLOSED

    def is_removed(self) -> bool:
        """True if it has no name any more."""
        return os.fstat(self.fd).st_nlink == 0

    def close(self) -> None:
        """Close it. Idempotent."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def sync_data(fd: int) -> None:
    """Wait until what was written to a file is on the disk. Raises `OSError`."""
    if hasattr(fcntl, "F_FULLFSYNC"):  # macOS, where the other calls do not wait for the disk itself
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
    else:
        os.fdatasync(fd)


def _write(fd: int, data: bytes, at: int) -> None:
    done = os.pwrite(fd, data, at)
    while done < len(data):
        more = os.pwrite(fd, memoryview(data)[done:], at + done)
        if more <= 0:
            raise OSError(errno.ENOSPC, "the disk took a part of it only")
        done += more


def _check_owner(fd: int, path: Path) -> None:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise EngineError(
            f"the store's file {path} is no regular file of this user, or others can write to it, so it cannot be "
            f"trusted; check what is in it, then: chmod go-w {path}"
        )


def _head_of(fd: int, path: Path, number: int) -> _Head:
    raw = os.pread(fd, _HEAD.size, 0)
    if len(raw) == _HEAD.size:
        magic, found, epoch, salt, checksum = _HEAD.unpack(raw)
        if magic == _MAGIC and found == number and checksum == zlib.crc32(raw[:-4]):
            return _Head(found, epoch, salt)
    raise damaged(path, "its head is not what it should be")


def damaged(path: Path, reason: str) -> StoreDamaged:
    """The error for a file that cannot be used."""
    return StoreDamaged(
        f"{path}, which has the last commits of the store, cannot be used: {reason}. It is left as it is. Put it back, "
        "or restore a backup, or save what is older with: "
        f"actorproc --path {path.parent} doctor --export-good GOOD.json",
        reason=f"{path.name}: {reason}",
    )
