"""Taking a store over: a silent owner is recognised, and the sessions that it left are ended.

An owner is *silent* when its lease has ended and it has not renewed for longer than from one renewal to the next, by
the clock of the candidate. One look is not enough: the clock of the database may have jumped. Where that clock went
back a lease lasts for hours. So an owner that renews nothing for two leases by the clock of the candidate is silent as
well.

The sessions of an old owner have to be ended. A commit that was sent half stays in the server as ``active``, with its
locks, for as long as the connection stands. No timeout of PostgreSQL 15 or 16 ends it. `pg_terminate_backend` does, and
an ordinary role may use it on sessions of its own. A session is ended only where its process, its start and its name
are those that were found: the system uses process ids again.
"""

from __future__ import annotations

import time
from typing import NamedTuple

from actorproc.errors import EngineError
from actorproc.store.postgres.connecting import title_of_owners
from actorproc.store.postgres.failures import DatabaseFailure
from actorproc.store.postgres.place import DatabasePlace
from actorproc.store.postgres.sessions import BYTES, NUMBER, Session, Statement, number, numbered

__all__ = ["Silence", "end_own_session", "end_sessions", "is_in_the_way"]

_BEAT = 0.4
"""The part of a lease after which a living owner has renewed it: it does so after each third."""
_WITHIN = 10.0
_PAUSE = 0.02
_ENDS_WITHIN = 10.0
"""Seconds for sessions to end; one of 64 half sent MiB took 0.13 s."""
_OWNERS = ([b"manager"], [b"command"])
"""Second words of the names of owners. Candidates and mere readers have others."""

# A session of another role shows its name, but not its start.
_FIND = Statement(
    b"SELECT pid::bigint, (extract(epoch FROM backend_start) * 1000000)::bigint, application_name::text::bytea, "
    b"usename::text::bytea, (usename = current_user)::int::bigint FROM pg_stat_activity "
    b"WHERE datname = current_database() AND pid <> pg_backend_pid() "
    b"AND starts_with(application_name, convert_from($1, 'UTF8')) "
    b"AND split_part(application_name, ' ', 1) <> convert_from($2, 'UTF8')",
    (BYTES, BYTES),
)
_END = Statement(
    b"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid = $1 "
    b"AND (extract(epoch FROM backend_start) * 1000000)::bigint = $2 AND application_name = convert_from($3, 'UTF8')",
    (NUMBER, NUMBER, BYTES),
)
_END_OWN = Statement(
    b"SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE pid = $1 AND pid <> pg_backend_pid() "
    b"AND application_name = convert_from($2, 'UTF8')",
    (NUMBER, BYTES),
)


class Silence:
    """Looks at one owner after the other, for a candidate."""

    def __init__(self) -> None:
        self._seen: tuple[int, int] | None = None
        """Epoch and end of the lease, as they were seen last."""
        self._since = 0.0
        """Monotonic seconds since when it is as it is."""

    def look(self, epoch: int, expires: int, left: float, lease: float) -> bool:
        """Take what the row says now.

        Args:
            epoch: Epoch of the owner.
            expires: End of its lease, in any unit: only a change of it counts.
            left: Seconds of the lease that are left, by the clock of the database.
            lease: Seconds of a lease of this owner, which may have other settings than the candidate.

        Returns:
            True when the owner is silent.
        """
        now = time.monotonic()
        if self._seen != (epoch, expires):
            self._seen, self._since = (epoch, expires), now
        unchanged = now - self._since
        return unchanged >= (_BEAT * lease if left <= 0 else 2 * lease)


class _Found(NamedTuple):
    pid: int
    start: int
    title: bytes
    role: str
    is_ours: bool


def is_in_the_way(failure: DatabaseFailure) -> bool:
    """True for an error that another session caused by its locks."""
    return failure.state in {"55P03", "40P01"}


def end_sessions(session: Session, place: DatabasePlace, own_title: str) -> int:
    """End the sessions of all other owners of the store, and wait until they are gone.

    Args:
        session: A session that is used for nothing else at the moment.
        place: The store.
        own_title: Name of our own sessions.

    Returns:
        Their number.

    Raises:
        EngineError: They belong to another role.
        DatabaseFailure: The database refuses, or they do not end.
    """
    until = time.monotonic() + _ENDS_WITHIN
    ended: set[tuple[int, int]] = set()
    while found := _others(session, place, own_title):
        for one in found:
            if not one.is_ours:
                raise EngineError(
                    f"a session of the former owner of the store {place.words} belongs to the role {one.role!r}, which "
                    "this one may not end: all managers of a store log in as the same role"
                )
            session.ask([(_END, (number(one.pid), number(one.start), one.title))], _WITHIN)
            ended.add((one.pid, one.start))
        if time.monotonic() > until:
            raise DatabaseFailure(f"{len(found)} sessions of the former owner do not end", "57014")
        time.sleep(_PAUSE)
    return len(ended)


def end_own_session(session: Session, pid: int, own_title: str) -> None:
    """End an earlier session of this owner, and wait until it is gone.

    A commit that was sent before the connection broke may still be on its way, or wait in the server. Done after later
    commits, it would bring back the rows of before.

    Args:
        session: The session that comes after it.
        pid: Process of the earlier one.
        own_title: Name of our own sessions.

    Raises:
        DatabaseFailure: The database refuses, or the session does not end.
    """
    until = time.monotonic() + _ENDS_WITHIN
    while True:
        (answer,) = session.ask([(_END_OWN, (number(pid), own_title.encode()))], _WITHIN)
        if not numbered(answer.get_value(0, 0)):
            return
        if time.monotonic() > until:
            raise DatabaseFailure("an earlier session of this owner does not end", "57014")
        time.sleep(_PAUSE)


def _others(session: Session, place: DatabasePlace, own_title: str) -> list[_Found]:
    asked = (_FIND, (title_of_owners(place).encode(), own_title.split(" ", 1)[0].encode()))
    (answer,) = session.ask([asked], _WITHIN)
    found = []
    for row in range(answer.ntuples):
        title = answer.get_value(row, 2) or b""
        if title.split(b" ")[1:2] in _OWNERS:
            role = (answer.get_value(row, 3) or b"").decode(errors="replace")
            values = [numbered(answer.get_value(row, column)) for column in (0, 1, 4)]
            found.append(_Found(values[0], values[1], title, role, bool(values[2])))
    return found
