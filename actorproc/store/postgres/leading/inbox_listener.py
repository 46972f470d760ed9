"""Notifications about what applications enqueue, heard in the session of the lock.

The thread that renews the lease waits for them between two renewals, so a leader needs neither a session nor a thread
more. A notification may be missed: the session was a new one, or it was sent by a transaction that is prepared. So each
renewal looks at the table as well.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from actorproc.store.postgres.failures import DatabaseFailure
from actorproc.store.postgres.place import DatabasePlace
from actorproc.store.postgres.schema.statements import statements_of
from actorproc.store.postgres.sessions import Session, Statement, numbered
from actorproc.support.engine_log import engine_logger

__all__ = ["InboxListener"]

_log = engine_logger("actorproc.store")

_WITHIN = 10.0


class InboxListener:
    """Listens for one owner, on the thread that renews its lease.

    Args:
        place: The store.
    """

    def __init__(self, place: DatabasePlace) -> None:
        self._place = place
        self._session: Session | None = None
        """The session that listens."""
        self._waker: tuple[int, int] | None = None
        """Both ends of a pipe; a byte in it ends the wait under way."""
        self._is_over = False
        self._told: Callable[[], object] | None = None

    def open(self) -> None:
        """Be ready to wait."""
        self.close()
        self._waker, self._is_over = os.pipe(), False

    def tell(self, told: Callable[[], object]) -> None:
        """Call this, on the thread that listens, when there may be rows."""
        self._told = told
        self._end_wait()  # it does not listen yet

    def look(self, session: Session | None) -> None:
        """Listen in this session from now on, and look whether rows wait. Raises `DatabaseFailure`."""
        if self._told is None or session is None:
            return
        if session is not self._session:
            session.ask([(Statement(f"LISTEN {self._place.channel}".encode(), once=True), ())], _WITHIN)
            self._session = session
        (answer,) = session.ask([(statements_of(self._place.schema).some_enqueued, ())], _WITHIN)
        if numbered(answer.get_value(0, 0)):
            self._told()

    def hear(self, session: Session, within: float) -> bool:
        """Wait for a notification, and tell of it.

        Args:
            session: The session of the lock.
            within: Seconds to wait at most.

        Returns:
            False where there is nothing to wait for: the wait was ended, or the session has ended.
        """
        waker = self._waker
        if waker is None:
            return False
        try:
            if self._told is not None and session is not self._session:
                self.look(session)
            if session.hear(within, waker[0]) and self._told is not None:
                self._told()
        except DatabaseFailure as failure:
            _log.debug("the session that listens for %s has ended: %s", self._place.words, failure)
            return False
        return not self._is_over

    def wake(self) -> None:
        """End the wait under way, and all later ones."""
        self._is_over = True
        self._end_wait()

    def _end_wait(self) -> None:
        if self._waker is not None:
            os.write(self._waker[1], b".")

    def close(self) -> None:
        """Listen no more."""
        waker, self._waker, self._session, self._told = self._waker, None, None, None
        if waker is not None:
            for end in waker:
                os.close(end)
