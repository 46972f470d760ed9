"""The store on disk: one LMDB environment, one transaction and one fsync per commit.

`LmdbStore` is the owner's: it writes. `LmdbReader` looks at a store that another process may be writing to.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Literal, Self, TypeAlias, TypeVar

import lmdb

from actorproc.errors import EngineError, StorageUnavailable, StoreFormat, StoreInUse
from actorproc.model.ids import new_id
from actorproc.model.writes import Write
from actorproc.store import codec
from actorproc.store.directory import (
    DATA_FILE,
    OWNER_FILE,
    check_data_file,
    check_directory,
    make_directory,
    sync_names,
)
from actorproc.store.environment import (
    Databases,
    Snapshot,
    open_databases,
    open_environment,
    refuse_fork,
    translated,
)
from actorproc.store.gate import Gate
from actorproc.store.layout import BATCH, EPOCH, FORMAT, FORMAT_KEY, STORE_ID, Row, rows_of
from actorproc.store.owner import OwnerLock
from actorproc.store.reading import RecordReader
from actorproc.store.tables import Table

__all__ = ["Durability", "LmdbReader", "LmdbStore"]

Durability = Literal["power", "process"]

_T = TypeVar("_T")
_Txn: TypeAlias = "lmdb.Transaction[bytes]"


class _OpenStore(RecordReader):
    """What the owner and a mere reader have in common: snapshots of an open environment."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._gate = Gate()
        self._pid = os.getpid()
        self._env: lmdb.Environment | None = None
        self._databases: Databases = {}

    def _view(self) -> Snapshot:
        refuse_fork(self.path, self._pid)
        while True:
            self._gate.enter()
            try:
                env = self._opened()
                return Snapshot(env.begin(), self._databases, self._gate.leave, self.path)
            except lmdb.MapResizedError:
                self._gate.leave()
                with self._gate.alone():
                    env.set_mapsize(0)  # adopt the size to which the owner has grown it
            except lmdb.Error as error:
                self._gate.leave()
                raise translated(error, f"reading the store {self.path}") from error
            except BaseException:
                self._gate.leave()
                raise

    def _opened(self) -> lmdb.Environment:
        if self._env is None:
            raise self._not_open()
        return self._env

    def _not_open(self) -> EngineError:
        return EngineError(f"the store {self.path} is not open")

    def _close_environment(self) -> None:
        if self._env is not None:
            with self._gate.alone():
                self._env.close()
                self._env = None


