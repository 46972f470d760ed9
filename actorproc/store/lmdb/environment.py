"""The LMDB environment of a store: opening it, its snapshots, and its errors in our words.

Facts this rests on (liblmdb 0.9, py-lmdb 3):

- A map is address space and no disk space, so it is reserved large. An address-space limit of the process can
  make that fail; then less is asked for.
- `lib_version=0` is stated: py-lmdb 3 has two engines whose files cannot read each other, and an environment
  variable picks the default.
- No writemap: with it a full disk is a SIGBUS instead of an error.
- `set_mapsize` and `close` invalidate open transactions, hence the gate.
- py-lmdb does not refuse an environment inherited over fork, so every use compares process ids.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

import lmdb

from actorproc.errors import (
    ActorprocError,
    EngineError,
    InternalError,
    StorageUnavailable,
    StoreDamaged,
    StoreFormat,
)
from actorproc.store.directory import DATA_FILE, make_private
from actorproc.store.lmdb.files.blobs import with_blob
from actorproc.store.lmdb.files.lock_file import MAX_READERS, make_lock_file
from actorproc.store.lmdb.files.standard_files import occupy_standard_files
from actorproc.store.rows.tables import Table, looked_up_heads

__all__ = [
    "LOG_DATABASE",
    "LONGEST_KEY",
    "Databases",
    "ReadSnapshot",
    "check_names",
    "open_databases",
    "open_environment",
    "refuse_fork",
    "translated",
    "used_pages",
]

Databases = Mapping[Table, lmdb._Database]

_STEPS = Table.STEPS
_MAX_DBS = 32
_LATER = frozenset(table for table in Table if table > Table.BY_TAG)
"""Databases that the first version of the format did not have."""
_SMALLEST_MAP = 64 << 20
LONGEST_KEY = 511
LOG_DATABASE = b"log"
"""Database that says which log a store has. A store that never had one lacks it."""
"""Bytes of a key, at most."""


def open_environment(
    path: Path,
    *,
    map_size: int,
    readonly: bool = False,
    create: bool = False,
    sync: bool = True,
    lock: bool = True,
) -> lmdb.Environment:
    """Open a checked directory. `map_size` is halved down to 64 MiB while the address space is too small for it.

    0 takes the size the file names. `sync`: a commit waits for the disk. `lock`: take part in the table of readers,
    which is made if it is missing. Raises `EngineError`s.
    """
    occupy_standard_files()
    if lock:
        make_lock_file(path)
    if create:
        _make_data_file(path)
    while True:
        try:
            return lmdb.open(
                os.fsencode(path),  # as text it would have to be UTF-8, and names of files need not be
                map_size=map_size,
                readonly=readonly,
                create=create,
                lock=lock,
                metasync=sync,
                sync=sync,
                mode=0o700,  # of the directory; the files get 0600
                readahead=False,
                max_readers=MAX_READERS,
                max_dbs=_MAX_DBS,
                max_spare_txns=4,
                lib_version=0,
            )
        except lmdb.Error as error:
            if _code(error) == errno.ENOMEM and map_size > _SMALLEST_MAP:
                map_size = max(map_size // 2, _SMALLEST_MAP)
                continue
            if _code(error) in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise EngineError(
                    f"no permission to open the store {path}: {error}; this user must be able to read and write the "
                    "directory and the files in it"
                ) from error
            raise translated(error, f"opening the store {path}") from error


def _make_data_file(path: Path) -> None:
    try:
        make_private(path / DATA_FILE)
    except PermissionError as error:
        raise EngineError(f"no permission to make {path / DATA_FILE}: {error.strerror}") from error
    except OSError as error:
        raise StorageUnavailable(
            f"making {path / DATA_FILE}: {error.strerror}; free some space or check the disk"
        ) from error


def open_databases(env: lmdb.Environment, txn: lmdb.Transaction[bytes] | None, *, create: bool) -> Databases:
    """Handles of all named databases. They outlive a write transaction that is committed.

    For reading give no transaction: py-lmdb recycles read transactions, and handles opened in one are lost.
    A database that an older version did not have yet is left out, and reads as empty, unless it may be made.
    """
    databases: dict[Table, lmdb._Database] = {}
    for table in Table:
        try:
            databases[table] = env.open_db(table.label.encode(), txn=txn, create=create)
        except lmdb.NotFoundError:
            if table not in _LATER:
                raise
    return databases


def check_names(txn: lmdb.Transaction[bytes], path: Path) -> None:
    """Raise `StoreDamaged` when a database has lost its name: it would read as empty.

    A store of an older version lacks databases, one of a newer version has more; none does both.
    """
    known = {table.label.encode() for table in Table} | {LOG_DATABASE}
    needed = known - {LOG_DATABASE}
    with txn.cursor() as cursor:
        found = set(cursor.iternext(keys=True, values=False))
    if found - known and needed - found:
        strange = ", ".join(ascii(name) for name in sorted(found - known))
        raise StoreDamaged(
            f"the store {path} is damaged: it holds databases of unknown names ({strange}) and lacks "
            f"{', '.join(sorted(name.decode() for name in needed - found))}; restore a backup",
            reason="a database has lost its name",
        )


def used_pages(txn: lmdb.Transaction[bytes], databases: Databases) -> int:
    """Pages that hold rows."""
    stats = [txn.stat(database) for database in databases.values()]
    return sum(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats)


class ReadSnapshot:
    """A read transaction as `Rows`; a context manager that ends it and turns LMDB's errors into ours."""

    def __init__(
        self, txn: lmdb.Transaction[bytes], databases: Databases, leave: Callable[[], None], path: Path
    ) -> None:
        self._txn = txn
        self._databases = databases
        self._leave = leave
        self._path = path

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._txn.abort()
        finally:
            self._leave()
        if isinstance(error, lmdb.Error):
            raise translated(error, f"reading the store {self._path}") from error

    def get(self, table: Table, key: bytes) -> bytes | None:
        db = self._databases.get(table)
        try:
            value = None if db is None else self._txn.get(key, db=db)
            return with_blob(self._path, value) if table is _STEPS else value
        except lmdb.BadValsizeError:
            return None  # no key is empty or so long; damaged rows name such ones

    def get_many(self, table: Table, keys: Sequence[bytes]) -> dict[bytes, bytes]:
        db = self._databases.get(table)
        if db is None:
            return {}
        with self._txn.cursor(db) as cursor:
            found = dict(cursor.getmulti([key for key in keys if 0 < len(key) <= LONGEST_KEY]))
        return {key: with_blob(self._path, value) or b"" for key, value in found.items()} if table is _STEPS else found

    def count(self, table: Table) -> int:
        db = self._databases.get(table)
        return 0 if db is None else self._txn.stat(db)["entries"]

    def is_empty(self, table: Table) -> bool:
        return self.count(table) == 0

    def heads_of(self, table: Table, prefix: bytes) -> Iterator[tuple[bytes, bytes, bytes | None]]:
        return looked_up_heads(self, table, prefix)

    def used_bytes(self) -> int:
        """Bytes of the pages that hold rows."""
        return used_pages(self._txn, self._databases) * int(self._txn.stat()["psize"])

    def scan(
        self, table: Table, prefix: bytes = b"", *, after: bytes | None = None, reverse: bool = False
    ) -> Iterator[tuple[bytes, bytes]]:
        db = self._databases.get(table)
        if db is None or len(prefix) > LONGEST_KEY:
            return
        with self._txn.cursor(db) as cursor:
            if not (_place_before(cursor, prefix, after) if reverse else _place_after(cursor, prefix, after)):
                return
            rows = cursor.iterprev() if reverse else cursor.iternext()
            if table is _STEPS:
                rows = ((key, with_blob(self._path, value) or b"") for key, value in rows)
            if not prefix:
                yield from rows  # to the end of the table, without a step of Python for each row
                return
            for row in rows:
                if not row[0].startswith(prefix):
                    return
                yield row


