"""The store in a database: one transaction and one round trip per commit.

`DatabaseStore` is the owner's: it writes. `DatabaseReader` looks at a store that another process may be writing to.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable, Sequence

from actorproc.errors import (
    Deposed,
    EngineError,
    StorageUnavailable,
    StoreFormat,
    StoreInUse,
)
from actorproc.model.reports import CompactionReport
from actorproc.model.rows.writes import Write
from actorproc.store.postgres.committing import Batch, fence
from actorproc.store.postgres.connecting import HAS_TRANSACTION_TIMEOUT, connect, new_title
from actorproc.store.postgres.failures import DatabaseFailure, explained, unavailable
from actorproc.store.postgres.known_keys import KnownKeys
from actorproc.store.postgres.leading.leadership import LEASE, Leadership, Role
from actorproc.store.postgres.leading.owner_row import DoorRow
from actorproc.store.postgres.leading.takeover import end_own_session, is_in_the_way
from actorproc.store.postgres.open_store import OpenDatabase
from actorproc.store.postgres.place import DatabasePlace, place_of
from actorproc.store.postgres.schema.inbox import closed, is_closed, opened
from actorproc.store.postgres.schema.tables import check_format, one_row
from actorproc.store.postgres.sessions import Question, Session, Statement, array_of, numbered
from actorproc.store.reading import Durability
from actorproc.store.rows import codec
from actorproc.store.rows.layout import MOVED_TO, STORE_ID, meta_of, rows_of
from actorproc.store.rows.reading import refuse_moved
from actorproc.store.rows.tables import Table
from actorproc.support.clock import MeasuredClock
from actorproc.support.engine_log import engine_logger

__all__ = ["DatabaseStore"]

_log = engine_logger("actorproc.store")

_PART = 1024
"""Writes whose rows are made at once."""
_COMMIT_WITHIN = 60.0
"""Seconds for a commit, beyond those for its bytes."""
_SLOWEST = 256 * 1024
"""Bytes a second that a database takes at least."""
_TRIES = 4
"""Tries of a commit that other sessions get in the way of."""
_READ_WITHIN = 600.0
"""Seconds for one question of the owner; that of a start may read all that is unfinished."""
_SYNC = Statement(b"SELECT current_setting('fsync'), current_setting('synchronous_commit')", once=True)
_TIME = Statement(b"SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint", once=True)
_ALLOWED = "ACTORPROC_ALLOW_ANY_FILESYSTEM"


class DatabaseStore(OpenDatabase):
    """`ProcedureStore` in a PostgreSQL database.

    The constructor touches nothing; `own` connects.

    Args:
        url: The database, with ``?store=NAME`` for another schema than ``actorproc``; or its place.
        durability: "power": a commit is on the disk of the database before it returns; a database that does not sync
            is refused. "process": it survives any kill of this process, but a crash of the database may lose the last
            commits. Default: "power".
        role: "command" for an owner that is done in a moment. Default: "manager".
        allow_unsynced: Take a database that does not sync (``fsync=off``) with durability "power" too. Default: False.
        lease: Seconds after its last sign of life for which the owner is taken for alive. Default: `LEASE`.
        clock: Told the time of the database by each commit. Default: one of its own.
    """

    def __init__(
        self,
        url: str | DatabasePlace,
        *,
        durability: Durability = "power",
        role: Role = "manager",
        allow_unsynced: bool = False,
        lease: float = LEASE,
        clock: MeasuredClock | None = None,
    ) -> None:
        if durability not in ("power", "process"):
            raise ValueError(f'durability is "power" or "process", not {durability!r}')
        place = place_of(url) if isinstance(url, str) else url
        self._title = new_title(place, role)
        super().__init__(place, lambda: connect(place, "load", self._title), _READ_WITHIN)
        self._is_power = durability == "power"
        self._allow_unsynced = allow_unsynced or os.environ.get(_ALLOWED, "") not in {"", "0"}
        self.takes_moved = False
        """It may be owned although it was moved."""
        self.leadership = Leadership(place, self._title, role, lease=lease)
        """The lock and the lease; for the manager that leads with this store."""
        self.clock = clock if clock is not None else MeasuredClock()
        """The clock of the database, measured by each commit."""
        self._session: Session | None = None
        self._transaction_timeout = 0.0
        """Seconds that the server gives a transaction of this session; 0: any."""
        self._is_owned = False
        self._id = ""
        self._stored: dict[tuple[Table, bytes], bytes | None] = {}
        """Values of rows that are only raised, as they are stored."""
        self._acknowledged = 0
        """Number of the last commit that is known to be done."""
        self._told_lost = 0
        """Epoch whose loss was told."""
        self._lock = threading.Lock()

    def own(self) -> int:
        """Connect, make the tables where there are none, and raise the epoch durably. See `ProcedureStore.own`."""
        if self._is_owned:
            raise StoreInUse(f"this DatabaseStore of {self.place.words} is owned already; close it first", os.getpid())
        self._pid = os.getpid()
        self._pool.open()
        try:
            self.leadership.lock.take()
            self._session = self._connected()
            self._check_durability(self._session)
            epoch, self._id = self.leadership.claim(self._session)
            sent = time.monotonic()
            (answer,) = self._session.ask([(_TIME, ())], _COMMIT_WITHIN)
            self.clock.begin(numbered(answer.get_value(0, 0)) / 1e6, sent, time.monotonic())
        except DatabaseFailure as failure:
            self.close()
            raise explained(failure, f"opening the store {self.place.words}") from failure
        except BaseException:
            self.close()
            raise
        self._is_owned = True
        self._known = KnownKeys()
        self._acknowledged = 0
        self._stored = {}
        try:
            refuse_moved(self, self.place.words)
            if not self.takes_moved and is_closed(self._session, self.place):  # by a move that was killed
                self._change(opened(self.place))
        except BaseException:
            self.close()
            raise
        return epoch

    def mark_moved(self, target: str | None) -> None:
        """Note where the store was moved to, so that no manager starts on it any more; None takes the note off.

        With the note, applications cannot enqueue (`close_inbox`); they can when it is taken off.
        """
        own = self._statements.tables[Table.META]
        if target is None:
            self._change([(own.delete, (array_of([MOVED_TO]),)), *opened(self.place)])
        else:
            self._change([(own.put, one_row(MOVED_TO, codec.encode(Table.META, MOVED_TO, target)))])

    def close_inbox(self) -> None:
        """Let no application enqueue until `mark_moved` takes a note off, or the store is owned anew without one.

        Raises:
            StorageUnavailable: A transaction that has enqueued is not over.
        """
        try:
            self._change(closed(self.place))
        except StorageUnavailable as error:
            raise StorageUnavailable(
                f"{error}. A transaction that has enqueued into this store is under way, or prepared: try again when "
                "it is over"
            ) from error

    def _change(self, questions: Sequence[Question]) -> None:
        """Ask these, as the owner."""
        try:
            self._opened().ask([*questions, *fence(self._statements, self.leadership.epoch, 0, 0)], _COMMIT_WITHIN)
        except DatabaseFailure as failure:
            raise unavailable(failure, f"writing the store {self.place.words}") from failure

    def _connected(self) -> Session:
        settings = {} if self._is_power else {"synchronous_commit": "off"}
        self._transaction_timeout = 0.0
        # A session that holds a lock for longer is no commit of ours: see `Leadership.clear_the_way`.
        settings["lock_timeout"] = f"{int(self.leadership.lease * 1000 / 3)}ms"
        return connect(self.place, "commit", self._title, settings=settings)

    def _check_durability(self, session: Session) -> None:
        """Raise `EngineError` for a database that would lose commits in a power cut, if they are promised to stay."""
        if not self._is_power or self._allow_unsynced:
            return
        (answer,) = session.ask([(_SYNC, ())], _COMMIT_WITHIN)
        names = ("fsync", "synchronous_commit")
        off = [name for column, name in enumerate(names) if answer.get_value(0, column) == b"off"]
        if off:
            raise EngineError(
                f"the database of {self.place.words} has {off[0]}=off, so it would lose commits in a power cut: set "
                f'{off[0]}=on, or ask for less with durability="process"'
            )

    def commit(self, writes: Sequence[Write], epoch: int, batch: int = 0) -> None:
        """Apply all writes or none, if `epoch` is still the stored one. See `ProcedureStore.commit`."""
        self._refuse_fork()
        session = self._opened()
        gathered = Batch(self._raised)
        for start in range(0, len(writes), _PART):
            gathered.add(rows_of(writes[start : start + _PART]))
        questions = gathered.questions(self._statements)
        questions += fence(self._statements, epoch, batch, self._acknowledged)
        known = self._known or KnownKeys()
        known.begin(gathered)
        try:
            self.clock.measured(*self._write(session, questions, epoch))
        except DatabaseFailure as failure:
            self._stored = {}
            known.reset()
            session.close()
            raise unavailable(failure, f"writing the store {self.place.words}") from failure
        except BaseException:
            known.reset()
            raise
        known.done()
        self._stored.update(gathered.raised)
        if batch:
            self._acknowledged = batch

    def _write(self, session: Session, questions: Sequence[Question], epoch: int) -> tuple[float, float, float]:
        """Send a commit; again when sessions of older owners were in its way, which are ended then.

        Returns the time by the database, and the monotonic times around its answer. Raises `Deposed` when the epoch of
        the commit is not that of the store.
        """
        self._limit_transaction(session, questions)
        for left in range(_TRIES - 1, -1, -1):
            sent = self.leadership.writing_since = time.monotonic()
            try:
                answers = session.ask(questions, _patience_for(questions))
            except DatabaseFailure as failure:
                if failure.state == "23502" and failure.table == "batch":
                    raise self._fenced_off(session, epoch) from failure
                if session.is_broken or not left or not is_in_the_way(failure):
                    raise
                _log.warning("another session is in the way of a commit and is ended: %s", failure.text)
                try:
                    self.leadership.clear_the_way()
                except StoreInUse as other:
                    raise Deposed(str(other)) from other
            else:
                return numbered(answers[-1].get_value(0, 0)) / 1e6, sent, time.monotonic()
            finally:
                self.leadership.writing_since = 0.0
        raise AssertionError

    def _fenced_off(self, session: Session, epoch: int) -> Deposed:
        """The error of a commit whose epoch is not that of the row; one that the database lost is told."""
        stored = 0
        with contextlib.suppress(DatabaseFailure):
            (answer,) = session.ask([(self._statements.numbers, ())], _COMMIT_WITHIN)
            stored = numbered(answer.get_value(0, 0)) if answer.ntuples else 0
            self._tell_lost_epoch(stored)
        return Deposed(f"{self._taken_over(stored)}; epoch {epoch} is fenced off")

    def _limit_transaction(self, session: Session, questions: Sequence[Question]) -> None:
        """Have the server end a commit that was sent half (PostgreSQL 17 and later), by the time its size may take."""
        if session.version < HAS_TRANSACTION_TIMEOUT:
            return
        wanted = max(_patience_for(questions), self.leadership.lease)
        if wanted <= self._transaction_timeout:
            return
        self._transaction_timeout = wanted
        limit = Statement(f"SET transaction_timeout = {int(wanted * 1000)}".encode(), once=True)
        session.tell([(limit, ())], _COMMIT_WITHIN)

    def _raised(self, table: Table, key: bytes) -> bytes | None:
        if (table, key) not in self._stored:
            with self._view() as rows:
                self._stored[table, key] = rows.get(table, key)
        return self._stored[table, key]

    def reopen(self) -> None:
        """Connect anew after a failure, and prove that the database takes commits. See `ProcedureStore.reopen`."""
        self._refuse_fork()
        if not self._is_owned:
            raise self._not_open()
        self._pool.close(for_good=False)
        if self._session is not None:
            self._session.close()
        self._stored = {}
        try:
            self._open_again()
        except DatabaseFailure as failure:
            raise unavailable(failure, f"opening the store {self.place.words} again") from failure
        except Deposed:
            raise
        except StoreInUse as other:
            # The lock is another candidate's, which raises the epoch in a moment.
            raise Deposed(str(other)) from other

    def _open_again(self) -> None:
        old = self._session
        session = self._connected()
        try:
            if old is not None:  # before the look at what the database has of our commits
                end_own_session(session, old.pid, self._title)
            self._session = session
            self._check_store(session)
            self.leadership.check()
            epoch = self.leadership.epoch
            self.clock.measured(*self._write(session, fence(self._statements, epoch, 0, 0), epoch))
        except BaseException:
            session.close()
            raise

    def _check_store(self, session: Session) -> None:
        """Check that it is the same store and still ours, and what it has of our commits."""
        check_format(session, self.place)
        get = self._statements.tables[Table.META].get
        found, numbers = session.ask([(get, (STORE_ID,)), (self._statements.numbers, ())], _COMMIT_WITHIN)
        value = found.get_value(0, 0) if found.ntuples else None
        name = "" if value is None else str(meta_of(STORE_ID, value))
        if name != self._id:
            raise StoreFormat(
                f"the store {self.place.words} was replaced by another one while it was open (id {name or 'missing'})"
            )
        epoch, batch = (numbered(numbers.get_value(0, column)) for column in range(2))
        ours = self.leadership.epoch
        if epoch != ours:
            self._tell_lost_epoch(epoch)
            raise self._taken_over(epoch)
        # Of its own epoch the engine tells what is missing, and goes on.
        # The commit whose outcome was not known may have been done.
        self._acknowledged = batch

    def _tell_lost_epoch(self, epoch: int) -> None:
        """Log it, once, if the row names an older epoch than ours: the database went back."""
        ours = self.leadership.epoch
        with self._lock:
            if epoch >= ours or self._told_lost == ours:
                return
            self._told_lost = ours
        commits = f" with its acknowledged commits 1 to {self._acknowledged}" if self._acknowledged else ""
        _log.critical(
            "the database of %s lost the epoch %d of this owner%s. A failover to a standby that is not synchronous "
            "does this",
            self.place.words,
            ours,
            commits,
        )

    def _taken_over(self, epoch: int = 0) -> Deposed:
        which = f" (epoch {epoch})" if epoch else ""
        return Deposed(f"a newer owner{which} has taken the store {self.place.words} over")

    def when_deposed(self, told: Callable[[Deposed], None]) -> None:
        """Have this called when a renewal of the lease meets another owner. See `ProcedureStore`."""

        def met(epoch: int) -> None:
            if epoch:
                self._tell_lost_epoch(epoch)
            told(self._taken_over(epoch))

        self.leadership.on_deposed = met

    def close(self) -> None:
        """Give the store up. Idempotent; in a forked child nothing is told to the database."""
        self._is_owned = False
        self._known = None
        session, self._session = self._session, None
        if os.getpid() != self._pid:
            self.leadership.forget()
            return
        if session is not None:
            session.close()
        self._pool.close()
        self.leadership.give_back()

    # ------------------------------------------------------------ leading
    def campaign(self, stop: threading.Event) -> bool:
        """Wait until this process may own the store. See `SharedStore.campaign`."""
        self._pid = os.getpid()
        return self.leadership.lock.campaign(stop)

    def show_door(self, address: str, pin: bytes, secret: bytes) -> None:
        """Name the door of the owner. See `SharedStore.show_door`."""
        row = DoorRow(address, pin, secret)
        if not self._is_owned:
            self.leadership.door_row = row
            return
        try:
            self.leadership.publish(row)
        except DatabaseFailure as failure:
            raise unavailable(failure, f"writing the store {self.place.words}") from failure

    def see_epoch(self, epoch: int) -> None:
        """Have the next epoch be above this one."""
        self.leadership.seen = max(self.leadership.seen, epoch)

    def watch_manager(self, is_alive: Callable[[], bool]) -> None:
        """Renew the lease only while the manager lives. See `SharedStore.watch_manager`."""
        self.leadership.is_alive = is_alive

    @property
    def waits_for(self) -> float:
        """Seconds for which a commit has waited for the database, if that is long; else 0."""
        return self.leadership.waits_for

    @property
    def late_renewals(self) -> int:
        """Number of renewals of the lease that were late."""
        return self.leadership.late_renewals

    @property
    def regained_locks(self) -> int:
        """Number of times that the lock was taken again."""
        return self.leadership.lock.regained

    @property
    def round_trip(self) -> float | None:
        """Seconds of the last renewal of the lease."""
        return self.leadership.round_trip

    @property
    def has_lapsed(self) -> bool:
        """The lease may have ended."""
        return self.leadership.has_lapsed

    @property
    def held_back(self) -> str:
        """Sentence about what keeps the database from cleaning up. See `SharedStore.held_back`."""
        return self.leadership.held_back

    def when_enqueued(self, told: Callable[[], object]) -> None:
        """Have this called, from any thread, when applications may have enqueued something. See `ProcedureStore`."""
        self.leadership.inbox.tell(told)

    def compact(self) -> CompactionReport:
        """Report the size, unchanged: giving space back is the work of the database's autovacuum."""
        self._refuse_fork()
        self._opened()
        size = self.size().file
        return CompactionReport(size, size, 0.0)

    def _opened(self) -> Session:
        if self._session is None:
            raise self._not_open()
        if self._session.is_broken:
            raise StorageUnavailable(
                f"the store {self.place.words} is being opened again after a failed commit; try again"
            )
        return self._session

    def _not_open(self) -> EngineError:
        return EngineError(f"the store {self.place.words} is not open: own() it first")


def _patience_for(questions: Sequence[Question]) -> float:
    """Seconds for a commit, by its size: a slow database is no broken connection."""
    return _COMMIT_WITHIN + sum(len(value) for _, values in questions for value in values if value) / _SLOWEST