class LmdbStore(_OpenStore):
    """`ProcedureStore` in a directory of the local file system.

    `durability` "power": every commit is on the disk before it returns. "process": it survives any kill of
    this process, but a power cut may lose the last commits or, on a disk that reorders writes, the store.
    `map_size` is the address space reserved at first, in bytes; it grows by itself and costs no disk.
    `allow_any_filesystem` opens a store on a remote file system, for which nothing is promised.

    The constructor touches nothing; `own` opens.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "power",
        map_size: int = 16 << 30,
        allow_any_filesystem: bool = False,
    ) -> None:
        if durability not in ("power", "process"):
            raise ValueError(f'durability is "power" or "process", not {durability!r}')
        super().__init__(path)
        self._sync = durability == "power"
        self._map_size = map_size
        self._allow_any_filesystem = allow_any_filesystem
        self._lock: OwnerLock | None = None
        self._epoch = 0
        self._id = ""

    @classmethod
    def reader(cls, path: str | os.PathLike[str], *, allow_any_filesystem: bool = False) -> LmdbReader:
        """Open the store at `path` for reading only, while its owner may be at work in another process."""
        return LmdbReader(path, allow_any_filesystem=allow_any_filesystem)

    def own(self) -> int:
        """Open the store, made if it is missing, and raise its epoch durably."""
        if self._lock is not None:
            raise StoreInUse(f"this LmdbStore of {self.path} is owned already; close it first", os.getpid())
        self._pid = os.getpid()
        make_directory(self.path, allow_any_filesystem=self._allow_any_filesystem)
        self._lock = OwnerLock.acquire(self.path / OWNER_FILE)
        try:
            check_data_file(self.path)
            self._env = open_environment(self.path, map_size=self._map_size, create=True, sync=self._sync)
            self._epoch, self._id = self._transact(self._claim)
            self._env.sync(True)
            sync_names(self.path)
            self._env.reader_check()
        except BaseException:
            self.close()
            raise
        return self._epoch

    def commit(self, writes: Sequence[Write], epoch: int, batch: int = 0) -> None:
        """Apply all writes or none, if `epoch` is still the stored one. See `ProcedureStore.commit`."""
        rows = rows_of(writes, batch)
        databases = self._databases
        expected = codec.encode(Table.META, EPOCH, epoch)

        def work(txn: _Txn) -> None:
            if txn.get(EPOCH, db=databases[Table.META]) != expected:
                raise StoreInUse(f"a newer owner has taken the store {self.path} over; epoch {epoch} is fenced off")
            _apply(txn, databases, rows)

        self._transact(work)

    def reopen(self) -> None:
        """Close and open again after a failed commit, and prove that the disk takes commits: one, synced."""
        refuse_fork(self.path, self._pid)
        if self._lock is None:
            raise self._not_open()
        self._close_environment()
        if not (self.path / DATA_FILE).exists():
            raise StorageUnavailable(f"{self.path / DATA_FILE} is gone; put it back, nothing else can be done")
        check_data_file(self.path)
        env = self._env = open_environment(self.path, map_size=self._map_size, sync=self._sync)
        try:
            self._transact(self._reclaim)
            env.sync(True)
        except lmdb.Error as error:
            self._close_environment()
            raise translated(error, f"opening the store {self.path} again") from error
        except BaseException:
            self._close_environment()
            raise

    def close(self) -> None:
        """Give the store up. Idempotent; in a forked child it leaves the environment alone."""
        if os.getpid() == self._pid:
            self._close_environment()
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def _not_open(self) -> EngineError:
        if self._lock is None:
            return EngineError(f"the store {self.path} is not open: own() it first")
        return StorageUnavailable(f"the store {self.path} is being opened again after a failed commit; try again")

    def _claim(self, txn: _Txn) -> tuple[int, str]:
        """Check that this is our store and of our format, or make it; return the new epoch and the store's id."""
        env = self._opened()
        names = txn.stat()["entries"]
        if names:
            _check_format(env, txn, self.path)
        databases = self._databases = open_databases(env, txn, create=True)
        meta = databases[Table.META]
        if not names:
            for key, value in ((FORMAT_KEY, FORMAT), (STORE_ID, new_id()), (EPOCH, 0)):
                txn.put(key, codec.encode(Table.META, key, value), db=meta)
        epoch = int(_meta(txn, databases, EPOCH)) + 1
        txn.put(EPOCH, codec.encode(Table.META, EPOCH, epoch), db=meta)
        txn.put(BATCH, codec.encode(Table.META, BATCH, 0), db=meta)
        return epoch, str(_meta(txn, databases, STORE_ID))

    def _reclaim(self, txn: _Txn) -> None:
        """Check that it is the same store, still ours, and write something, so that the commit is a real one."""
        env = self._opened()
        _check_format(env, txn, self.path)
        databases = self._databases = open_databases(env, txn, create=False)
        found = str(_meta(txn, databases, STORE_ID))
        if found != self._id:
            raise StoreFormat(f"the store {self.path} was replaced by another one while it was open (id {found})")
        epoch = int(_meta(txn, databases, EPOCH))
        if epoch != self._epoch:
            raise StoreInUse(f"a newer owner (epoch {epoch}) has taken the store {self.path} over")
        txn.put(EPOCH, codec.encode(Table.META, EPOCH, epoch), db=databases[Table.META])

    def _transact(self, work: Callable[[_Txn], _T]) -> _T:
        """Run `work` in one write transaction; the whole of it again in a map twice as large when the map is full."""
        refuse_fork(self.path, self._pid)
        while True:
            env = self._opened()
            try:
                txn = env.begin(write=True)
                try:
                    result = work(txn)
                    txn.commit()
                except BaseException:
                    # In py-lmdb 3.0 an abort starves, for seconds, while other threads read without pause.
                    with self._gate.alone():
                        txn.abort()
                    raise
                return result
            except lmdb.MapFullError:
                self._grow(env)
            except lmdb.Error as error:
                raise translated(error, f"writing the store {self.path}") from error

    def _grow(self, env: lmdb.Environment) -> None:
        self._map_size = 2 * env.info()["map_size"]
        try:
            with self._gate.alone():
                env.set_mapsize(self._map_size)
        except lmdb.Error as error:
            raise translated(error, f"growing the map of {self.path} to {self._map_size} bytes") from error