def _place_after(cursor: lmdb.Cursor[bytes], prefix: bytes, after: bytes | None) -> bool:
    if after is None:
        return cursor.set_range(prefix) if prefix else cursor.first()
    found = cursor.set_range(after)
    return cursor.next() if found and cursor.key() == after else found


def _place_before(cursor: lmdb.Cursor[bytes], prefix: bytes, after: bytes | None) -> bool:
    # FF is no byte of any prefix's continuation for so long: the place behind the last key with this prefix.
    bound = after if after is not None else prefix + b"\xff" * (511 - len(prefix))
    return cursor.prev() if cursor.set_range(bound) else cursor.last()


def refuse_fork(path: Path, pid: int) -> None:
    """Raise unless this is the process that opened the store."""
    if os.getpid() != pid:
        raise EngineError(
            f"the store {path} was opened by process {pid}, and this is its forked child {os.getpid()}: an LMDB "
            "environment does not survive a fork; start the manager after forking, in one process only"
        )


def translated(error: lmdb.Error, doing: str) -> ActorprocError:
    """One of our errors for one of LMDB's; raise it from the original."""
    text = f"{doing}: {error}"
    if isinstance(error, lmdb.BadValsizeError):
        return InternalError(f"{text}; a key is empty or longer than 511 bytes")
    if isinstance(error, lmdb.CorruptedError | lmdb.PageNotFoundError):
        return StoreDamaged(f"{text}; restore the store from a backup", reason=str(error))
    if isinstance(error, lmdb.InvalidError | lmdb.VersionMismatchError | lmdb.IncompatibleError):
        return StoreFormat(f"{text}; this is no store of actorproc, or one of another engine")
    if isinstance(error, lmdb.ReadersFullError):
        return StorageUnavailable(f"{text}; {MAX_READERS} threads and processes read it at once, let some of them end")
    if "already open in this process" in str(error):
        return EngineError(
            f"{text}; ask the manager that has it open instead of opening it a second time. A forked copy of a process "
            "that has it open cannot open it at all: start that one by 'spawn', or fork before the store is opened"
        )
    return StorageUnavailable(f"{text}; free some space or check the disk, nothing acknowledged is lost")


def _code(error: lmdb.Error) -> int:
    return int(getattr(error, "code", 0) or 0)
