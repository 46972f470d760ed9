"""The right to write a store: the lease over its lock, and the epoch that every commit is fenced by.

Two things keep a second owner out: the advisory lock, which the server gives back when the session of its holder ends,
and the lease in the row of `leader`. Neither is trusted by a commit, which looks at the epoch in its own transaction.
Only the clock of the database counts.

A thread of its own renews the lease, in the session of the lock. It renews nothing while the manager's own thread
hangs, so that a candidate takes over from a manager that lives and does nothing.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Literal

from actorproc.store.postgres.connecting import connect
from actorproc.store.postgres.failures import DatabaseFailure
from actorproc.store.postgres.leading.inbox_listener import InboxListener
from actorproc.store.postgres.leading.owner_row import DoorRow, in_use, read_leader
from actorproc.store.postgres.leading.store_lock import StoreLock
from actorproc.store.postgres.leading.takeover import is_in_the_way
from actorproc.store.postgres.place import DatabasePlace
from actorproc.store.postgres.schema.statements import statements_of
from actorproc.store.postgres.schema.tables import make_tables, one_row
from actorproc.store.postgres.schema.vacuum import look_at_vacuum
from actorproc.store.postgres.sessions import BYTES, NUMBER, Session, Statement, number, numbered
from actorproc.store.rows import codec
from actorproc.store.rows.layout import LAST_BATCH, STORE_ID, meta_of
from actorproc.store.rows.tables import Table
from actorproc.support.engine_log import engine_logger

__all__ = ["LEASE", "Leadership", "Role"]

_log = engine_logger("actorproc.store")

Role = Literal["manager", "command"]
LEASE = 5.0
"""Seconds for which an owner holds the store without a word."""
_WITHIN = 10.0
"""Seconds for a question about the owner."""
_CLAIMS = 4
"""Tries to raise the epoch while sessions of older owners come in the way."""
_JUMP = 1000
"""Numbers that are left out when the database was failed over: a leader whose epoch it lost may have taken some."""

_LOOK_EVERY = 30.0
"""Seconds between two looks at the vacuum of the database."""

_TIMELINE = Statement(b"SELECT left(pg_walfile_name(pg_current_wal_lsn()), 8)::text::bytea", once=True)


class Leadership:
    """The epoch and the lease of one owner, from `claim` to `give_back`, over its lock.

    Args:
        place: The store.
        title: `application_name` of all sessions of this owner.
        role: "command" for an owner that is done in a moment.
        lease: Seconds for which the store is held without a renewal.
    """

    def __init__(self, place: DatabasePlace, title: str, role: Role = "manager", *, lease: float = LEASE) -> None:
        self._place = place
        self._title = title
        self._role = role
        self.lease = lease
        self.lock = StoreLock(place, title, lease)
        self._ending = threading.Event()
        self._keeper: threading.Thread | None = None
        self._renewed = 0.0
        """Monotonic seconds at which the last renewal that worked was sent."""
        self.epoch = 0
        """Of this owner; 0 before `claim`."""
        self.seen = 0
        """Highest epoch that was heard of elsewhere: the next one is above it."""
        self.door_row: DoorRow | None = None
        """The door that the row names from `claim` on."""
        self.is_alive: Callable[[], bool] = _always
        """Says whether the manager is alive; while it is not, the lease is not renewed."""
        self.on_deposed: Callable[[int], object] = _nothing
        """Called once, on the keeper's thread, with the epoch of the row when that is not ours (0: unknown)."""
        self.inbox = InboxListener(place)
        """Listener for what applications enqueue, between two renewals."""
        self.late_renewals = 0
        """Renewals that came later than half a lease after the one before."""
        self.round_trip: float | None = None
        """Seconds of the last renewal that worked."""
        self.writing_since = 0.0
        """Monotonic seconds since when a commit waits for the database; 0: none does."""
        self.held_back = ""
        """Sentence about a snapshot that keeps vacuum from its work, as it was last; "": there is none."""
        self._next_look = 0.0

    def clear_the_way(self) -> None:
        """End sessions of older owners, which came back and have locks; only for the owner of the present epoch.

        Raises:
            StoreInUse: A newer owner has the store, or its lock.
            DatabaseFailure: The database refuses.
        """
        session = connect(self._place, "look", self._title)
        try:
            row = read_leader(session, self._place)
            if row is None or row.epoch != self.epoch or not self.lock.is_held(session):
                raise in_use(self._place, row.owner if row is not None else None)
            self.lock.end_others(session)
        finally:
            session.close()

    # ------------------------------------------------------------ the epoch
    def claim(self, session: Session) -> tuple[int, str]:
        """Make the tables where there are none, and raise the epoch; with the lock held.

        Args:
            session: The session of commits.

        Returns:
            The new epoch, and the `store_id`.

        Raises:
            StoreFormat: The schema is no store, or one of another format.
            StoreDamaged: The store has no id.
            DatabaseFailure: The database refuses.
        """
        make_tables(session, self._place)
        for left in range(_CLAIMS - 1, -1, -1):
            try:
                return self._claim(session)
            except DatabaseFailure as failure:
                if session.is_broken or not left or not is_in_the_way(failure):
                    raise
                session.ask([(Statement(b"ROLLBACK", once=True), ())], _WITHIN)
                assert self.lock.session is not None
                self.lock.end_others(self.lock.session)
        raise AssertionError

    def _claim(self, session: Session) -> tuple[int, str]:
        schema = self._place.schema
        begin, end = (Statement(word, once=True) for word in (b"BEGIN", b"COMMIT"))
        # Waits for the commit of an owner before that has met its fence, and lets no other one pass.
        hold = Statement(f"SELECT epoch, timeline::bytea FROM {schema}.leader FOR UPDATE".encode())
        asked = [(begin, ()), (hold, ()), (statements_of(schema).numbers, ()), (_TIMELINE, ())]
        _, held, found, now = session.ask(asked, _WITHIN)
        last, before, timeline = numbered(found.get_value(0, 1)), held.get_value(0, 1), now.get_value(0, 0)
        stored = numbered(found.get_value(0, 0))
        epoch = max(stored, self.seen) + 1
        if before and before != timeline:
            epoch += _JUMP
            _log.warning("the database of %s was failed over; epochs go on with %d", self._place.words, epoch)
        take = Statement(
            f"UPDATE {schema}.leader SET epoch = $1, owner = $2, since = clock_timestamp(), pids = ARRAY[$3, $4], "
            "address = convert_from($6, 'UTF8'), certificate = $7, secret = $8, code = NULL, "
            "timeline = convert_from($9, 'UTF8'), "
            "expires = clock_timestamp() + $5 * interval '1 millisecond'".encode(),
            (NUMBER, BYTES, NUMBER, NUMBER, NUMBER, BYTES, BYTES, BYTES, BYTES),
        )
        lock_pid = self.lock.session.pid if self.lock.session is not None else 0
        lease = number(int(self.lease * 1000))
        door = self.door_row
        shown = (None, None, None) if door is None else (door.address.encode(), door.pin, door.secret)
        drop = Statement(f"DELETE FROM {schema}.batch".encode())
        first = Statement(f"INSERT INTO {schema}.batch (epoch, n) VALUES ($1, 0)".encode(), (NUMBER,))
        put = statements_of(schema).tables[Table.META].put
        ids = statements_of(schema).tables[Table.META].get
        sent = time.monotonic()
        pids = (number(session.pid), number(lock_pid))
        answers = session.ask(
            [
                (take, (number(epoch), self._about_us(), *pids, lease, *shown, timeline)),
                (drop, ()),
                (first, (number(epoch),)),
                (put, one_row(LAST_BATCH, codec.encode(Table.META, LAST_BATCH, last))),
                (ids, (STORE_ID,)),
                (end, ()),
            ],
            _WITHIN,
        )
        value = answers[4].get_value(0, 0) if answers[4].ntuples else None
        if value is None:
            raise codec.damaged(Table.META, STORE_ID, "the row is missing")
        self.epoch, self._renewed = epoch, sent
        self._start_keeper()
        return epoch, str(meta_of(STORE_ID, value))

    def _about_us(self) -> bytes:
        about = {"host": socket.gethostname(), "pid": os.getpid(), "role": self._role, "title": self._title}
        about["lease"] = self.lease
        return json.dumps(about).encode()

    def check(self) -> None:
        """Have the lock again if its session has ended. Raises `StoreInUse`, `DatabaseFailure`."""
        if not self.lock.is_open and self.lock.regain(self.epoch) is not None:
            raise in_use(self._place, None)

    # ------------------------------------------------------------ the lease
    @property
    def waits_for(self) -> float:
        """Seconds for which a commit has waited for the database, if they are more than half a lease; else 0."""
        since = self.writing_since
        waited = time.monotonic() - since if since else 0.0
        return waited if waited > self.lease / 2 else 0.0

    @property
    def has_lapsed(self) -> bool:
        """The lease may have ended: no renewal was sent in its time that worked."""
        return time.monotonic() - self._renewed > self.lease

    def _start_keeper(self) -> None:
        self._ending.clear()
        self.inbox.open()
        keeper = self._keeper = threading.Thread(target=self._keep, name="actorproc-lease", daemon=True)
        keeper.start()

    def _keep(self) -> None:
        """Renew the lease until the end. No error ends it: what is lost is told by the fence of the next commit."""
        pause = self.lease / 3
        was_late = was_slow = False
        while not self._rest(pause):
            pause = self.lease / 3
            # A process that gets little of the processor, or of its interpreter, renews late without an error.
            late = time.monotonic() - self._renewed
            try:
                if not self.is_alive():
                    _log.error("the manager of %s hangs; its lease is not renewed", self._place.words)
                elif (other := self._renew()) is not None:
                    self.on_deposed(other)
                    return
                else:
                    self._look_at_vacuum()
                    self.inbox.look(self.lock.session)
            except Exception as error:  # noqa: BLE001 - as the docstring says
                pause = self.lease / 10
                _log.debug("the lease of %s was not renewed: %s", self._place.words, error)
            late = max(late, time.monotonic() - self._renewed)
            is_late = late > self.lease / 2
            self.late_renewals += is_late
            if is_late and not was_late:
                words = "the lease of %s was not renewed for %.1f s; it lasts %g s"
                _log.warning(words, self._place.words, late, self.lease)
            was_late = is_late
            slow = self.waits_for
            if slow and not was_slow:
                _log.warning("a commit to %s has waited %.1f s for the database", self._place.words, slow)
            was_slow = slow > 0

    def _rest(self, pause: float) -> bool:
        """Wait until the next renewal is due, and listen meanwhile; True when the end has come."""
        until = time.monotonic() + pause
        while not self._ending.is_set() and (rest := until - time.monotonic()) > 0:
            session = self.lock.session
            if session is None or session.is_broken or not self.inbox.hear(session, rest):
                return self._ending.wait(max(0.0, until - time.monotonic()))
        return self._ending.is_set()

    def _renew(self) -> int | None:
        """Renew the lease; the epoch of the row when it is another one (0: there is no row), else None."""
        if not self.lock.is_open and (other := self.lock.regain(self.epoch)) is not None:
            return other
        session = self.lock.session
        assert session is not None
        renew = Statement(
            f"UPDATE {self._place.schema}.leader SET expires = clock_timestamp() + "
            "$1 * interval '1 millisecond' WHERE epoch = $2 RETURNING epoch".encode(),
            (NUMBER, NUMBER),
        )
        sent = time.monotonic()
        (answer,) = session.ask([(renew, (number(int(self.lease * 1000)), number(self.epoch)))], self.lease)
        if not answer.ntuples:
            row = read_leader(session, self._place)
            return row.epoch if row is not None else 0
        self._renewed, self.round_trip = sent, time.monotonic() - sent
        return None

    def _look_at_vacuum(self) -> None:
        """Look for a snapshot that is held for long, now and then. Raises `DatabaseFailure`."""
        now, session = time.monotonic(), self.lock.session
        if now < self._next_look or session is None:
            return
        self._next_look = now + _LOOK_EVERY
        vacuum = look_at_vacuum(session, self._place)
        was, self.held_back = self.held_back, vacuum.in_words() if vacuum.is_held_back else ""
        if self.held_back and not was:
            _log.warning("%s", self.held_back)

    def publish(self, door_row: DoorRow) -> None:
        """Change the door that the row names, for a new certificate. Raises `DatabaseFailure`, `StoreInUse`.

        Args:
            door_row: The door.
        """
        session = connect(self._place, "look", self._title)
        try:
            change = Statement(
                f"UPDATE {self._place.schema}.leader SET address = convert_from($1, 'UTF8'), certificate = $2, "
                "secret = $3 WHERE epoch = $4 RETURNING epoch".encode(),
                (BYTES, BYTES, BYTES, NUMBER),
            )
            values = (door_row.address.encode(), door_row.pin, door_row.secret, number(self.epoch))
            (answer,) = session.ask([(change, values)], _WITHIN)
        finally:
            session.close()
        if not answer.ntuples:
            raise in_use(self._place, None)
        self.door_row = door_row

    def give_back(self) -> None:
        """End the lease and the session of the lock. Idempotent."""
        self._ending.set()
        self.inbox.wake()
        keeper, self._keeper = self._keeper, None
        if keeper is not None and keeper is not threading.current_thread():
            keeper.join()
        self.inbox.close()
        session = self.lock.session
        if session is not None and not session.is_broken and self.epoch:
            end = Statement(
                f"UPDATE {self._place.schema}.leader SET owner = NULL, pids = NULL, address = NULL, "
                "certificate = NULL, secret = NULL, expires = '-infinity' WHERE epoch = $1".encode(),
                (NUMBER,),
            )
            try:
                session.ask([(end, (number(self.epoch),))], self.lease)
            except DatabaseFailure as failure:
                _log.debug("the lease of %s was not given back: %s", self._place.words, failure)
        self.lock.release()
        self.epoch = 0

    def forget(self) -> None:
        """In a forked copy: nothing is told to the server."""
        self.lock.forget()
        self._keeper = None
        self.epoch = 0


def _always() -> bool:
    return True


def _nothing(_: int) -> None:
    """Nothing is to be done."""
