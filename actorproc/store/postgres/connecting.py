"""Connections to a database: checked, with settings of our own, and unknown to forked copies.

Facts this rests on:

- The process id that libpq reports is invented behind a pooler, so it is compared with the server's own.
- The socket is inherited by forks. A forked copy puts `/dev/null` in its place; libpq would say goodbye for its parent.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import select
import socket
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from typing import Any

from actorproc.errors import EngineError
from actorproc.store.postgres.failures import DatabaseFailure
from actorproc.store.postgres.place import DatabasePlace
from actorproc.store.postgres.sessions import IDLE_LOOK, Connection, Session, SessionKind, Statement, numbered
from actorproc.support.fork_hooks import at_fork

__all__ = ["HAS_TRANSACTION_TIMEOUT", "connect", "new_title", "title_of_owners"]

_OLDEST = 150000
"""Version of the oldest server."""
HAS_TRANSACTION_TIMEOUT = 170000
"""Version of the server from which on a transaction as a whole may have a time limit."""
_TRANSACTION_TIMEOUT = "25P04"
_CONNECT_WITHIN = 5.0
"""Seconds for one host of a URL, where it has no connect_timeout."""
_LONGEST_TITLE = 63
_BAD = 1
"""State of a connection (libpq's ConnStatusType)."""
_FAILED, _READING, _OK = 0, 1, 3
"""Results of a poll for a connection (libpq's PostgresPollingStatusType)."""

_SETTINGS: dict[SessionKind, dict[str, str]] = {
    "commit": {"lock_timeout": "2s", "statement_timeout": "0", "idle_in_transaction_session_timeout": "0"},
    "lock": {
        "lock_timeout": "2s",
        "statement_timeout": "10s",
        "idle_in_transaction_session_timeout": "0",
        # A lease says that its owner lives, which a standby that is away does not change. Commits do wait for it.
        "synchronous_commit": "local",
    },
    "load": {"lock_timeout": "10s", "statement_timeout": "0", "idle_in_transaction_session_timeout": "60s"},
    "look": {
        "lock_timeout": "10s",
        "statement_timeout": "60s",
        "idle_in_transaction_session_timeout": "60s",
        "idle_session_timeout": f"{IDLE_LOOK:g}s",
    },
}
"""Set in every session, as a role or a service may have other defaults. The owner may load for minutes."""

_AT_ONCE = "-c statement_timeout=0 -c lock_timeout=0 -c idle_session_timeout=0"
"""Options for the start of a session, before the others can be set."""
_FOR_ALL = {
    "idle_session_timeout": "0",
    "search_path": "pg_catalog",
    "default_transaction_isolation": "read committed",
    "default_transaction_deferrable": "off",
    "plan_cache_mode": "force_generic_plan",
    # All access is by key; without statistics the planner would read whole tables.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "jit": "off",
    "bytea_output": "hex",
}


def connect(place: DatabasePlace, kind: SessionKind, title: str, *, settings: dict[str, str] | None = None) -> Session:
    """Open a session, checked: a server that we know, no pooler in between, and with our settings.

    Args:
        place: The store.
        kind: For which use.
        title: `application_name`; its unique part comes first, as it is cut at 63 bytes.
        settings: Further settings of the session. Default: none.

    Returns:
        The session.

    Raises:
        DatabaseFailure: The database cannot be reached, or is not one that takes writes where that is needed.
        EngineError: psycopg is missing, the server is too old, or a pooler stands in between.
    """
    try:
        return _connect(place, kind, title, settings or {}, _AT_ONCE)
    except DatabaseFailure as failure:
        if failure.state != _TRANSACTION_TIMEOUT:
            raise
    # The role's own was so short that the session could not set it in time; older servers do not know the option.
    return _connect(place, kind, title, settings or {}, f"{_AT_ONCE} -c transaction_timeout=0")


def _connect(place: DatabasePlace, kind: SessionKind, title: str, settings: dict[str, str], options: str) -> Session:
    driver = _driver()
    failures: list[DatabaseFailure] = []
    for conninfo, patience in _attempts(place, kind, title, options):
        try:
            connection = _connected(driver, conninfo, patience)
        except DatabaseFailure as failure:
            if "unsupported startup parameter" in failure.text:
                raise _pooled(place, failure.text) from failure
            failures.append(failure)
            continue
        if connection.server_version < _OLDEST:
            connection.finish()
            raise EngineError(
                f"{place.words} is PostgreSQL {connection.server_version // 10000}; versions 15 to 18 are supported"
            )
        session = Session(connection, kind, connection.backend_pid, connection.server_version)
        try:
            _settle(session, place, kind, settings)
        except BaseException:
            session.close()
            raise
        return session
    raise _worst(failures)


def _settle(session: Session, place: DatabasePlace, kind: SessionKind, settings: dict[str, str]) -> None:
    wanted = {**_FOR_ALL, **_SETTINGS[kind], **settings}
    if session.version >= HAS_TRANSACTION_TIMEOUT:
        wanted.setdefault("transaction_timeout", "0")
    sets = ", ".join(f"set_config('{name}', '{value}', false)" for name, value in wanted.items())
    facts = "pg_backend_pid()::bigint, pg_is_in_recovery()::int::bigint"
    (answer,) = session.ask([(Statement(f"SELECT {facts}, {sets}".encode()), ())], _CONNECT_WITHIN)
    pid = numbered(answer.get_value(0, 0))
    if pid != session.pid:
        raise _pooled(place, f"libpq reports process {session.pid} of the server, and the server says {pid}")
    if kind in {"commit", "lock"} and numbered(answer.get_value(0, 1)):
        raise DatabaseFailure("the server is a standby, which takes no writes", "25006")


def _pooled(place: DatabasePlace, why: str) -> EngineError:
    return EngineError(
        f"{place.words} is a connection pooler ({why}). Locks and sessions of a store do not survive pooling: give the "
        "address of the database itself"
    )


def _driver() -> Any:
    try:
        from psycopg import pq  # noqa: PLC0415 - psycopg is an extra
    except ImportError as error:
        raise EngineError(
            "a store in PostgreSQL needs psycopg 3.2.4 or later, which is not installed "
            f"({' '.join(str(error).split())}): pip install 'actorproc[postgres]'"
        ) from error
    _check_driver()
    return pq.PGconn


def _check_driver() -> None:
    import psycopg  # noqa: PLC0415 - as above

    parts = tuple(int(part) for part in psycopg.__version__.split(".")[:3] if part.isdecimal())
    if parts < (3, 2, 4):
        raise EngineError(
            f"psycopg {psycopg.__version__} is too old, 3.2.4 is needed: pip install -U 'actorproc[postgres]'"
        )


def _attempts(place: DatabasePlace, kind: SessionKind, title: str, options: str) -> Iterator[tuple[bytes, float]]:
    """Connection strings to try in turn, each with its seconds: one for each host, so that each has its time."""
    from psycopg import ProgrammingError, conninfo  # noqa: PLC0415 - as above

    try:
        given = {name: str(value) for name, value in conninfo.conninfo_to_dict(place.url).items() if value is not None}
    except ProgrammingError as error:
        raise EngineError(f"{place.words} cannot be used: {_without_values(str(error))}") from None
    given["application_name"] = title.encode("ascii", "replace").decode()[:_LONGEST_TITLE]
    given.setdefault("keepalives_idle", "5")
    given.setdefault("keepalives_interval", "2")
    given.setdefault("keepalives_count", "3")
    given.setdefault("tcp_user_timeout", "15000")
    if kind != "look":
        given["target_session_attrs"] = "primary"
    # Settings of a role or a service would hold from the first statement on.
    given["options"] = f"{given.get('options', '')} {options}".strip()
    wanted = given.pop("connect_timeout", os.environ.get("PGCONNECT_TIMEOUT", ""))
    patience = float(wanted) if wanted.isdecimal() and int(wanted) > 0 else _CONNECT_WITHIN
    hosts = given.get("host", "").split(",")
    addresses = given.get("hostaddr", "").split(",")
    count = max(len(hosts), len(addresses))
    if count == 1 or given.get("target_session_attrs") == "prefer-standby":
        yield conninfo.make_conninfo("", **given).encode(), patience * count
        return
    ports = given.get("port", "").split(",")
    for place_ in range(count):
        one = dict(given)
        for name, values in (("host", hosts), ("hostaddr", addresses), ("port", ports)):
            value = values[place_] if len(values) == count else values[0]
            one.pop(name, None)
            if value:
                one[name] = value
        yield conninfo.make_conninfo("", **one).encode(), patience


def _connected(kind: Any, conninfo: bytes, patience: float) -> Connection:
    until = time.monotonic() + patience
    with _connecting:  # a fork waits: its copy would not know the socket
        connection = kind.connect_start(conninfo)
        _connections.add(connection)
    try:
        while not _is_connected(connection, until):
            pass
    except DatabaseFailure:
        connection.finish()
        raise
    except Exception as error:
        connection.finish()
        raise DatabaseFailure(str(error)) from error
    except BaseException:
        connection.finish()
        raise
    return connection


def _is_connected(connection: Connection, until: float) -> bool:
    """Do one part of connecting, and wait until the next can be done. Raises `DatabaseFailure`."""
    status = _FAILED
    if connection.status != _BAD:
        with _connecting:
            status = connection.connect_poll()
    if status == _FAILED:
        raise DatabaseFailure(connection.get_error_message())
    if status == _OK:
        return True
    poll = select.poll()
    poll.register(connection.socket, select.POLLIN if status == _READING else select.POLLOUT)
    rest = until - time.monotonic()
    if rest <= 0 or not poll.poll(rest * 1000 + 1):
        raise DatabaseFailure("no connection in time (timed out)", "08001")
    return False


def _worst(failures: Sequence[DatabaseFailure]) -> DatabaseFailure:
    """The failure to tell: of several hosts that of each, as any of them could have led."""
    if len(failures) == 1:
        return failures[0]
    states = {failure.state for failure in failures}
    return DatabaseFailure(
        "no host of the URL can be used: " + "; ".join(failure.text for failure in failures),
        states.pop() if len(states) == 1 else "08001",
    )


def _without_values(text: str) -> str:
    """A message of libpq's parser without what it quotes, which may be a password."""
    return text.partition('"')[0].strip() or "libpq does not understand it"


def new_title(place: DatabasePlace, role: str) -> str:
    """A name of this life of a process on a store, for `application_name`.

    Args:
        place: The store.
        role: Its use of the store.

    Returns:
        The name, 63 bytes at most: the server cuts longer ones. Store and unique part come first.
    """
    host = socket.gethostname().encode("ascii", "replace").decode()
    return f"{title_of_owners(place)}{secrets.token_hex(8)} {role} {os.getpid()} {host}"[:_LONGEST_TITLE]


def title_of_owners(place: DatabasePlace) -> str:
    """Beginning of the names of all sessions on a store.

    Args:
        place: The store.

    Returns:
        The text.
    """
    return f"actorproc-{place.lock & 0xFFFFFFFF:08x}-"


_connections: weakref.WeakSet[Connection] = weakref.WeakSet()
_connecting = threading.Lock()


def _replace(connection: Connection) -> None:
    with contextlib.suppress(Exception):
        null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        os.dup2(null, connection.socket, inheritable=False)
        os.close(null)


def _in_forked_copy() -> None:
    _connecting.release()
    for connection in list(_connections):
        _replace(connection)


at_fork(before=_connecting.acquire, in_parent=_connecting.release, in_child=_in_forked_copy)
