"""Long values that go between a worker and its host as files, in the directory where the store keeps such files.

Through the socket 100 MiB would be copied five times before they are stored. So the worker writes its output into a
file with its process id in the name, and sends the name. The host maps the file, and the store makes it one of its own
(`store.lmdb.files.blobs`). A file that the store did not take is removed with its mapping, with its worker when that
never told of it, or by the next owner of the store. The other way a worker maps the file of the state that its step
begins with.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import re
import stat
from collections.abc import Iterator

__all__ = ["BLOBS", "LONG", "STAGED", "StagedFile", "drop_staged_by", "in_file", "mapped", "taken", "write_staged"]

BLOBS = "blobs"
"""The directory of such files, in that of the store."""
LONG = 4 * 1024 * 1024
"""Bytes from which on a value is a file of its own: below, files cost more time than they save."""
STAGED = re.compile(r"\d+-\d+\.new|[0-9a-f]{16}\.taken")
"""Names of files that the store has not taken."""

_BY_WORKER = re.compile(r"\d+-\d+\.new")
_numbers = itertools.count(1)


class StagedFile(mmap.mmap):
    """A mapped file that goes with its mapping unless it was given another name by then."""

    path: str
    pid: int

    def __del__(self) -> None:
        with contextlib.suppress(OSError, AttributeError):  # at the end of the interpreter, too
            if self.pid == os.getpid():  # in a forked copy it is not ours
                os.unlink(self.path)  # noqa: PTH108


def in_file(content: object) -> StagedFile | None:
    """The file that these bytes are the whole of; None: they are no mapped file."""
    if type(content) is memoryview and isinstance(content.obj, StagedFile) and len(content) == len(content.obj):
        return content.obj
    return None


def write_staged(staging: str, content: bytes) -> str:
    """In a worker: write these bytes into a new file of the directory `staging`, and return its name.

    Raises:
        OSError: there is no such directory, or no space; nothing is left then.
    """
    name = f"{os.getpid()}-{next(_numbers)}.new"
    path = os.path.join(staging, name)  # noqa: PTH118 - `pathlib` takes as long as a small step
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        os.fchmod(fd, 0o600)
        rest = memoryview(content)
        while rest:
            rest = rest[os.write(fd, rest) :]
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108
        raise
    finally:
        os.close(fd)
    return name


def taken(staging: str, name: str, size: int) -> memoryview:
    """In the host: the content of a file that a worker staged, which has this length, mapped.

    Raises:
        OSError: it is not there.
        ValueError: it is not what a worker stages.
    """
    if not staging or not _BY_WORKER.fullmatch(name) or size <= 0:
        msg = f"spoke of {name!r:.80}, which is no file of a worker"
        raise ValueError(msg)
    path = os.path.join(staging, f"{os.urandom(8).hex()}.taken")  # noqa: PTH118
    os.rename(os.path.join(staging, name), path)  # noqa: PTH104, PTH118 - what is left of the worker is removed by its name
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(fd)
        _check(found, size)
        file = StagedFile(fd, size, access=mmap.ACCESS_READ)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)  # noqa: PTH108
        raise
    finally:
        os.close(fd)
    file.path, file.pid = path, os.getpid()
    return memoryview(file)


def _check(found: os.stat_result, size: int) -> None:
    if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid() or found.st_size != size:
        msg = "spoke of a file that is not what it says"
        raise ValueError(msg)


def mapped(path: bytes, size: int) -> memoryview | None:
    """In a worker: the first bytes of a file of the store, mapped; None when it is not there, or has fewer."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        return memoryview(mmap.mmap(fd, size, access=mmap.ACCESS_READ))
    except (OSError, ValueError):  # no room in the address space, or the file is too short
        return None
    finally:
        os.close(fd)


def drop_staged_by(staging: str, pid: int) -> None:
    """Remove what a worker that is dead has staged and not told of."""
    with contextlib.suppress(OSError):
        for name in _left_by(staging, pid):
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(staging, name))  # noqa: PTH108, PTH118


def _left_by(staging: str, pid: int) -> Iterator[str]:
    if staging:
        yield from (name for name in os.listdir(staging) if name.startswith(f"{pid}-") and _BY_WORKER.fullmatch(name))  # noqa: PTH208
