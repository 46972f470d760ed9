"""The store on disk: commits are appended to a log, and written to one LMDB environment by checkpoints.

A large commit goes into the environment at once, together with all that is in the log alone.

`LmdbStore` is the owner's: it writes. `LmdbReader` (`reader`) looks at a store that another process may be writing
to.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from typing import TypeVar

import lmdb

from actorproc.errors import (
    ActorprocError,
    Deposed,
    EngineError,
    NotAllowed,
    StorageUnavailable,
    StoreFormat,
    StoreInUse,
)
from actorproc.model.ids import new_id
from actorproc.model.reports import BackupReport, CompactionReport
from actorproc.model.rows.snapshot import RecoverySnapshot
from actorproc.model.rows.writes import Write
from actorproc.store.directory import DATA_FILE, OWNER_FILE, make_directory, refuse_url, sync_names
from actorproc.store.lmdb.environment import (
    ReadSnapshot,
    open_databases,
    open_environment,
    refuse_fork,
    translated,
)
from actorproc.store.lmdb.files.blobs import BlobFiles
from actorproc.store.lmdb.files.data_file import DataFile
from actorproc.store.lmdb.files.meta_pages import check_data_file
from actorproc.store.lmdb.log.commit_log import refuse_lone_logs, remove_logs
from actorproc.store.lmdb.log.folded import FoldedSnapshot
from actorproc.store.lmdb.log.owned_log import OwnedLog
from actorproc.store.lmdb.log.parts import in_parts, is_full
from actorproc.store.lmdb.log.place import LogPlace
from actorproc.store.lmdb.log.record import LogRow
from actorproc.store.lmdb.log.resolved import resolved
from actorproc.store.lmdb.open_store import OpenStore
from actorproc.store.lmdb.owner_lock import OwnerLock, refuse_redo
from actorproc.store.lmdb.page_check import examined, seal_of
from actorproc.store.lmdb.reader import LmdbReader, here
from actorproc.store.lmdb.transaction import LOGGED, Txn, apply_rows, check_format, number_in, read_meta
from actorproc.store.lmdb.upkeep.compaction import (
    WORTH_WHILE,
    Stopwatch,
    copy_compact,
    drop_leftovers,
    put_in_place,
    unmark,
)
from actorproc.store.reading import Durability, OwnerRole
from actorproc.store.rows import codec
from actorproc.store.rows.layout import (
    BATCH,
    EPOCH,
    FORMAT,
    FORMAT_KEY,
    LAST_BATCH,
    MOVED_TO,
    STORE_ID,
    PutOutside,
    Row,
    rows_of,
)
from actorproc.store.rows.reading import refuse_moved
from actorproc.store.rows.tables import Table
from actorproc.store.verify.cross_check import Findings, cross_check

__all__ = ["LmdbReader", "LmdbStore"]

_LOOK_EVERY = 10.0
"""Seconds from one search for dead readers to the next; it costs a system call for each process that reads."""

_PART = 256
"""Writes whose rows are made at once. With more, Python's own stock of free tuples runs out, and each new tuple brings
its next search for cycles nearer."""

_T = TypeVar("_T")


class LmdbStore(OpenStore):
    """`ProcedureStore` in a directory of the local file system.

    `durability` "power": every commit is on the disk before it returns. "process": it survives any kill of
    this process, but a power cut may lose the last commits or, on a disk that reorders writes, the store.
    `map_size` is the address space reserved at first, in bytes; it grows by itself and costs no disk.
    `allow_any_filesystem` opens a store on a remote file system, for which nothing is promised. `role` "command": it
    is owned for a moment only, and another owner waits for that moment to pass.

    The constructor touches nothing; `own` opens.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        durability: Durability = "power",
        map_size: int = 16 << 30,
        allow_any_filesystem: bool = False,
        role: OwnerRole = "manager",
    ) -> None:
        if durability not in ("power", "process"):
            raise ValueError(f'durability is "power" or "process", not {durability!r}')
        super().__init__(path)
        self._sync = durability == "power"
        self._map_size = map_size
        self._allow_any_filesystem = allow_any_filesystem
        self._role = role
        self._file = DataFile(self.path)
        self._blobs = BlobFiles(self.path, sync=self._sync, check=self._file.check_in_place)
        self._log = OwnedLog(self.path, self._transact, self._reserve, sync=self._sync)
        self._lock: OwnerLock | None = None
        self._epoch = 0
        self._id = ""
        self._examined = False
        self._findings = Findings()
        self._look_at = 0.0
        """Monotonic time when readers that died are looked for."""
        self.takes_moved = False
        """It may be owned although it was moved."""
        self._sound = False
        """It was opened, and nothing has failed since."""

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
        self._lock = OwnerLock.acquire(self.path / OWNER_FILE, self._role)
        try:
            for reader in here.move_in(self.path, self):
                reader.step_aside(self)
            drop_leftovers(self.path)
            refuse_lone_logs(self.path)
            check_data_file(self.path)
            self._examined = examined(self.path, self._lock.last)
            self._env = self._open_environment(create=True)
            self._file.follow(self._env.stat()["psize"])
            self._epoch, self._id = self._first(self._claim)
            self._log.begun()
            self._drop_blobs()
            sync_names(self.path)
            self._env.reader_check()
            self._lock.vouch()
            self._sound = True
            refuse_moved(self, self.path)
        except lmdb.Error as error:
            self.close()
            raise translated(error, f"opening the store {self.path}") from error
        except OSError as error:
            self.close()
            raise StorageUnavailable(f"opening the store {self.path}: {error.strerror}; check the disk") from error
        except BaseException:
            self.close()
            raise
        return self._epoch

    def load(self, *, whole: bool = True) -> RecoverySnapshot:
        """As of every store; with what was found when the file was opened."""
        is_damaged = bool(self._findings.damage or self._findings.halted)
        return self._findings.tell(super().load(whole=whole or is_damaged))

    def commit(self, writes: Sequence[Write], epoch: int, batch: int = 0) -> None:
        """Apply all writes or none, if `epoch` is still the stored one. See `ProcedureStore.commit`."""
        self._opened()
        refuse_fork(self.path, self._pid)
        if epoch != self._epoch:
            raise self._fenced(epoch)
        changes = self._blobs.before(writes)
        if not self._log.takes(len(writes)) or not self._append(rows_of(changes), batch):
            self._log.write_through(lambda txn: self._write_large(txn, changes, batch))
        self._refuse_removed()
        self._drop_blobs()

    def _append(self, rows: Sequence[Row], batch: int) -> bool:
        """Put a commit into the log; False when it is too long for that."""
        self._forget_the_dead(self._opened())
        plain = resolved(rows, self._view)
        number: list[LogRow] = [(Table.META, BATCH, codec.encode(Table.META, BATCH, batch))] if batch else []
        try:
            return self._log.append(plain, plain + number, batch)
        except BaseException:
            self._sound = False
            raise

    def _write_large(self, txn: Txn, changes: Sequence[Write | PutOutside], batch: int) -> None:
        databases = self._databases
        # In parts: rows by the hundred thousand, all alive at once, keep the cycle collector busy.
        for start in range(0, len(changes), _PART):
            apply_rows(txn, databases, rows_of(changes[start : start + _PART]))
        apply_rows(txn, databases, rows_of((), batch))

    def _fenced(self, epoch: int) -> Deposed:
        self._sound = False  # nothing is vouched for that another one has written
        return Deposed(f"a newer owner has taken the store {self.path} over; epoch {epoch} is fenced off")

    def mark_moved(self, target: str | None) -> None:
        """Note where the store was moved to, so that no manager starts on it any more; None takes the note off."""
        value = None if target is None else codec.encode(Table.META, MOVED_TO, target)
        self._log.write_through(lambda txn: apply_rows(txn, self._databases, [(Table.META, MOVED_TO, value)]))
        self._wait_for_the_disk()

    def place_of(self, id: str, number: int) -> str | None:
        """The file that holds the long field of a record of the step log. See `RecordStore.place_of`."""
        return self._blobs.place_of(id, number)

    def _leave_inherited(self) -> None:
        super()._leave_inherited()
        self._file.close()

    def _folded(self, env: lmdb.Environment, leave: Callable[[], None]) -> ReadSnapshot:
        layers, number = self._log.layers()  # before the snapshot: a checkpoint may be written meanwhile
        txn = env.begin()
        try:
            layers = self._log.over(txn, layers, number)
        except BaseException:
            txn.abort()
            raise
        return FoldedSnapshot(txn, self._databases, leave, self.path, layers)

    def _drop_blobs(self) -> None:
        """Remove files that no row names, after a durable commit, unless a backup may still copy them."""
        self._blobs.after(is_copying=self._copying.locked())

    def _adopt_blobs(self, txn: Txn, *, is_start: bool) -> None:
        """Learn which files are of which rows."""
        db = self._databases[Table.STEPS]
        self._blobs.adopt(lambda key: txn.get(key, db=db), lambda: txn.cursor(db), is_start=is_start)

    def _refuse_removed(self) -> None:
        """Nothing is acknowledged that went into a file without a name."""
        try:
            self._file.check_not_removed()
        except StorageUnavailable:
            self._sound = False
            raise

    def reopen(self) -> None:
        """Close and open again after a failed commit, and prove that the disk takes commits: one, synced.

        A file that was removed stays open, as there is no other way to it, until there is one in its place.
        """
        refuse_fork(self.path, self._pid)
        if self._lock is None:
            raise self._not_open()
        try:
            self._log.stop()
            is_gone = not (self.path / DATA_FILE).exists()
            if is_gone and self._file.is_open():
                self._refuse_removed()
            self._close_environment()
            if is_gone:
                raise StorageUnavailable(f"{self.path / DATA_FILE} is gone; put it back, nothing else can be done")
            drop_leftovers(self.path)
        except OSError as error:  # a disk that answers nothing, no descriptor left: it may pass
            self._close_environment()
            msg = f"opening the store {self.path} again: {error.strerror}; check the disk"
            raise StorageUnavailable(msg) from error
        check_data_file(self.path)
        env = self._env = self._open_environment()
        try:
            self._file.follow(env.stat()["psize"])
            self._first(self._reclaim)
            self._log.begun()
            self._drop_blobs()
            self._sound = True
        except lmdb.Error as error:
            self._close_environment()
            raise translated(error, f"opening the store {self.path} again") from error
        except OSError as error:
            self._close_environment()
            raise StorageUnavailable(f"opening the store {self.path} again: {error.strerror}") from error
        except BaseException:
            self._close_environment()
            raise

    def compact(self) -> CompactionReport:
        """Give unused space back to the file system. See `ProcedureStore.compact`.

        Reading goes on while the copy is written, and waits for milliseconds while it takes its place.
        """
        refuse_fork(self.path, self._pid)
        self._opened()
        if not self._copying.acquire(blocking=False):
            raise NotAllowed(f"a backup of {self.path} is being made; compact it afterwards")
        self._log.writing.acquire()
        try:
            watch = Stopwatch()
            self._log.checkpoint()
            env = self._opened()
            self._file.check_in_place()
            before = (self.path / DATA_FILE).stat().st_size
            fresh = copy_compact(env, self._databases, self.path)
            if fresh.stat().st_size + WORTH_WHILE + self._file.spare(self._log.room) > before:
                fresh.unlink()
                return CompactionReport(before, before, watch.seconds)
            self._swap(env)
            return CompactionReport(before, (self.path / DATA_FILE).stat().st_size, watch.seconds)
        finally:
            self._log.writing.release()
            self._copying.release()

    def backup(self, path: str | os.PathLike[str]) -> BackupReport:
        """Copy the last commit into a new directory, a store of its own. See `ProcedureStore.backup`."""
        refuse_url(path, "a backup is a directory of this machine")
        refuse_fork(self.path, self._pid)
        self._log.checkpoint()
        return super().backup(path)

    def _swap(self, env: lmdb.Environment) -> None:
        """Go over to the compact copy. Should that fail half-way, the store is opened again as it is.

        Should that fail too, the next commit fails and `reopen` finishes it.
        """
        try:
            with self._gate.alone():
                env.close()
                self._env = None
                put_in_place(self.path)
                fresh = self._open_environment()
                self._databases = open_databases(fresh, None, create=False)
                self._env = fresh
            self._file.follow(fresh.stat()["psize"])
            self._transact(self._reclaim)
            self._log.begun()
            unmark(self.path)
            if self._lock is not None:
                self._lock.vouch()  # for this file; until now it was for the one before
        except lmdb.Error as error:
            self._open_as_it_is()
            raise translated(error, f"opening the compacted store {self.path}") from error
        except OSError as error:
            self._open_as_it_is()
            msg = f"compacting the store {self.path}: {error.strerror}; it is opened again"
            raise StorageUnavailable(msg) from error
        except ActorprocError:  # what the disk has of the first commit is not known
            self._open_as_it_is()
            raise

    def _open_as_it_is(self) -> None:
        """Open the file again after a compaction that failed, so that reads go on."""
        if self._env is not None:
            self._close_environment()
        with contextlib.suppress(ActorprocError):
            self.reopen()

    def _close_environment(self) -> None:
        super()._close_environment()
        self._file.close()

    def close(self) -> None:
        """Give the store up. Idempotent; in a forked child it leaves the environment alone."""
        if os.getpid() == self._pid:
            self._settle()
            self._close_environment()
            here.move_out(self.path, self)
        lock, self._lock = self._lock, None
        if lock is not None:
            sound, self._sound = self._sound and os.getpid() == self._pid, False
            lock.release(seal_of(self.path, lock.vouch, durable=self._sync) if sound else "")

    def _settle(self) -> None:
        """All is in the data file, and there is no log any more."""
        if self._env is not None and self._sound:
            try:
                self._file.check_in_place()
                self._log.end(lambda txn: self._put_format(txn, FORMAT))
                remove_logs(self.path)
            except (ActorprocError, OSError):
                self._sound = False  # the next owner finds it in the log
        self._log.close()

    def _put_format(self, txn: Txn, number: int) -> None:
        txn.put(FORMAT_KEY, codec.encode(Table.META, FORMAT_KEY, number), db=self._databases[Table.META])

    def _open_environment(self, *, create: bool = False) -> lmdb.Environment:
        return open_environment(self.path, map_size=self._map_size, create=create, sync=self._sync)

    def _not_open(self) -> EngineError:
        if self._lock is None:
            return EngineError(f"the store {self.path} is not open: own() it first")
        return StorageUnavailable(f"the store {self.path} is being opened again after a failure; try again")

    def _claim(self, txn: Txn) -> tuple[int, str]:
        """Check that this is our store and of our format, or make it; return the new epoch and the store's id."""
        env = self._opened()
        names = txn.stat()["entries"]
        has_log = names > 0 and check_format(env, txn, self.path)
        databases = self._databases = open_databases(env, txn, create=True)
        meta = databases[Table.META]
        self._file.begin(txn)
        place = self._log.make_again(env, txn, databases, has_log=has_log)
        if names and not has_log and self._lock is not None and place.epoch != number_in(txn, databases, EPOCH):
            refuse_redo(self.path, self._lock.last, txn.id() - 1)
        self._put_format(txn, LOGGED)
        self._adopt_blobs(txn, is_start=True)
        if names and self._examined:
            self._findings = cross_check(ReadSnapshot(txn, databases, lambda: None, self.path))
            self._findings.raise_lost(self.path)
            apply_rows(txn, databases, self._findings.mended)
            for table, entries in self._findings.rebuilt.items():
                txn.drop(databases[table], delete=False)
                for key in sorted(entries):
                    txn.put(key, entries[key], db=databases[table])
        if not names:
            for key, value in ((STORE_ID, new_id()), (EPOCH, 0)):
                txn.put(key, codec.encode(Table.META, key, value), db=meta)
        epoch = int(read_meta(txn, databases, EPOCH)) + 1
        self._log.begin(txn, place, epoch)
        txn.put(EPOCH, codec.encode(Table.META, EPOCH, epoch), db=meta)
        last = int(read_meta(txn, databases, BATCH)) if names else 0
        txn.put(LAST_BATCH, codec.encode(Table.META, LAST_BATCH, last), db=meta)
        txn.put(BATCH, codec.encode(Table.META, BATCH, 0), db=meta)
        return epoch, str(read_meta(txn, databases, STORE_ID))

    def _reclaim(self, txn: Txn) -> None:
        """Check that it is the same store, still ours, and write something, so that the commit is a real one."""
        env = self._opened()
        has_log = check_format(env, txn, self.path)
        databases = self._databases = open_databases(env, txn, create=False)
        found = str(read_meta(txn, databases, STORE_ID))
        if found != self._id:
            raise StoreFormat(f"the store {self.path} was replaced by another one while it was open (id {found})")
        epoch = int(read_meta(txn, databases, EPOCH))
        if epoch != self._epoch:
            self._sound = False
            raise Deposed(f"a newer owner (epoch {epoch}) has taken the store {self.path} over")
        self._file.begin(txn)
        place = self._log.make_again(env, txn, databases, has_log=has_log)
        self._put_format(txn, LOGGED)
        self._log.begin(txn, place, epoch)
        self._adopt_blobs(txn, is_start=False)
        txn.put(EPOCH, codec.encode(Table.META, EPOCH, epoch), db=databases[Table.META])

    def _first(self, claim: Callable[[Txn], _T]) -> _T:
        """Run the first transaction of an owner. A disk that is too full for it may have room for it in parts."""
        try:
            return self._transact(claim, waits=True)
        except StorageUnavailable as error:
            if not is_full(error):
                raise
        self._empty_log()
        return self._transact(claim, waits=True)

    def _empty_log(self) -> None:
        """Put what is in the log into the data file, in small transactions, and do without a log then."""
        env = self._opened()

        def find(txn: Txn) -> tuple[LogPlace, list[LogRow]] | None:
            if not txn.stat()["entries"]:
                return None  # the store is being made
            has_log = check_format(env, txn, self.path)
            self._databases = open_databases(env, txn, create=False)
            self._file.begin(txn)
            return self._log.tail(env, txn, self._databases) if has_log else None

        def end(txn: Txn) -> None:
            self._log.put_last(txn, place)
            self._put_format(txn, FORMAT)

        found = self._transact(find)
        if found is not None:
            place, rows = found
            in_parts(rows, lambda some: self._transact(lambda txn: self._log.put_some(txn, some, place)))
            self._transact(end, waits=True)
            self._log.remove()

    def _transact(self, work: Callable[[Txn], _T], *, waits: bool = False) -> _T:
        """Run `work` in one write transaction; the whole of it again in a map twice as large when the map is full.

        It is durable then, with durability "process" only if it `waits`.
        """
        refuse_fork(self.path, self._pid)
        with self._log.writing:
            while True:
                env = self._opened()
                try:
                    with self._writing:
                        txn = env.begin(write=True)
                        try:
                            result = work(txn)
                            txn.commit()
                            self._log.has_room = self._reserve(self._log.room)
                        except BaseException:
                            # In py-lmdb 3.0 an abort starves, for seconds, while other threads read without pause.
                            with self._gate.alone():
                                txn.abort()
                            raise
                    if waits:
                        self._wait_for_the_disk()
                    return result
                except lmdb.MapFullError:
                    self._grow(env)
                except lmdb.Error as error:
                    self._sound = False
                    raise translated(error, f"writing the store {self.path}") from error
                except OSError as error:
                    self._sound = False
                    raise StorageUnavailable(
                        f"writing the store {self.path}: {error.strerror}; check the disk"
                    ) from error

    def _reserve(self, log: int) -> bool:
        """Have room in the data file for so many bytes of log; False where the disk has none."""
        return self._file.keep_room(int(self._opened().info()["last_pgno"]), log)

    def _wait_for_the_disk(self) -> None:
        """A commit has waited for the disk, except with durability "process"."""
        if not self._sync:
            self._opened().sync(True)

    def _forget_the_dead(self, env: lmdb.Environment) -> None:
        """A process that was killed while it read would keep what it saw from being overwritten, and its place."""
        now = time.monotonic()
        if now >= self._look_at:
            self._look_at = now + _LOOK_EVERY
            with contextlib.suppress(lmdb.Error):  # nothing hangs on it
                env.reader_check()

    def _grow(self, env: lmdb.Environment) -> None:
        self._map_size = 2 * env.info()["map_size"]
        try:
            with self._gate.alone():
                env.set_mapsize(self._map_size)
        except lmdb.Error as error:
            raise translated(error, f"growing the map of {self.path} to {self._map_size} bytes") from error