class LmdbReader(_OpenStore):
    """The reading methods of a store, for other processes than its owner's. A context manager.

    Takes no owner lock. Raises `EngineError` when there is no store, and in a process that has it open already.
    """

    def __init__(self, path: str | os.PathLike[str], *, allow_any_filesystem: bool = False) -> None:
        super().__init__(path)
        check_directory(self.path, allow_any_filesystem=allow_any_filesystem)
        if not (self.path / DATA_FILE).exists():
            raise EngineError(f"there is no store at {self.path}: no {DATA_FILE} in it")
        check_data_file(self.path)
        env = self._env = open_environment(self.path, map_size=0, readonly=True)
        try:
            with env.begin() as txn:
                _check_format(env, txn, self.path)
            self._databases = open_databases(env, None, create=False)
        except lmdb.Error as error:
            self.close()
            raise translated(error, f"reading the store {self.path}") from error
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Stop reading. Idempotent."""
        if os.getpid() == self._pid:
            self._close_environment()


def _check_format(env: lmdb.Environment, txn: _Txn, path: Path) -> None:
    """Raise `StoreFormat` unless this environment is a store of the format known here."""
    try:
        meta = env.open_db(Table.META.label.encode(), txn=txn, create=False)
        value = txn.get(FORMAT_KEY, db=meta)
    except (lmdb.NotFoundError, lmdb.IncompatibleError):
        value = None
    if value is None:
        raise StoreFormat(
            f"{path / DATA_FILE} is an LMDB file, but no actorproc store; it was not changed. Give another directory"
        )
    found = codec.decode(Table.META, FORMAT_KEY, value)
    if found != FORMAT:
        raise StoreFormat(
            f"the store {path} has format {found} and this actorproc knows format {FORMAT}; it was not changed. "
            "Open it with the actorproc that wrote it, or a later one"
        )


def _meta(txn: _Txn, databases: Databases, key: bytes) -> int | str:
    value = txn.get(key, db=databases[Table.META])
    if value is None:
        raise codec.damaged(Table.META, key, "the row is missing")
    found: int | str = codec.decode(Table.META, key, value)
    return found


def _apply(txn: _Txn, databases: Databases, rows: Sequence[Row]) -> None:
    for table, key, value in rows:
        db = databases[table]
        if type(value) is bytes:
            txn.put(key, value, db=db)
        elif value is None:
            txn.delete(key, db=db)
        elif isinstance(value, int):
            raised = codec.raised(table, key, txn.get(key, db=db), value)
            if raised is not None:
                txn.put(key, raised, db=db)
        else:
            _sweep(txn, db, key)


def _sweep(txn: _Txn, db: lmdb._Database, prefix: bytes) -> None:
    with txn.cursor(db) as cursor:
        found = cursor.set_range(prefix)
        while found and cursor.key().startswith(prefix):
            found = cursor.delete()
