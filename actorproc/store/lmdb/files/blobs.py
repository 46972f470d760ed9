"""Long values in files of their own, beside the data file: arguments and results of large calls above all.

LMDB takes a value of 100 MiB page by page, needs as many free pages in a row for it, and its file never gets smaller.
So the long field of a record of the step log, its state or its output, becomes a *blob*. That is a file which is
written and synced before the commit whose row names it. It is never changed, and it is removed after the commit that
drops the row.

Behind its content a file says to which row it belongs. So the next owner of the store tells the files that no row
names, of a commit that failed or a removal that was interrupted, without looking at all rows.

One record has one blob at most; the other long field of the same record stays in the row.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from actorproc.errors import StorageUnavailable, StoreDamaged
from actorproc.model.rows.records import StepRecord
from actorproc.model.rows.writes import DeleteProcedure, PutStep, TrimLog, Write
from actorproc.store.directory import BLOBS, new_private, sync_names
from actorproc.store.rows.codec import OUTSIDE, Outside, Reference, checked_reference, reference_in
from actorproc.store.rows.layout import PutOutside
from actorproc.store.rows.step_log import owner_of, step_key
from actorproc.store.rows.tables import Table
from actorproc.support.staged_files import LONG, STAGED, StagedFile, in_file

__all__ = ["LONG", "BlobFiles", "blobs_in", "names_in", "open_blob", "size_of_blobs", "with_blob"]

_NAME = re.compile(r"[0-9a-f]{16}")
_TRAILER = struct.Struct(">HI8s")
"""Length and CRC-32 of the key of the row, which stands in front of it, and what every such file ends with."""
_NUMBER = 8
"""Bytes of a key in front of the id."""
_LONGEST_KEY = 511
"""Bytes that LMDB takes."""
_MAGIC = b"ap-blob1"
_PASSING = frozenset(
    {errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EINTR, errno.ESTALE, errno.ETIMEDOUT}
)
"""Errors of the moment."""

RawGet = Callable[[bytes], bytes | None]
"""Reads the value under a key of the step log, as it is stored."""


class BlobFiles:
    """The files of an owned store. Used by the thread that commits; `place_of` by any."""

    def __init__(self, directory: Path, *, sync: bool, check: Callable[[], None]) -> None:
        """`check` raises `StorageUnavailable` when another store may be in this directory by now."""
        self._path = directory / BLOBS
        self._sync = sync
        self._check = check
        self._owned: dict[str, dict[int, str]] = {}
        """Names by procedure and number of the record."""
        self._dropped: list[str] = []
        """Files whose rows the commit under way drops."""
        self._unneeded: list[str] = []
        """Files whose rows are dropped, while a backup may still copy them."""

    def before(self, writes: Sequence[Write]) -> Sequence[Write | PutOutside]:
        """Write the files of a commit; its writes, with references in the place of what is in files.

        Raises `StorageUnavailable`, and leaves no file then.
        """
        self._dropped = []
        if not self._owned:
            for write in writes:
                if type(write) is PutStep and _long_field(write.record) is not None:
                    break
            else:
                return writes
        made: list[str] = []
        try:
            found = [self._outside(write, made) for write in writes]
            if made and self._sync:
                sync_names(self._path)
        except BaseException as error:
            for name in made:
                with contextlib.suppress(OSError):
                    (self._path / name).unlink()
            if isinstance(error, OSError):
                msg = f"writing a long value to {self._path}: {error.strerror}; free some space or check the disk"
                raise StorageUnavailable(msg) from error
            raise
        return found

    def after(self, *, is_copying: bool) -> None:
        """Remove the files that a durable commit has dropped, or keep them while the store `is_copying` for a
        backup."""
        if self._dropped:
            self._unneeded += self._dropped
            self._dropped = []
        if self._unneeded and not is_copying:
            for name in self._unneeded:
                with contextlib.suppress(OSError):  # it is removed at the next start
                    (self._path / name).unlink()
            self._unneeded = []

    def adopt(self, get: RawGet, rows: Callable[[], Iterable[tuple[bytes, bytes]]], *, is_start: bool) -> None:
        """In the first transaction: learn which row has which file. `after` it files that no row names are removed.

        Args:
            get: reads one row of the step log.
            rows: all rows of the step log, asked for when a file does not tell its row.
            is_start: the owner has no workers yet, so what workers staged is of no use.

        Raises:
            OSError: the directory cannot be read.
        """
        self._owned, self._dropped, self._unneeded = {}, [], []
        named: dict[str, bytes] | None = None
        if is_start:
            self._unneeded = blobs_in(self._path, STAGED)
        for name in blobs_in(self._path):
            key = _key_in(self._path / name)
            if key is not None:
                is_named = _names(get(key), key, name)
            else:  # a crash cut its writing short, or it was damaged later
                if named is None:
                    named = dict(_named(rows()))
                key = named.get(name)
                is_named = key is not None
            if is_named and key is not None:
                own = self._owned.setdefault(owner_of(key).decode("utf-8", "replace"), {})
                own[int.from_bytes(key[:_NUMBER])] = name
            else:
                self._unneeded.append(name)

    def place_of(self, procedure: str, number: int) -> str | None:
        """The path of the file of a record's long field; None: it has none."""
        name = self._owned.get(procedure, {}).get(number)
        return None if name is None else os.fspath(self._path / name)

    def _outside(self, write: Write, made: list[str]) -> Write | PutOutside:
        if isinstance(write, PutStep):
            record = write.record
            self._drop(record.procedure, (record.number,))
            field = _long_field(record)
            if field is not None:
                return self._written(record, field, made)
        elif isinstance(write, DeleteProcedure):
            self._drop(write.record.id, tuple(self._owned.get(write.record.id, ())))
        elif isinstance(write, TrimLog):
            own = self._owned.get(write.procedure, {})
            self._drop(write.procedure, [number for number in own if write.first <= number <= write.last])
        return write

    def _drop(self, procedure: str, numbers: Iterable[int]) -> None:
        own = self._owned.get(procedure)
        if own is None:
            return
        self._dropped += [own.pop(number) for number in numbers if number in own]
        if not own:
            del self._owned[procedure]

    def _written(self, record: StepRecord, field: str, made: list[str]) -> PutOutside:
        self._check()
        content = getattr(record, field)
        key = step_key(record.procedure, record.number)
        self._make_directory()
        staged = in_file(content)
        name, fd = self._of_worker(staged) if staged is not None else ("", -1)
        if fd < 0:
            name, fd = self._new()
            staged = None
        made.append(name)
        try:
            if staged is None:
                _write_all(fd, content)
            _write_all(fd, key + _TRAILER.pack(len(key), zlib.crc32(key), _MAGIC))
            if self._sync:
                os.fsync(fd)
        finally:
            os.close(fd)
        self._owned.setdefault(record.procedure, {})[record.number] = name
        short = msgspec.structs.replace(record, **{field: b""})
        return PutOutside(short, Reference(name, len(content), zlib.crc32(content), field))

    def _new(self) -> tuple[str, int]:
        """A new file: its name, and open for writing."""
        while True:
            name = os.urandom(8).hex()
            with contextlib.suppress(FileExistsError):
                return name, new_private(self._path / name)

    def _of_worker(self, staged: StagedFile) -> tuple[str, int]:
        """A file that a worker has written, under a name of ours, open at its end; no descriptor when it is gone."""
        name = os.urandom(8).hex()
        try:
            fd = os.open(staged.path, os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:  # a commit before has failed with it: the mapping has it still
            return "", -1
        try:
            if os.fstat(fd).st_size == len(staged):
                Path(staged.path).rename(self._path / name)
                return name, fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        return "", -1

    def _make_directory(self) -> None:
        with contextlib.suppress(FileExistsError):
            self._path.mkdir(mode=0o700)
            self._path.chmod(0o700)  # the umask may have taken away even our own bits
            sync_names(self._path.parent)


def _long_field(record: StepRecord) -> str | None:
    state, output = len(record.state), len(record.output)
    if state < LONG and output < LONG:
        return None
    return "state" if state >= output else "output"


def _write_all(fd: int, content: bytes | bytearray | memoryview) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(fd, rest) :]


