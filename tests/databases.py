"""Stores in a private database for tests: one server for each process of pytest, one store for each test."""

from __future__ import annotations

import atexit
import functools
import itertools
import time
from typing import Any

import pytest

from actorproc.errors import EngineError
from actorproc.store.postgres.place import place_of
from actorproc.testing.database_server import DatabaseServer

__all__ = ["allowed", "database_or_skip", "emptied", "give_back", "new_store"]

allowed = pytest.MonkeyPatch()
"""Changes of the environment that are undone after each test."""
_numbers = itertools.count(1)
_sessions: list[Any] = []
"""The session that empties stores: its statements are prepared, and to connect takes longer than to empty one."""
_PATIENCE = 20.0
"""Seconds in which the server has seen the end of all sessions of a test."""
_free: list[str] = []
"""Stores that no test uses now: to empty one takes a tenth of the time that it takes to make one."""


@functools.cache
def _server() -> DatabaseServer | str:
    """The server of this process; or the reason why there is none."""
    try:
        import psycopg  # noqa: F401
    except ImportError as error:
        return f"psycopg is not installed: {error}"
    try:
        server = DatabaseServer(settings=["max_prepared_transactions=4"])
    except EngineError as error:
        return str(error)
    server.start()
    atexit.register(server.close)
    return server


def database_or_skip() -> DatabaseServer:
    """The server of this process. Skips the test where there is none, with the reason."""
    found = _server()
    if isinstance(found, str):
        pytest.skip(f"no PostgreSQL: {found}")
    allowed.setenv("ACTORPROC_ALLOW_ANY_FILESYSTEM", "1")  # it does not wait for its disk
    return found


def new_store() -> str:
    """The URL of a store that was never there."""
    return database_or_skip().url(f"t{next(_numbers)}")


def emptied() -> str:
    """The URL of an empty store; give it back with `give_back`."""
    server = database_or_skip()
    if not _free:
        return new_store()
    url = server.url(_free.pop())
    _empty(url)
    return url


def give_back(url: str) -> None:
    """Let another test have this store. Fails where a process or a thread of the test still has a session on it."""
    deadline = time.monotonic() + _PATIENCE
    while left := _sessions_on(url):
        assert time.monotonic() < deadline, f"sessions that this test has left on the store {url}: {left}"
        time.sleep(0.02)
    _free.append(place_of(url).store)


def _sessions_on(url: str) -> list[str]:
    """Names of the sessions on a store, but for ours."""
    from actorproc.store.postgres.connecting import title_of_owners
    from actorproc.store.postgres.sessions import BYTES, Statement

    session = _session_for(url)
    find = Statement(
        b"SELECT application_name::text::bytea FROM pg_stat_activity WHERE pid <> pg_backend_pid() "
        b"AND starts_with(application_name, convert_from($1, 'UTF8'))",
        (BYTES,),
    )
    (answer,) = session.ask([(find, (title_of_owners(place_of(url)).encode(),))], 10.0)
    return [answer.get_value(row, 0).decode() for row in range(answer.ntuples)]


def _session_for(url: str) -> Any:
    from actorproc.store.postgres.connecting import connect

    if not _sessions or _sessions[0].is_broken:
        _sessions[:] = [connect(place_of(url), "commit", "a test")]
    return _sessions[0]


def _empty(url: str) -> None:
    from actorproc.model.ids import new_id
    from actorproc.store.postgres.failures import DatabaseFailure
    from actorproc.store.postgres.schema.statements import OWN_TABLES, statements_of
    from actorproc.store.postgres.sessions import Statement, array_of
    from actorproc.store.rows import codec
    from actorproc.store.rows.layout import FORMAT, FORMAT_KEY, STORE_ID
    from actorproc.store.rows.tables import Table

    place = place_of(url)
    session = _session_for(url)
    questions = [
        (Statement(f'DELETE FROM {place.schema}."{name}"'.encode()), ())
        for name in (*OWN_TABLES, *(table.label for table in Table))
    ]
    made = ("leader (epoch) VALUES (0)", "batch (epoch, n) VALUES (0, 0)")
    questions += [(Statement(f"INSERT INTO {place.schema}.{row}".encode()), ()) for row in made]
    for key, value in ((FORMAT_KEY, FORMAT), (STORE_ID, new_id())):
        put = statements_of(place.schema).tables[Table.META].put
        questions.append((put, (array_of([key]), array_of([codec.encode(Table.META, key, value)]))))
    try:
        session.ask(questions, 10.0)
    except DatabaseFailure as failure:
        if failure.state != "42P01":  # the test before did not make it
            session.close()
            raise
