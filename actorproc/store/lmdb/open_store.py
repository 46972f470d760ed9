"""Base of a store's owner and of a mere reader: snapshots of an open environment."""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import lmdb

from actorproc.errors import EngineError, StorageUnavailable
from actorproc.model.reports import BackupReport, StoreSize
from actorproc.store.directory import DATA_FILE, LOCK_FILE, refuse_url
from actorproc.store.lmdb.environment import Databases, ReadSnapshot, refuse_fork, translated
from actorproc.store.lmdb.files.blobs import names_in, size_of_blobs
from actorproc.store.lmdb.files.reader_table import part_from_table_of_readers
from actorproc.store.lmdb.log.place import LogPlace
from actorproc.store.lmdb.log.record import LogRow
from actorproc.store.lmdb.log.segment import size_of_logs
from actorproc.store.lmdb.map_gate import MapGate
from actorproc.store.lmdb.transaction import Txn, read_meta
from actorproc.store.lmdb.upkeep.backup import back_up
from actorproc.store.rows.layout import STORE_ID
from actorproc.store.rows.reading import RecordReader
from actorproc.store.rows.tables import Table

__all__ = ["OpenStore", "RecordsBehind", "leave_inherited"]

RecordsBehind = Callable[[LogPlace], list[list[LogRow]]]
"""Gives the rows of the commits behind a place, by commit."""

_PATIENCE = 2.0
"""Seconds to wait for a place among the readers, each of whom has one for a moment: who waits may be the manager."""
_PAUSE = 0.002


_made: weakref.WeakSet[OpenStore] = weakref.WeakSet()


class OpenStore(RecordReader):
    """Base of the owner and of a mere reader: snapshots of an open environment."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path).absolute()
        self._gate = MapGate()
        self._pid = os.getpid()
        self._env: lmdb.Environment | None = None
        self._databases: Databases = {}
        self._copying = threading.Lock()
        """Held while the data file is copied, for a backup or to be compacted."""
        self._writing = threading.Lock()
        """Held by a write transaction, and for the moment of a fork."""
        _made.add(self)

    def _view(self) -> ReadSnapshot:
        refuse_fork(self.path, self._pid)
        began: float | None = None
        while True:
            inside = self._gate.enter()
            try:
                env = self._opened()
                return self._folded(env, inside.leave)
            except lmdb.MapResizedError:
                inside.leave()
                with self._gate.alone():
                    env.set_mapsize(0)  # adopt the size to which the owner has grown it
            except lmdb.ReadersFullError as error:
                inside.leave()
                began = time.monotonic() if began is None else began
                if not env.reader_check() and time.monotonic() - began >= _PATIENCE:
                    raise translated(error, f"reading the store {self.path}") from error
                time.sleep(_PAUSE)
            except lmdb.Error as error:
                inside.leave()
                raise translated(error, f"reading the store {self.path}") from error
            except BaseException:
                inside.leave()
                raise

    def _folded(self, env: lmdb.Environment, leave: Callable[[], None]) -> ReadSnapshot:
        """A snapshot of the data file, with what is in the log alone."""
        raise NotImplementedError

    def size(self) -> StoreSize:
        """Size of the files, and of their used part."""
        with self._view() as rows:
            counted = StoreSize(
                0,
                rows.used_bytes(),
                rows.count(Table.PROCEDURES),
                rows.count(Table.STEPS),
                rows.count(Table.FINISHED),
            )
        try:
            blobs = size_of_blobs(self.path)
            file = (self.path / DATA_FILE).stat().st_size + blobs + size_of_logs(self.path)
            return replace(counted, file=file, used=counted.used + blobs)
        except OSError as error:
            raise StorageUnavailable(f"cannot look at {self.path / DATA_FILE}: {error.strerror}") from error

    def _opened(self) -> lmdb.Environment:
        if self._env is None:
            raise self._not_open()
        return self._env

    def _not_open(self) -> EngineError:
        return EngineError(f"the store {self.path} is not open")

    def _close_environment(self) -> None:
        if self._env is not None and self._pid == os.getpid():
            with self._gate.alone():
                self._env.close()
                self._env = None

    def _leave_inherited(self) -> None:
        """In a forked copy: close what the parent has open."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def backup(self, path: str | os.PathLike[str]) -> BackupReport:
        """Copy the last commit into a new directory, a store of its own. See `ProcedureStore.backup`.

        One copy is made at a time. Only a map that must grow, and a commit that fails, wait for the copy.
        """
        refuse_url(path, "a backup is a directory of this machine")
        refuse_fork(self.path, self._pid)
        records_behind = self._known_records()
        with self._copying:
            inside = self._gate.enter()
            try:
                return back_up(
                    self._opened(),
                    self.path,
                    Path(path).absolute(),
                    source_id=self._source_id,
                    records_behind=records_behind,
                    still_named=self._named_blobs,
                )
            finally:
                inside.leave()

    def _known_records(self) -> RecordsBehind:
        """Giver of the rows of the commits that a later copy of the data file lacks, by its place."""
        return lambda _: []

    def _named_blobs(self) -> set[str]:
        with self._view() as rows:
            return names_in(rows.scan(Table.STEPS))

    def _source_id(self, databases: Databases, txn: Txn) -> str:
        return str(read_meta(txn, databases, STORE_ID))


def leave_inherited(path: Path) -> None:
    """In a forked copy: close what the parent has open of this store, without a trace in the parent.

    Where the system does not let it, all stays as it is: then the copy cannot open the store.
    """
    left = [store for store in list(_made) if store._env is not None and store._pid != os.getpid()]
    left = [store for store in left if store.path == path]
    if left:
        with contextlib.suppress(OSError):
            part_from_table_of_readers(path / LOCK_FILE)
            for store in left:
                store._leave_inherited()


_held = threading.local()


def _hold_writers() -> None:
    """Let write transactions end: the copy could close no environment that has one, as its thread is not there."""
    open_here = [store._writing for store in list(_made) if store._env is not None and store._pid == os.getpid()]
    _held.locks = [lock for lock in open_here if lock.acquire(timeout=_PATIENCE)]


def _release_writers() -> None:
    for lock in _held.__dict__.pop("locks", ()):
        lock.release()


def _keep_in_a_forked_child() -> None:
    """Never let go of inherited environments by chance: LMDB would free the parent's places among the readers."""
    import ctypes  # noqa: PLC0415 - for programs that fork alone

    for store in list(_made):
        if store._env is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(store._env))


os.register_at_fork(after_in_child=_keep_in_a_forked_child)
os.register_at_fork(before=_hold_writers, after_in_parent=_release_writers, after_in_child=_release_writers)
