"""The advisory lock of a store: taken, waited for, and taken again.

The server gives it back when the session of its holder ends. So the lock has a session of its own, used by one thread
at a time. A commit does not trust the lock: it looks at the epoch in its own transaction.
"""

from __future__ import annotations

import random
import threading
import time

from actorproc.store.postgres.connecting import connect
from actorproc.store.postgres.failures import DatabaseFailure
from actorproc.store.postgres.leading.owner_row import (
    OWNERS_HERE,
    DatabaseOwner,
    LeaderRow,
    in_use,
    patience_with,
    read_leader,
)
from actorproc.store.postgres.leading.takeover import Silence, end_own_session, end_sessions
from actorproc.store.postgres.place import DatabasePlace
from actorproc.store.postgres.sessions import BYTES, NUMBER, Session, Statement, number, numbered
from actorproc.support.engine_log import engine_logger

__all__ = ["StoreLock"]

_log = engine_logger("actorproc.store")

_WITHIN = 10.0
"""Seconds for a question about the lock or its owner."""
_PAUSE = 0.05
_LOOK = 0.1
"""Seconds between two looks of a candidate at the owner."""
_TRY_EVERY = 0.025
"""Seconds between two tries of a candidate to take the lock. It does not wait in the server for it: a statement that
waits holds a snapshot, which would keep vacuum from its work."""
_LONGEST_REST = 5.0
"""Seconds that a candidate rests at most after the database refused it."""

_TRY = Statement(b"SELECT pg_try_advisory_lock($1)::int::bigint", (NUMBER,))
_UNLOCK = Statement(b"SELECT pg_advisory_unlock($1)::int::bigint", (NUMBER,))
_NAME = Statement(b"SELECT set_config('application_name', convert_from($1, 'UTF8'), false)", (BYTES,))
_HELD = Statement(
    b"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1 AND pid = $1 "
    b"AND classid = ($2 >> 32 & 4294967295)::oid AND objid = ($2 & 4294967295)::oid",
    (NUMBER, NUMBER),
)


