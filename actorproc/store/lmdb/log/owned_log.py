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

    ``transact`` runs work in a write transaction of the store. ``reserve`` has so many bytes ready in the data file for
    what is in the log alone, or says that there are none.
    """

    def __init__(
        self,
        directory: Path,
        transact: Callable[[Callable[[Txn], None]], None],
        reserve: Callable[[int], bool],
        *,
        sync: bool,
    ) -> None:
        self._directory = directory
        self._transact = transact
        self._reserve = reserve
        self.has_room = True
        """The data file has room for what the log can take. While it has none, commits go into it themselves."""
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

    def tail(self, env: lmdb.Environment, txn: Txn, databases: Databases) -> tuple[LogPlace, list[LogRow]]:
        """The last form of all rows that are in the log alone, in order of keys, and the place behind them.

        Raises what `make_again` raises.
        """
        self._database, self._databases = open_place(env, txn, create=True), databases
        place = place_in(txn, self._database)
        rows: dict[tuple[Table, bytes], bytes | None] = {}
        for record in self._records(place):
            rows |= {(table, key): value for table, key, value in record.rows()}
            place = place._replace(place=record.place)
        return place, [(*row, rows[row]) for row in sorted(rows)]

    def put_some(self, txn: Txn, rows: Sequence[LogRow], place: LogPlace) -> None:
        """Put some of these rows into the data file."""
        self._check_number(txn, place)
        apply_rows(txn, self._databases, rows)

    def put_last(self, txn: Txn, place: LogPlace) -> None:
        """Say that these were all."""
        self._check_number(txn, place)
        put_place(txn, self._database, place)

    def remove(self) -> None:
        """Remove the files: all that is in them is in the data file. Raises `OSError`."""
        for log in (self._log, self._next):
            if log is not None:
                log.close()
        self._log = self._next = None
        remove_logs(self._directory)

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
        """The transaction of `begin` is on the disk."""
        if self._log is not None:
            self._log.close()
        self._log, self._next = self._next, None
        self._failed = None
        self._overlay.clear()
        with contextlib.suppress(OSError):  # they are of no use to any, and the next owner removes them
            remove_logs(self._directory, but=self._opened().place.number)

    def end(self, work: Callable[[Txn], None]) -> None:
        """Write all that there is to the data file, together with some ``work`` in the same transaction."""
        self.stop()
        with self.writing:
            self._refuse_failed()
            self._write_active(work)

    def stop(self) -> None:
        """No checkpoint is written any more, until the next commit. Raises `StorageUnavailable` while one hangs."""
        if not self._checkpointer.stop():
            raise StorageUnavailable(f"writing {self._directory}: the disk does not answer; check it")

    def close(self) -> None:
        """Close the files. Idempotent."""
        while not self._checkpointer.stop():  # the environment must not be closed under it
            pass
        for log in (self._log, self._next):
            if log is not None:
                log.close()
        self._log = self._next = None
        self._overlay.clear()

    @property
    def room(self) -> int:
        """Bytes of both files."""
        return self._log.room if self._log is not None else 0

    # Commits

    def append(self, rows: Sequence[LogRow], shown: Sequence[LogRow], batch: int) -> bool:
        """Put a commit into the log, and show it to readers. False: it has no room there, and nothing was done.

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
            growth = log.growth(record)
        if len(record) > _LONG or not self.has_room or (growth and not self._reserve_for(growth)):
            return False
        with self._appending:
            if growth:  # a checkpoint may have begun meanwhile, and this be another file
                record = log.encode(rows, batch)
            if log.growth(record) > growth or not log.make_room(record):
                return False
            try:
                log.append(record)
                self._overlay.put(shown, log.place.place)
            except BaseException as error:
                self._fail(error)
                raise
        self._checkpointer.tell(now=self._overlay.active.changes >= _MANY or log.size >= _FULL)
        return True

    def _reserve_for(self, growth: int) -> bool:
        with self.writing:
            self.has_room = self._reserve(self.room + growth)
        return self.has_room

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
            self._overlay.clear()
            log.turn()
        except (StorageUnavailable, Deposed) as error:
            self._fail(error)
            raise
        except ActorprocError:
            raise  # of the work: it has changed nothing
        except BaseException as error:
            self._fail(error)
            raise

    # Checkpoints

    def checkpoint(self) -> None:
        """Write what is in the log to the data file; from any thread. Raises what the data file raises."""
        with self.writing:
            self._refuse_failed()
            log = self._opened()
            try:
                with self._appending:
                    if not self._overlay.active.changes:
                        return
                    layer, place = self._overlay.freeze(), log.place
                    log.turn()
                self._transact(lambda txn: self._write(txn, layer, place))
                self._overlay.thaw()
            except BaseException as error:
                self._fail(error)
                raise

    def _write(self, txn: Txn, layer: Layer, place: LogPlace) -> None:
        self._check_number(txn, place)
        for table in Table:
            put_rows(txn, self._databases[table], layer.tables[table])
        put_place(txn, self._database, place)

    def _check_number(self, txn: Txn, place: LogPlace) -> None:
        if place_in(txn, self._database).number != place.number:
            raise Deposed(f"a newer owner has taken the store {self._directory} over; nothing more is written to it")

    def _in_background(self) -> None:
        with contextlib.suppress(ActorprocError):  # the next commit is told
            self.checkpoint()

    def _fail(self, error: BaseException) -> None:
        """Something is done half, by whatever it was ended: nothing goes on before the store is opened again."""
        if isinstance(error, StorageUnavailable | Deposed):
            self._failed = error
        else:
            self._failed = StorageUnavailable(f"writing {self._directory} was interrupted; it is opened again")

    def _refuse_failed(self) -> None:
        if self._failed is not None:
            raise self._failed

    # Reading

    def layers(self) -> tuple[Layers, int]:
        """The layers of a view whose snapshot of the data file is opened after this, and the number of the log."""
        number = self._log.place.number if self._log is not None else 0
        return self._overlay.layers(), number

    def over(self, txn: Txn, layers: Layers, number: int) -> Layers:
        """These layers, but for those that a snapshot of the data file has; none where it has later commits as well."""
        if layers.found:
            place = place_in(txn, self._database)
            if place.number != number or not layers.leave_out(place.place):
                return Layers(())
        return layers

    def _opened(self) -> CommitLog:
        if self._log is None:
            raise StorageUnavailable(f"the log of {self._directory} is not open; try again")
        return self._log
