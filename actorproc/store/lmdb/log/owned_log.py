"""The log of a store that is owned: what is appended, shown over the data file, and written to it by checkpoints."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

import lmdb

from actorproc.errors import ActorprocError, Deposed, StorageUnavailable
from actorproc.store.lmdb.environment import Databases
from actorproc.store.lmdb.log.checkpointer import Checkpointer
from actorproc.store.lmdb.log.commit_log import CommitLog, remove_logs
from actorproc.store.lmdb.log.overlay import Layer, Layers, Overlay
from actorproc.store.lmdb.log.place import LogPlace, open_place, place_in, put_place
from actorproc.store.lmdb.log.record import LogRecord, LogRow
from actorproc.store.lmdb.log.tail import read_tail, tail_in
from actorproc.store.lmdb.transaction import Txn, apply_rows, put_rows
from actorproc.store.rows.tables import Table

__all__ = ["OwnedLog"]

_MANY = 40_000
"""Changes of rows after which a checkpoint begins at once."""
_FULL = 4 << 20
"""Bytes in a file of the log after which one does."""
_AT_ONCE = 4096
"""Writes from which on a commit goes into the data file itself."""
_LONG = 1 << 20
"""Bytes of a record from which on it does."""


class OwnedLog:
    """Log, overlay and checkpoints of one owned store.

    ``transact`` runs work in a write transaction of the store.
    """

    def __init__(self, directory: Path, transact: Callable[[Callable[[Txn], None]], None], *, sync: bool) -> None:
        self._directory = directory
        self._transact = transact
        self._sync = sync
        self.writing = threading.RLock()
        """Held by whatever writes the data file."""
        self._appending = threading.Lock()
        self._overlay = Overlay()
        self._log: CommitLog | None = None
        self._next: CommitLog | None = None
        self._failed: ActorprocError | None = None
        self._checkpointer = Checkpointer(self._in_background)
        self._database: lmdb._Database | None = None
        self._databases: Databases = {}

    # Opening and closing

    def make_again(self, env: lmdb.Environment, txn: Txn, databases: Databases, *, has_log: bool) -> LogPlace:
        """In the first transaction: make the commits again that are in the log alone.

        Args:
            env: The environment.
            txn: The transaction.
            databases: Its databases.
            has_log: The store was not closed in good order.

        Returns:
            The place behind them.

        Raises:
            StoreDamaged: The log cannot be trusted.
            OSError: A file cannot be read.
        """
        self._database, self._databases = open_place(env, txn, create=True), databases
        place = place_in(txn, self._database)
        for record in self._records(place) if has_log else ():
            apply_rows(txn, databases, record.rows())
            place = place._replace(place=record.place)
        return place

    def begin(self, txn: Txn, before: LogPlace, epoch: int) -> None:
        """In the same transaction: begin a new log for an owner. Raises `OSError`."""
        if self._next is not None:
            self._next.close()
        number = max(before.number, self._log.place.number if self._log is not None else 0) + 1
        self._next = CommitLog(self._directory, LogPlace(epoch, number, before.place), sync=self._sync)
        put_place(txn, self._database, self._next.place)

    def _records(self, place: LogPlace) -> list[LogRecord]:
        """The records behind a place, from files that are open, or from those of an owner before."""
        for log in (self._log, self._next):
            if log is not None and log.place.number == place.number:
                return tail_in(log.opened(), place)
        return read_tail(self._directory, place, forbid=True)

    def begun(self) -> None:
        """The transaction of `begin` is on the disk. Raises `OSError`."""
        if self._log is not None:
            self._log.close()
        self._log, self._next = self._next, None
        self._failed = None
        self._overlay.clear()
        remove_logs(self._directory, but=self._log.place.number if self._log is not None else None)

    def end(self, work: Callable[[Txn], None]) -> None:
        """Write all that there is to the data file, together with some ``work`` in the same transaction."""
        self._checkpointer.stop()
        with self.writing:
            self._refuse_failed()
            self._write_active(work)

    def stop(self) -> None:
        """No checkpoint is written any more, until the next commit."""
        self._checkpointer.stop()

    def close(self) -> None:
        """Close the files. Idempotent."""
        self._checkpointer.stop()
        for log in (self._log, self._next):
            if log is not None:
                log.close()
        self._log = self._next = None
        self._overlay.clear()

    # Commits

    def append(self, rows: Sequence[LogRow], shown: Sequence[LogRow], batch: int) -> bool:
        """Put a commit into the log, and show it to readers. False: it is too long for that, and nothing was done.

        Args:
            rows: The rows to store.
            shown: The same, and the row of the number of the batch.
            batch: That number.

        Raises:
            StorageUnavailable: It may be on the disk, or not.
            Deposed: Another owner has the store.
        """
        self._refuse_failed()
        log = self._opened()
        with self._appending:
            record = log.encode(rows, batch)
            if len(record) > _LONG:
                return False
            full = log.make_room(record)
        if full is not None:
            self.checkpoint()
        with self._appending:
            if full is not None:
                record = log.encode(rows, batch)
                full = log.make_room(record)
            if full is not None:
                raise StorageUnavailable(
                    f"writing the log of {self._directory}: {full.strerror}; free some space or check the disk, "
                    "nothing acknowledged is lost"
                ) from full
            log.append(record)
            self._overlay.put(shown, log.place.place)
        self._checkpointer.tell(now=self._overlay.active.changes >= _MANY or log.size >= _FULL)
        return True

    @staticmethod
    def takes(writes: int) -> bool:
        """False for a commit of so many writes that it goes into the data file itself."""
        return writes < _AT_ONCE

    def write_through(self, work: Callable[[Txn], None]) -> None:
        """Run the ``work`` of a large commit on the data file, behind all that is in the log."""
        with self.writing:
            self._refuse_failed()
            self._write_active(work)

    def _write_active(self, work: Callable[[Txn], None]) -> None:
        """Write the active layer and something behind it. No commit may be under way in another thread."""
        log = self._opened()
        layer = self._overlay.active

        def both(txn: Txn) -> None:
            self._write(txn, layer, log.place)
            work(txn)

        try:
            self._transact(both)
        except (StorageUnavailable, Deposed) as error:
            self._failed = error
            raise
        self._overlay.clear()
        log.turn()

    # Checkpoints

    def checkpoint(self) -> None:
        """Write what is in the log to the data file; from any thread. Raises what the data file raises."""
        with self.writing:
            self._refuse_failed()
            log = self._opened()
            with self._appending:
                if not self._overlay.active.changes:
                    return
                layer, place = self._overlay.freeze(), log.place
                log.turn()
            try:
                self._transact(lambda txn: self._write(txn, layer, place))
            except ActorprocError as error:
                self._failed = error
                raise
            except BaseException:
                self._failed = StorageUnavailable("a checkpoint was interrupted; the store is opened again")
                raise
            self._overlay.thaw()

    def _write(self, txn: Txn, layer: Layer, place: LogPlace) -> None:
        if place_in(txn, self._database).number != place.number:
            raise Deposed(f"a newer owner has taken the store {self._directory} over; nothing more is written to it")
        for table in Table:
            put_rows(txn, self._databases[table], layer.tables[table])
        put_place(txn, self._database, place)

    def _in_background(self) -> None:
        with contextlib.suppress(ActorprocError):  # the next commit is told
            self.checkpoint()

    def _refuse_failed(self) -> None:
        if self._failed is not None:
            raise self._failed

    # Reading

    def layers(self) -> tuple[Layers, int]:
        """The layers of a view whose snapshot of the data file is opened after this, and the number of the log."""
        return self._overlay.layers(), self._log.place.number if self._log is not None else 0

    def over(self, txn: Txn, layers: Layers, number: int) -> None:
        """Leave out of these layers what a snapshot of the data file has."""
        if layers.found:
            place = place_in(txn, self._database)
            layers.leave_out(place.place if place.number == number else None)

    def _opened(self) -> CommitLog:
        if self._log is None:
            raise StorageUnavailable(f"the log of {self._directory} is not open; try again")
        return self._log