class StoreLock:
    """The lock of one owner, from `take` or `campaign` to `release`.

    Args:
        place: The store.
        title: `application_name` of all sessions of this owner.
        lease: Seconds for which this owner holds the store without a renewal.
    """

    def __init__(self, place: DatabasePlace, title: str, lease: float) -> None:
        self._place = place
        self._title = title
        self._lease = lease
        self._silence = Silence()
        self._regaining = threading.Lock()
        """The thread that renews the lease and that of the commits may both find the session gone."""
        self.session: Session | None = None
        """The session that has the lock, unless it is broken."""
        self.regained = 0
        """Number of times that the lock was taken again because its session had ended."""
        self.ended = 0
        """Sessions of former owners that were ended."""

    @property
    def is_open(self) -> bool:
        """The session of the lock has not failed here."""
        return self.session is not None and not self.session.is_broken

    def take(self) -> None:
        """Take the advisory lock, unless `campaign` has. Raises `StoreInUse`, `DatabaseFailure`, `EngineError`.

        An owner whose lease has ended is looked at twice; when it is silent its sessions are ended. Commands may have
        the lock in turn, so the patience with an owner begins when its row is first seen.
        """
        if self.is_open:
            return
        begun, before = time.monotonic(), None
        session = self._candidate()
        try:
            while not self._try(session):
                row = self._look(session)
                seen = None if row is None else (row.epoch, row.owner)
                if seen != before:
                    begun, before = time.monotonic(), seen
                waited = time.monotonic() - begun
                if row is not None and row.left is not None and row.left <= 0 and waited < 2 * self._lease_of(row):
                    time.sleep(_PAUSE)
                    continue
                self._refuse_after(waited, row.owner if row is not None else None)
                time.sleep(_PAUSE)
            self._become_owner(session)
        except BaseException:
            session.close()
            raise

    def _refuse_after(self, waited: float, owner: DatabaseOwner | None) -> None:
        if waited >= patience_with(owner):
            raise in_use(self._place, owner)

    def campaign(self, stop: threading.Event) -> bool:
        """Wait until the lock is ours; no error ends that.

        Args:
            stop: Set to give up.

        Returns:
            True with the lock; False when it was stopped.
        """
        failures = 0
        next_look = 0.0
        session: Session | None = None
        while not stop.is_set():
            try:
                if session is None or session.is_broken:
                    session = self._candidate()
                if self._try(session):
                    self._become_owner(session)
                    return True
                if time.monotonic() >= next_look:
                    next_look = time.monotonic() + _LOOK
                    self._look(session)
            except Exception as error:  # noqa: BLE001 - no proof of the lock is no lock, whatever the reason
                failures += 1
                _log.debug("a candidate of %s looks again: %s", self._place.words, error)
                if session is not None:
                    session.close()
                session = None
                # Full jitter: all candidates lose a database at the same moment.
                stop.wait(random.uniform(_LOOK, min(_LONGEST_REST, _LOOK * 2 ** min(failures, 10))))  # noqa: S311
            else:
                failures = 0
                stop.wait(_TRY_EVERY)
        if session is not None:
            session.close()
        return False

    def _candidate(self) -> Session:
        unique, _, rest = self._title.partition(" ")
        return connect(self._place, "lock", f"{unique} candidate {rest.partition(' ')[2]}")

    def _try(self, session: Session) -> bool:
        (answer,) = session.ask([(_TRY, (number(self._place.lock),))], _WITHIN)
        return bool(numbered(answer.get_value(0, 0)))

    def _look(self, session: Session) -> LeaderRow | None:
        """Look at the owner, and end its sessions when it is silent: then the lock gets free."""
        row = read_leader(session, self._place)
        if row is None or row.left is None:
            return row
        if self._silence.look(row.epoch, row.expires, row.left, self._lease_of(row)):
            who = row.owner.words if row.owner is not None else "the former owner"
            _log.warning("%s has not renewed its lease on %s; its sessions are ended", who, self._place.words)
            self.end_others(session)
        return row

    def _lease_of(self, row: LeaderRow) -> float:
        return max(self._lease, row.owner.lease if row.owner is not None else 0.0)

    def _become_owner(self, session: Session) -> None:
        session.ask([(_NAME, (self._title.encode(),))], _WITHIN)
        self.session = session
        OWNERS_HERE.add(self._title)
        # Also when the lock was free: only the session with the lock may have ended.
        self.end_others(session)

    def end_others(self, session: Session) -> None:
        """End the sessions of all other owners. Raises `EngineError`, `DatabaseFailure`."""
        self.ended += end_sessions(session, self._place, self._title)

    def is_held(self, session: Session) -> bool:
        """True if the server says that our session holds the lock; asked in another session."""
        own = self.session
        if own is None or own.is_broken:
            return False
        (answer,) = session.ask([(_HELD, (number(own.pid), number(self._place.lock)))], _WITHIN)
        return bool(numbered(answer.get_value(0, 0)))

    def regain(self, epoch: int) -> int | None:
        """Take the lock again after its session has ended, unless the row names another epoch.

        Args:
            epoch: The epoch of this owner.

        Returns:
            None with the lock; else the epoch of the row.

        Raises:
            StoreInUse: Another process has the lock.
            DatabaseFailure: The database refuses.
        """
        with self._regaining:
            return None if self.is_open else self._regain(epoch)

    def _regain(self, epoch: int) -> int | None:
        old = self.session
        session = connect(self._place, "lock", self._title)
        try:
            row = read_leader(session, self._place)
            if row is not None and row.epoch != epoch:
                session.close()
                return row.epoch
            has_lock = self._try(session)
            if not has_lock and old is not None:
                # The server may not have noticed yet that the old session is dead.
                end_own_session(session, old.pid, self._title)
                has_lock = self._try(session)
        except BaseException:
            session.close()
            raise
        if not has_lock:
            session.close()
            raise in_use(self._place, row.owner if row is not None else None)
        self.session = session
        self.regained += 1
        return None

    def release(self) -> None:
        """Give the lock back, and end the session. Idempotent.

        The lock is given back in words: the server sees the end of a session only some time after it.
        """
        session, self.session = self.session, None
        OWNERS_HERE.discard(self._title)
        if session is None:
            return
        try:
            if not session.is_broken:
                session.ask([(_UNLOCK, (number(self._place.lock),))], self._lease)
        except DatabaseFailure as failure:
            _log.debug("the lock of %s was not given back: %s", self._place.words, failure)
        finally:
            session.close()

    def forget(self) -> None:
        """In a forked copy: nothing is told to the server."""
        self.session = None
        OWNERS_HERE.discard(self._title)