def blobs_in(path: Path, named: re.Pattern[str] = _NAME) -> list[str]:
    """The names of the files in a directory of blobs, which may be missing. Raises `OSError`."""
    try:
        return [name for name in os.listdir(path) if named.fullmatch(name)]  # noqa: PTH208
    except FileNotFoundError:
        return []


def size_of_blobs(store: Path) -> int:
    """Bytes of all files of the store in this directory."""
    found = 0
    with contextlib.suppress(OSError):
        for name in blobs_in(store / BLOBS):
            with contextlib.suppress(OSError):  # removed meanwhile
                found += (store / BLOBS / name).lstat().st_size
    return found


def names_in(rows: Iterable[tuple[bytes, bytes]]) -> set[str]:
    """The names of the files that rows of the step log, as they are stored, refer to."""
    return {name for name, _ in _named(rows)}


def _names(value: bytes | None, key: bytes, name: str) -> bool:
    """True if a row names this file, or is damaged and may have named it: then the file may be all that is left."""
    try:
        reference = checked_reference(Table.STEPS, key, value) if reference_in(value) is not None else None
    except StoreDamaged:
        return True
    return reference is not None and reference.name == name


def _named(rows: Iterable[tuple[bytes, bytes]]) -> Iterator[tuple[str, bytes]]:
    for key, value in rows:
        reference = reference_in(value)
        if reference is not None:
            yield reference.name, key


