"""A crowd of clients on a database that takes few connections: none gives up, and the leader is not kept out."""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc import Config, ProcedureClient, ProcedureManager
from actorproc.store.postgres.connecting import title_of_owners
from actorproc.store.postgres.place import place_of
from actorproc.testing.database_server import DatabaseServer
from tests.databases import database_or_skip
from tests.kit.procedures import Add
from tests.kit.waiting import wait_until
from tests.leaders.conftest import ROLE, ask

CLIENTS = min(int(os.environ.get("ACTORPROC_CROWD", "30")), 250)
"""Clients at once, of which a leader takes 256; nightly 200."""
pytestmark = [pytest.mark.processes, pytest.mark.timeout(60 + CLIENTS)]
LEASE = 1.0
CONNECTIONS = 30 if CLIENTS >= 100 else 15
"""Connections of the database, of which three are kept for administrators."""


def config() -> Config:
    return Config(lease=LEASE, spares=0, allow_any_filesystem=True, commit_backoff=0.05, commit_backoff_cap=0.2)


def leads(manager: ProcedureManager) -> bool:
    return manager._tree.leads


class Crowd:
    """Clients, each with a thread of its own, which all do the same at once."""

    def __init__(self, url: str) -> None:
        self.clients = [ProcedureClient(url, patience=60.0, config=config()) for _ in range(CLIENTS)]

    def begin(self, round_: int) -> Round:
        return Round(self.clients, round_)

    def close(self) -> None:
        for client in self.clients:
            client.close()


class Round:
    """One call of each client."""

    def __init__(self, clients: list[ProcedureClient], round_: int) -> None:
        self.sums: list[int] = []
        self.failed: list[BaseException] = []
        self._threads = [
            threading.Thread(target=self._run, args=(client, number, round_), daemon=True)
            for number, client in enumerate(clients)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, client: ProcedureClient, number: int, round_: int) -> None:
        try:
            self.sums.append(client.run(Add(number, round_), id=f"r{round_}-{number}"))
        except BaseException as error:  # noqa: BLE001 - it is told by the test
            self.failed.append(error)

    def end(self, round_: int) -> None:
        for thread in self._threads:
            thread.join(60.0)
        assert self.failed == []
        assert sorted(self.sums) == [number + round_ for number in range(CLIENTS)]


def sessions(url: str, role: str = "") -> int:
    """Sessions of the store by the second word of their names, without ours."""
    words = f"application_name LIKE '{title_of_owners(place_of(url))}%'"
    if role:
        words += f" AND split_part(application_name, ' ', 2) = '{role}'"
    ((count,),) = ask(url.replace(f"//{ROLE}@", "//actorproc@"), f"SELECT count(*) FROM pg_stat_activity WHERE {words}")
    return count


@contextlib.contextmanager
def two_managers(connections: int, config: Config) -> Iterator[tuple[DatabaseServer, str, list[ProcedureManager]]]:
    """Two managers on a server of their own that takes so few connections, the URL of its store, and the server."""
    database_or_skip()
    with DatabaseServer(settings=[f"max_connections={connections}"]) as server, contextlib.ExitStack() as stack:
        ask(server.url(), f"CREATE ROLE {ROLE} LOGIN", f"GRANT CREATE ON DATABASE postgres TO {ROLE}")
        url = server.url("crowd").replace("//actorproc@", f"//{ROLE}@")
        managers = []
        for _ in range(2):
            managers.append(ProcedureManager(url, procedures=[Add], workers=1, config=config).start())
            stack.callback(managers[-1].stop, drain=False, timeout=5.0)
        yield server, url, list(managers)


def test_a_crowd_of_clients_goes_on_through_a_restart_of_a_small_database():
    with two_managers(CONNECTIONS, config()) as (server, url, managers), contextlib.closing(Crowd(url)) as crowd:
        crowd.begin(0).end(0)
        # The leader has three sessions, a follower one; and clients, of which each has a link, none.
        wait_until(lambda: sessions(url, "reader") == 0)
        assert sessions(url, "manager") <= 3
        assert sessions(url) <= 2 * 3
        assert all(client._engine._channel.is_connected for client in crowd.clients)

        server.stop()
        ended = time.monotonic()
        one = crowd.begin(1)
        wait_until(lambda: time.monotonic() - ended > 1.5 * LEASE)  # the links were closed, and all look for a leader
        server.start()
        one.end(1)
        assert re.search("too many clients|connection slots", server.log), "the crowd was no crowd"
        assert sorted(map(leads, managers)) == [False, True]
        crowd.begin(2).end(2)
        wait_until(lambda: sessions(url, "reader") == 0)
        assert sessions(url) <= 2 * 3
