"""Looking at a store on disk that another process may be writing to."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import lmdb

from actorproc.errors import EngineError, StorageUnavailable, StoreDamaged
from actorproc.model.reports import BackupReport
from actorproc.store.directory import DATA_FILE, LOCK_FILE, OWNER_FILE, check_directory
from actorproc.store.lmdb.environment import ReadSnapshot, open_databases, open_environment, refuse_fork, translated
from actorproc.store.lmdb.files.meta_pages import check_data_file
from actorproc.store.lmdb.files.open_here import OpenHere
from actorproc.store.lmdb.log.folded import FoldedSnapshot
from actorproc.store.lmdb.log.follower import Follower
from actorproc.store.lmdb.log.overlay import Layers
from actorproc.store.lmdb.log.place import LogPlace, open_place, place_in
from actorproc.store.lmdb.log.record import LogRow
from actorproc.store.lmdb.log.tail import read_tail
from actorproc.store.lmdb.open_store import OpenStore, RecordsBehind
from actorproc.store.lmdb.owner_lock import Owner, examine_for_reader, owner_facts, owner_of, refuse_redo
from actorproc.store.lmdb.transaction import LOGGED, Txn, check_format, check_made, number_in
from actorproc.store.lmdb.upkeep.compaction import files_of, wait_for_a_swap
from actorproc.store.rows import codec
from actorproc.store.rows.layout import EPOCH, FORMAT_KEY
from actorproc.store.rows.tables import Table
from actorproc.store.verify.cross_check import cross_check

__all__ = ["LmdbReader", "here"]

_TRIES = 100
"""Times that a view is opened again because a checkpoint was written meanwhile."""
_PROC = Path("/proc/self")


class LmdbReader(OpenStore):
    """The reading methods of a store, for other processes than its owner's. A context manager.

    Takes no owner lock. In the owner's own process it looks through the owner's environment, and a second reader in a
    process through the first one's. Raises `EngineError` when there is no store. `even_damaged`: also when rows are not
    where they belong, for who is out to find that.
    """

    def __init__(
        self, path: str | os.PathLike[str], *, allow_any_filesystem: bool = False, even_damaged: bool = False
    ) -> None:
        super().__init__(path)
        self._even_damaged = even_damaged
        self._files: tuple[int, ...] = ()
        self._closed = False
        self._first: LmdbReader | None = None
        self._follower = Follower(self.path)
        self._log_database: lmdb._Database | None = None
        check_directory(self.path, allow_any_filesystem=allow_any_filesystem)
        if not (self.path / DATA_FILE).exists():
            raise EngineError(f"there is no store at {self.path}: no {DATA_FILE} in it")
        here.add_reader(self)
        self._open()

    def _view(self) -> ReadSnapshot:
        other = self._other()
        if other is not None:
            try:
                return other._view()
            except EngineError:
                if self._other() is other:
                    raise
        if self._files != files_of(self.path) and not self._closed:
            self._open_again()
            if self._env is None:  # another one here has opened it meanwhile
                return self._view()
        return super()._view()

    def backup(self, path: str | os.PathLike[str]) -> BackupReport:
        other = self._other()
        if other is not None:
            return other.backup(path)
        return super().backup(path)

    def _known_records(self) -> RecordsBehind:
        with self._view():  # reads the log up to now
            number, records = self._follower.records()  # kept, as other views may come to a later place meanwhile

        def behind(place: LogPlace) -> list[list[LogRow]]:
            return [rows for one, rows in records if one > place.place] if place.number == number else []

        return behind

    def _folded(self, env: lmdb.Environment, leave: Callable[[], None]) -> ReadSnapshot:
        for _ in range(_TRIES):
            txn = env.begin()
            try:
                if not self._has_log(txn):
                    return ReadSnapshot(txn, self._databases, leave, self.path)
                layers = self._layers_over(env, txn) if self._log_database is not None else None
                if layers is not None:
                    return FoldedSnapshot(txn, self._databases, leave, self.path, layers)
            except BaseException:
                txn.abort()
                raise
            txn.abort()
            if self._log_database is None:  # the first owner that has a log came after this was opened
                self._log_database = open_place(env, None, create=False)
        raise StorageUnavailable(f"the owner of {self.path} writes too fast to be followed; try again")

    def _layers_over(self, env: lmdb.Environment, txn: Txn) -> Layers | None:
        """The layers of a snapshot; None: a checkpoint was written meanwhile, and records behind it may be gone."""
        try:
            layers = self._follower.layers(place_in(txn, self._log_database))
        except StoreDamaged:
            if _newest(env) == txn.id():
                raise
            return None
        return layers if _newest(env) == txn.id() else None

    def _has_log(self, txn: Txn) -> bool:
        value = txn.get(FORMAT_KEY, db=self._databases[Table.META])
        return value is not None and bool(codec.decode(Table.META, FORMAT_KEY, value) == LOGGED)

    def _other(self) -> OpenStore | None:
        """Through whom this one reads: the owner in this process, or a reader that was here first."""
        if self._closed:
            return None
        first = self._first
        return here.owner_of(self.path) or (first if first is not None and not first._closed else None)

    def step_aside(self, owner: OpenStore) -> None:
        """Close what is open here, for an owner in the same process, if it is the same store."""
        if here.owner_of(self.path) is owner:
            with self._copying:
                self._close_environment()
                self._follower.close()
                self._files = ()

    def _open_again(self) -> None:
        """The owner has compacted the store: the files that are open here are no more."""
        refuse_fork(self.path, self._pid)
        with self._copying, self._gate.alone():
            if self._files != files_of(self.path) and not self._closed:
                if self._env is not None:
                    self._env.close()
                self._follower.close()
                self._open()

    def _open(self) -> None:
        with here.lock:
            self._env = None
            self._files = ()
            self._first = here.open_reader(self.path)
            if self._first is None and here.owner_of(self.path) is None:
                self._open_own()

    def _open_own(self) -> None:
        wait_for_a_swap(self.path)
        check_data_file(self.path)
        all_looked_at = examine_for_reader(self.path)
        # The owner of a store makes the table of readers: without it there is no writer, and it is not ours to make.
        has_lock = (self.path / LOCK_FILE).exists()
        env = open_environment(self.path, map_size=0, readonly=True, lock=has_lock)
        try:
            with env.begin() as txn:
                check_made(txn, self.path)
                has_log = check_format(env, txn, self.path)
            self._databases = open_databases(env, None, create=False)
            self._log_database = open_place(env, None, create=False)
            if owner_of(self.path / OWNER_FILE) is None:
                self._check_log(env) if has_log else self._check_redo(env)
            if all_looked_at and not self._even_damaged:
                with self._folded(env, lambda: None) as rows:
                    cross_check(rows).raise_unseen(self.path)
        except lmdb.Error as error:
            env.close()
            raise translated(error, f"reading the store {self.path}") from error
        except BaseException:
            env.close()
            raise
        self._env = env
        self._files = files_of(self.path)

    def _check_log(self, env: lmdb.Environment) -> None:
        """Look at the whole log of an owner that was killed, also behind its end. Raises `StoreDamaged`."""
        with env.begin() as txn:
            place = place_in(txn, self._log_database)
        try:
            read_tail(self.path, place)
        except StoreDamaged:
            if owner_of(self.path / OWNER_FILE) is None:
                raise

    def _check_redo(self, env: lmdb.Environment) -> None:
        """Refuse what an earlier version left when the power failed. Raises `StoreFormat`."""
        with env.begin() as txn:
            place, newest = place_in(txn, self._log_database), int(txn.id())
            if self._even_damaged or place.epoch == number_in(txn, self._databases, EPOCH):
                return
        refuse_redo(self.path, owner_facts(self.path), newest)

    def rows(self) -> ReadSnapshot:
        """All rows as of the last commit, undecoded; a context manager, to be left soon."""
        return self._view()

    def facts(self) -> dict[str, Any]:
        """Sizes, what was enqueued, and use of the table of readers, for a diagnosis."""
        env = (self._other() or self)._opened()
        info = env.info()
        size = self.size()
        # Lines of "pid thread transaction"; our own is none that counts.
        words = [line.split() for line in env.readers().splitlines()]
        readers = [word[0] for word in words if word and word[0].isdigit() and int(word[0]) != os.getpid()]
        return {
            "map_size": info["map_size"],
            "readers": len(readers),
            "max_readers": info["max_readers"],
            "stale_readers": sum(not Path(f"/proc/{pid}").exists() for pid in readers) if _PROC.exists() else 0,
            "file_bytes": size.file,
            "used_bytes": size.used,
            "procedures": size.procedures,
            "steps": size.steps,
        } | self.enqueued_facts()

    def is_open(self) -> bool:
        """It has an environment of its own."""
        return self._env is not None and not self._closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def owner(self) -> Owner | None:
        """The process whose manager has the store open; None: there is none, or a command that is done in a moment."""
        found = owner_of(self.path / OWNER_FILE)
        return found if found is not None and found.role == "manager" else None

    def close(self) -> None:
        """Stop reading. Idempotent."""
        self._closed = True
        if os.getpid() == self._pid:
            self._close_environment()
            self._follower.close()


here: OpenHere[OpenStore, LmdbReader] = OpenHere()
"""The stores that are open in this process."""


def _newest(env: lmdb.Environment) -> int:
    """The number of the last transaction that readers are given."""
    with env.begin() as txn:
        return int(txn.id())