def with_blob(store: Path, value: bytes | None) -> bytes | None:
    """A row of the step log, as it is stored, with the way to its file, which is read when the row is decoded."""
    if value is None or value[:1] != OUTSIDE:
        return value
    found = Outside(value)
    found.read = lambda reference: _read(store / BLOBS / reference.name, reference.size)
    return found


def _key_in(file: Path) -> bytes | None:
    """The key of the row that a file says it belongs to; None when it does not end as it should."""
    fd = open_blob(file)
    if fd is None:
        return None
    try:
        size = os.fstat(fd).st_size
        end = os.pread(fd, _TRAILER.size, max(0, size - _TRAILER.size))
        if len(end) < _TRAILER.size:
            return None
        length, checksum, magic = _TRAILER.unpack(end)
        if magic != _MAGIC or not _NUMBER < length <= _LONGEST_KEY:
            return None
        key = os.pread(fd, length, max(0, size - _TRAILER.size - length))
        return key if len(key) == length and zlib.crc32(key) == checksum else None
    finally:
        os.close(fd)


def open_blob(file: Path) -> int | None:
    """A file of ours, open for reading; None when there is none, or something else was put there.

    Raises `StorageUnavailable` for want of a descriptor or of memory.
    """
    try:
        fd = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        _raise_if_passing(error, file)
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return fd
    os.close(fd)
    return None


def _read(file: Path, size: int) -> bytes | None:
    """The content of a file; None when it is missing, no file of ours, or has another length."""
    fd = open_blob(file)
    if fd is None:
        return None
    with os.fdopen(fd, "rb", buffering=0) as opened:
        if os.fstat(fd).st_size < size:
            return None
        try:
            content = opened.read(size) or b""
            while len(content) < size and (more := opened.read(size - len(content))):
                content += more
        except (OSError, MemoryError) as error:
            _raise_if_passing(error, file)
            return None  # the disk cannot read it: it is lost as if it were missing, and nothing else is
        return content if len(content) == size else None


def _raise_if_passing(error: OSError | MemoryError, file: Path) -> None:
    """Raise `StorageUnavailable` for an error that says nothing about the file."""
    if isinstance(error, MemoryError) or error.errno in _PASSING:
        said = "there is no memory" if isinstance(error, MemoryError) else error.strerror
        raise StorageUnavailable(f"reading {file}: {said}; nothing acknowledged is lost") from error
