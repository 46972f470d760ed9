"""Errors of the database in the words of the store.

An error that may pass (full, read-only, restarting, unreachable, locked) is a `StorageUnavailable`: the engine waits,
and tries again. Nothing here loads psycopg.
"""

from __future__ import annotations

import re

from actorproc.errors import EngineError, StorageUnavailable

__all__ = ["LATER_TABLES", "DatabaseFailure", "explained", "is_temporary", "unavailable"]

_NOTHING_LOST = "nothing acknowledged is lost"

_HINTS = {
    "08": "the connection broke; check the database and the network",
    "25006": "the database is read-only: its disk may be nearly full, or it is a standby; see its log",
    "28": "the database refuses this login; check user, password (PGPASSFILE) and pg_hba.conf",
    "3D000": "the database does not exist; make it with createdb, or correct the URL",
    "3F000": "the schema is gone; put it back, or correct ?store=NAME",
    "40P01": "another session got in the way (deadlock)",
    "42501": "the role lacks a permission: managers and commands that change log in as the role of the managers; see "
    "`actorproc grants`",
    "42P01": "a table is gone; put it back from a backup",
    "53100": "the database has no disk space left; free some, its log says where",
    "53200": "the database has no memory left",
    "53300": "the database has too many clients already; raise max_connections, or end some",
    "53": "the database lacks a resource; see its log",
    "55P03": "another session holds a lock for too long",
    "57014": "the statement was cancelled, by its timeout or by an administrator",
    "57P01": "an administrator ended the session",
    "57P02": "the database crashed and starts again",
    "57P03": "the database is starting, or recovers from a crash; when that goes on, its log says why",
    "57P05": "the session was idle for longer than the server permits",
    "58": "the database met an error of its disk; see its log",
    "XX": "the database met an internal error or damaged data; see its log",
}
"""Advice by SQLSTATE or its beginning."""
LATER_TABLES = ("schedules", "enqueued", "replies")
"""Tables that stores of this format may lack, as they were made by an earlier version."""
_MADE_AT_START = (
    "a store of an earlier version has no such table: the first manager of this version makes it when it starts. "
    "Until then read the store with the version before. If one has started already, put the table back from a backup"
)

_TEXTS = (
    (re.compile(r"starting up|recovery mode|shutting down|not yet accepting"), "57P03"),
    (re.compile(r"too many clients|connection slots|too many connections"), "53300"),
    (re.compile(r"no space left|could not extend file", re.IGNORECASE), "53100"),
    (re.compile(r"read-only|hot standby mode|not (?:a )?primary"), "25006"),
    (re.compile(r"authentication failed|no pg_hba.conf entry|no password supplied|role .* does not exist"), "28000"),
    (re.compile(r"database .* does not exist"), "3D000"),
    (
        re.compile(r"refused|timed? ?out|reset by peer|closed the connection|translate host|terminating connection"),
        "08",
    ),
)
"""SQLSTATE of what is told before there is a session, where libpq gives a text alone."""


class DatabaseFailure(Exception):
    """The database did not do what was asked; the session is of no further use.

    ``state`` is the SQLSTATE, "" where there is none, and ``column`` and ``table`` what it names.
    """

    def __init__(self, text: str, state: str = "", *, table: str = "", column: str = "") -> None:
        super().__init__(text)
        self.text = " ".join(text.split())
        self.state = state or next((code for known, code in _TEXTS if known.search(text)), "")
        self.table = table
        self.column = column

    @property
    def hint(self) -> str:
        """Advice; "" where none is known."""
        if self.state == "42P01" and any(f".{name}" in self.text for name in LATER_TABLES):
            return _MADE_AT_START
        known = (self.state[:length] for length in (5, 2) if self.state)
        return next((_HINTS[code] for code in known if code in _HINTS), "")


def is_temporary(failure: DatabaseFailure) -> bool:
    """True for a failure that may pass by itself; False for a login, a name or a permission that is wrong."""
    return failure.state[:2] not in {"28", "3D", "3F", "42"}


def unavailable(failure: DatabaseFailure, doing: str) -> StorageUnavailable:
    """The outage that a failure is."""
    hint = f"; {failure.hint}" if failure.hint else ""
    state = f" [{failure.state}]" if len(failure.state) == 5 else ""
    return StorageUnavailable(f"{doing}: {failure.text}{state}{hint}; {_NOTHING_LOST}")


def explained(failure: DatabaseFailure, doing: str) -> EngineError:
    """The error of a first connection, where waiting may be of no use."""
    if is_temporary(failure):
        return unavailable(failure, doing)
    return EngineError(f"{doing}: {failure.text}; {failure.hint}")
