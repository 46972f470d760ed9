"""Connections of applications: statements in a transaction that is theirs.

Nothing here connects, commits or rolls back. A row is refused before anything is written: an error of the server would
spoil all that the application has done in its transaction.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import quote

from actorproc.errors import EngineError, NotAllowed
from actorproc.store.postgres.place import CLOSED, DEFAULT_STORE, DatabasePlace, is_database_url, place_of

__all__ = [
    "BorrowedStatement",
    "TransactionFacts",
    "asked",
    "asked_async",
    "facts_in",
    "place_named",
    "put_row",
    "transaction_facts",
]

_TAKEN = "a connection of psycopg 3, psycopg2, SQLAlchemy (a Session too) or Django"
_STYLES = frozenset({"format", "pyformat"})
"""Styles of parameters of DB-API drivers in which `%s` is one."""

_FACTS = (
    "SELECT CAST(json_build_object("
    "'at', CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS bigint), 'database', current_database(), "
    "'role', current_user, 'read_only', current_setting('transaction_read_only'), "
    "'schema', n.oid IS NOT NULL, 'store', l.oid IS NOT NULL, 'inbox', e.oid IS NOT NULL, "
    f"'moved', EXISTS (SELECT FROM pg_catalog.pg_constraint AS c WHERE c.conrelid = e.oid AND c.conname = '{CLOSED}'), "
    "'may', has_schema_privilege(n.oid, 'USAGE') AND has_table_privilege(e.oid, 'INSERT')) AS text) AS facts "
    "FROM (SELECT 1) AS one LEFT JOIN pg_catalog.pg_namespace AS n ON n.nspname = {} "
    "LEFT JOIN pg_catalog.pg_class AS l ON l.relnamespace = n.oid AND l.relname = 'leader' "
    "LEFT JOIN pg_catalog.pg_class AS e ON e.relnamespace = n.oid AND e.relname = 'enqueued'"
)


class BorrowedStatement(NamedTuple):
    """A statement that gives one row of one value, with `{}` for each parameter."""

    sql: str
    values: tuple[Any, ...]
    schema: str = ""
    """Takes the place of `{schema}`."""


class TransactionFacts(NamedTuple):
    """Facts of a transaction in which a row can be written."""

    at: float
    """Epoch seconds, by its clock."""


def place_named(store: Any) -> DatabasePlace:
    """The place of a store that is in the database of a connection.

    Args:
        store: Its name, or its URL.

    Returns:
        The place, without an address.

    Raises:
        UsageError: It is no name of a store.
    """
    if not isinstance(store, str):
        msg = f"store is the name of a store, such as {DEFAULT_STORE!r}, not {store!r:.60}"
        raise TypeError(msg)
    if is_database_url(store):
        return place_of(store)
    return place_of(f"postgresql://?store={quote(store, safe='')}")


def transaction_facts(place: DatabasePlace) -> BorrowedStatement:
    """The question that `facts_in` reads the answer of."""
    return BorrowedStatement(_FACTS, (place.store,))


def facts_in(answer: Any, place: DatabasePlace) -> TransactionFacts:
    """Read the facts of a transaction, and refuse one in which no row can be written.

    Args:
        answer: The answer to `transaction_facts`.
        place: The store.

    Returns:
        The facts.

    Raises:
        EngineError: The database has no such store, one of an earlier version, or one that was moved; or the
            transaction is read-only.
        NotAllowed: The role may not enqueue.
    """
    facts = json.loads(answer)
    database = facts["database"]
    if not facts["store"]:
        lack = "has none" if facts["schema"] else "is not there"
        raise EngineError(
            f"the database {database!r} has no store {place.store!r}: the schema {lack}. Start a manager on it first, "
            "or give store=NAME; the connection must be one to the database of the store"
        )
    if not facts["inbox"]:
        raise EngineError(
            f"the store {place.store!r} of the database {database!r} is of an earlier version, which has no table for "
            "what is enqueued: the first manager of this version makes it when it starts"
        )
    if facts["moved"]:
        raise EngineError(
            f"the store {place.store!r} of the database {database!r} was moved elsewhere, or is being moved: what is "
            "enqueued here would wait for ever. Enqueue where it is now, or take the mark off with `actorproc move "
            "--undo`; after a move that was killed, the next start of a manager does that"
        )
    if not facts["may"]:
        raise NotAllowed(
            f"the role {facts['role']!r} may not enqueue into the store {place.store!r}: it needs USAGE of the schema, "
            "and INSERT into its table enqueued; see `actorproc grants`"
        )
    if facts["read_only"] == "on":
        raise EngineError("the transaction is read-only, or the server is a standby; enqueue in one that may write")
    return TransactionFacts(facts["at"] / 1e6)


def put_row(place: DatabasePlace, key: bytes, value: bytes, *, notify: bool) -> BorrowedStatement:
    """The statement that writes a row, and has the leader told of it when the transaction commits."""
    put = "WITH put AS (INSERT INTO {schema}.enqueued (k, v) VALUES ({}, {})) SELECT 1"
    if not notify:
        return BorrowedStatement(put, (key, value), place.schema)
    return BorrowedStatement(f"{put} FROM pg_catalog.pg_notify({{}}, '')", (key, value, place.channel), place.schema)


def asked(connection: Any, question: BorrowedStatement) -> Any:
    """The value that a statement gives, in the transaction of this connection.

    Raises:
        TypeError: It is no connection that is known here.
    """
    session = connection
    if callable(getattr(connection, "get_bind", None)) and callable(getattr(connection, "connection", None)):
        connection = connection.connection()  # of an ORM session: what begins with it is committed with it
    if hasattr(connection, "exec_driver_sql"):
        _refuse_async(connection, session)
        return connection.execute(*_for_sqlalchemy(question)).scalar_one()
    _refuse_others(connection)
    with contextlib.closing(connection.cursor(**_plain_rows(connection))) as cursor:
        cursor.execute(*_for_driver(question))
        return _only(cursor.fetchone())


async def asked_async(connection: Any, question: BorrowedStatement) -> Any:
    """As `asked`, for a connection whose methods are awaited.

    Raises:
        TypeError: It is no connection that is known here.
    """
    if callable(getattr(connection, "run_sync", None)):  # SQLAlchemy's
        return await connection.run_sync(asked, question)
    if not _is_of(connection, "psycopg") or not hasattr(connection, "__aenter__"):
        takes = "an AsyncConnection or AsyncSession of psycopg 3 or SQLAlchemy"
        msg = f"enqueue_async takes {takes}, not {_kind(connection)}"
        raise TypeError(msg)
    async with connection.cursor(**_plain_rows(connection)) as cursor:
        await cursor.execute(*_for_driver(question))
        return _only(await cursor.fetchone())


def _refuse_async(connection: Any, given: Any) -> None:
    if callable(getattr(connection, "run_sync", None)) or hasattr(connection, "__aenter__"):
        msg = f"a {_kind(given)} is awaited: await enqueue_async(…) in place of enqueue(…)"
        raise TypeError(msg)


def _refuse_others(connection: Any) -> None:
    _refuse_async(connection, connection)
    if not callable(getattr(connection, "cursor", None)):
        msg = f"enqueue takes {_TAKEN}, not {_kind(connection)}"
        raise TypeError(msg)
    vendor = getattr(connection, "vendor", "postgresql")
    roots = (kind.__module__.partition(".")[0] for kind in type(connection).__mro__)
    styles = {getattr(sys.modules.get(root), "paramstyle", "format") for root in roots}
    if vendor != "postgresql" or not styles <= _STYLES:
        msg = f"enqueue takes {_TAKEN}, to the PostgreSQL database of the store; not {_kind(connection)}"
        raise TypeError(msg)


def _plain_rows(connection: Any) -> dict[str, Any]:
    """Options for a cursor whose rows are not made into something else by the application."""
    if not _is_of(connection, "psycopg"):
        return {}
    from psycopg.rows import tuple_row  # noqa: PLC0415 - the application has loaded it

    return {"row_factory": tuple_row}


def _for_driver(question: BorrowedStatement) -> tuple[str, tuple[Any, ...]]:
    schema = question.schema.replace("%", "%%").replace("{", "{{").replace("}", "}}")
    sql = question.sql.replace("{schema}", schema)
    return sql.format(*("%s" for _ in question.values)), question.values


def _for_sqlalchemy(question: BorrowedStatement) -> tuple[Any, dict[str, Any]]:
    schema = question.schema.replace(":", "\\:").replace("{", "{{").replace("}", "}}")
    sql = question.sql.replace("{schema}", schema)
    names = [f"p{number}" for number in range(len(question.values))]
    text = importlib.import_module("sqlalchemy").text(sql.format(*(f":{name}" for name in names)))
    return text, dict(zip(names, question.values, strict=True))


def _only(row: Mapping[str, Any] | Sequence[Any] | None) -> Any:
    """The only value of a row: psycopg2 has cursors whose rows are dicts."""
    if row is None:
        raise EngineError("the database gave no answer to a statement that has one")
    return next(iter(row.values())) if isinstance(row, Mapping) else row[0]


def _is_of(connection: Any, root: str) -> bool:
    return any(kind.__module__.partition(".")[0] == root for kind in type(connection).__mro__)


def _kind(given: Any) -> str:
    return f"{type(given).__module__}.{type(given).__qualname__}"
