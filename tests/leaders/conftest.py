"""Stores in a private database that several owners want, under an ordinary role, and a proxy in front of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from actorproc.store.postgres.place import place_of
from actorproc.store.postgres.store import DatabaseStore
from actorproc.testing.torture.cluster.proxy import Proxy
from tests.databases import database_or_skip, new_store
from tests.kit.warm_workers import warm_workers

__all__ = ["ROLE", "ask", "open_store", "proxy", "server", "state_home", "through", "url", "warm_workers"]

ROLE = "actorproc_user"


@pytest.fixture(autouse=True)
def state_home(tmp_path, monkeypatch) -> None:
    """Files that managers keep on their machine are kept with the test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))


@pytest.fixture(scope="session")
def server():
    """A server with an ordinary role: no superuser, no member of another role."""
    server = database_or_skip()
    ask(
        server.url(),
        f"DO $$ BEGIN CREATE ROLE {ROLE} LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END $$",
        f"GRANT CREATE ON DATABASE postgres TO {ROLE}",
    )
    return server


def ask(url: str, *statements: str) -> list[tuple]:
    """Rows of the last statement."""
    import psycopg

    address = place_of(url).url
    with psycopg.connect(address, autocommit=True) as connection:
        for statement in statements:
            cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


@pytest.fixture
def url(server) -> str:
    """The URL of a store that was never there, for the ordinary role."""
    return new_store().replace("//actorproc@", f"//{ROLE}@")


@pytest.fixture
def proxy(server) -> Iterator[Proxy]:
    with Proxy("127.0.0.1", server.port) as proxy:
        yield proxy


def through(url: str, proxy: Proxy) -> str:
    """The same store behind a proxy."""
    before, _, after = url.partition("@127.0.0.1:")
    return f"{before}@127.0.0.1:{proxy.port}/{after.partition('/')[2]}"


@pytest.fixture
def open_store() -> Iterator[Callable[..., DatabaseStore]]:
    opened: list[DatabaseStore] = []

    def make(url: str, lease: float = 1.0, **options) -> DatabaseStore:
        opened.append(DatabaseStore(url, lease=lease, allow_unsynced=True, **options))
        return opened[-1]

    yield make
    for store in opened:
        store.close()
