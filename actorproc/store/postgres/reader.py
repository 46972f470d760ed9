"""Looking at a store in a database that another process may be writing to."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from actorproc.errors import EngineError
from actorproc.store.postgres.connecting import connect, new_title, title_of_owners
from actorproc.store.postgres.failures import DatabaseFailure, explained, unavailable
from actorproc.store.postgres.leading.owner_row import DatabaseOwner, LeaderRow, read_leader
from actorproc.store.postgres.open_store import OpenDatabase
from actorproc.store.postgres.place import DatabasePlace
from actorproc.store.postgres.rows import DatabaseView
from actorproc.store.postgres.schema.tables import check_format, is_made
from actorproc.store.postgres.schema.vacuum import look_at_vacuum
from actorproc.store.postgres.sessions import BYTES, Session, Statement, numbered

__all__ = ["DatabaseReader"]

_WITHIN = 90.0
"""Seconds for one question; the server ends one before (`statement_timeout`)."""
_CANDIDATES = Statement(
    b"SELECT split_part(application_name, ' candidate ', 2)::text::bytea FROM pg_stat_activity "
    b"WHERE datname = current_database() AND starts_with(application_name, convert_from($1, 'UTF8')) "
    b"AND split_part(application_name, ' ', 2) = 'candidate'",
    (BYTES,),
)
_MAY_WRITE = Statement(
    b"SELECT has_table_privilege(convert_from($1, 'UTF8'), 'UPDATE')::int::bigint",
    (BYTES,),
)
_FACTS = (
    "file_bytes",
    "used_bytes",
    "procedures",
    "steps",
    "server_version",
    "sessions",
    "most_sessions",
    "freeze_age",
    "prepared_transactions",
    "stuck_slots",
    "synced",
)


class DatabaseReader(OpenDatabase):
    """The reading methods of a store, for other processes than its owner's. A context manager.

    Args:
        place: The store.
        patience: Seconds for which a read waits for a database that takes no connection at the moment. Default: 0.
        whole: It is also for the rows of the store, whose format is checked; else for the leader's alone, which is all
            that the role of a host may read. Default: True.

    Raises:
        EngineError: There is no store, or the database cannot be reached.
        StoreFormat: The store is of another format.
    """

    def __init__(self, place: DatabasePlace, patience: float = 0.0, *, whole: bool = True) -> None:
        title = new_title(place, "reader")
        super().__init__(place, lambda: connect(place, "look", title), _WITHIN)
        try:
            session = self._pool.borrow()
        except DatabaseFailure as failure:
            raise explained(failure, f"reading the store {place.words}") from failure
        try:
            if not is_made(session, place):
                raise EngineError(f"there is no store at {place.words}: the schema {place.store!r} has none")
            if whole:
                check_format(session, place)
        except DatabaseFailure as failure:
            raise explained(failure, f"reading the store {place.words}") from failure
        finally:
            self._pool.give_back(session)
        if patience:  # of one of many clients, which often reads nothing for a while
            self._pool.close(for_good=False)
        self._pool.patience = patience  # what opens it has a patience of its own, and may be closed meanwhile

    @property
    def path(self) -> str:
        """The URL, without a password."""
        return self.place.words

    def rows(self) -> DatabaseView:
        """All rows as of the last commit, undecoded; a context manager, to be left soon."""
        return self._view()

    def owner(self) -> DatabaseOwner | None:
        """The process whose manager has the store open; None: there is none, or a command that is done in a moment."""
        found = self.any_owner()
        return found if found is not None and found.role == "manager" else None

    def any_owner(self) -> DatabaseOwner | None:
        """The process that owns the store, a manager or a command; None: there is none."""
        row = self.leader_row()
        return row.owner if row is not None and row.leads else None

    def leader_row(self) -> LeaderRow | None:
        """The row of `leader`, as of now."""
        session: Session | None = None
        try:
            session = self._pool.borrow()
            return read_leader(session, self.place)
        except DatabaseFailure as failure:
            raise unavailable(failure, f"reading the store {self.place.words}") from failure
        finally:
            if session is not None:
                self._pool.give_back(session)

    def candidates(self) -> tuple[str, ...]:
        """The processes that wait for the lead, each in words, by the names of their sessions."""
        with self._view() as rows:
            (answer,) = rows.ask((_CANDIDATES, (title_of_owners(self.place).encode(),)))
        found = []
        for row in range(answer.ntuples):
            pid, _, host = (answer.get_value(row, 0) or b"").decode(errors="replace").partition(" ")
            found.append(f"process {pid} on {host}")
        return tuple(sorted(found))

    def facts(self) -> dict[str, Any]:
        """Sizes and numbers of rows, and the state of the server and of vacuum, for a diagnosis."""
        with self._view() as rows:
            size, server = rows.ask((self._statements.size, ()), (self._statements.server, ()))
        values = [numbered(size.get_value(0, column)) for column in range(4)]
        values += [numbered(server.get_value(0, column)) for column in range(server.nfields)]
        return dict(zip(_FACTS, values, strict=True)) | self.enqueued_facts() | self._session_facts()

    def _session_facts(self) -> dict[str, Any]:
        """Version of libpq, whether the session is encrypted, and the state of vacuum."""
        from psycopg import pq  # noqa: PLC0415 - a session was opened, so it is there

        session = self._pool.borrow()
        try:
            vacuum = look_at_vacuum(session, self.place)
        except DatabaseFailure as failure:
            raise unavailable(failure, f"reading the store {self.place.words}") from failure
        finally:
            self._pool.give_back(session)
        encrypted = int(session.is_encrypted)
        words = {"is_held_back": vacuum.is_held_back, "says": vacuum.in_words()}
        return {"libpq_version": pq.version(), "encrypted": encrypted, "vacuum": vacuum._asdict() | words}

    def may_write(self) -> bool:
        """True if the role of the session may change rows of the store."""
        with self._view() as rows:
            (answer,) = rows.ask((_MAY_WRITE, (f"{self.place.schema}.leader".encode(),)))
        return numbered(answer.get_value(0, 0)) == 1

    def close(self) -> None:
        """Stop reading. Idempotent."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
