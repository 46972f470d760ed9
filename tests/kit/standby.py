"""A standby of a private database server: it follows through a proxy, so that it can be held behind, and is promoted."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable
from typing import Self

from actorproc.testing.database_server import DatabaseServer, _as_user, _postgres_user
from actorproc.testing.torture.cluster.proxy import Proxy
from tests.kit.waiting import wait_until

__all__ = ["Replicated", "Standby"]


class Standby(DatabaseServer):
    """A server whose data is copied from another, and follows it.

    Args:
        primary: The server that it copies.
        port: Port on which it finds that server, as that of a proxy.
    """

    def __init__(self, primary: DatabaseServer, port: int) -> None:
        super().__init__()
        self._primary = primary
        self._from = port

    def _make(self) -> None:
        user = _postgres_user() if os.geteuid() == 0 else None
        if user is not None:
            os.chown(self.directory, user.pw_uid, user.pw_gid)
        data = self.directory / "data"
        command = [*_as_user(), str(self._binaries / "pg_basebackup"), "-h", "127.0.0.1", "-p", str(self._from)]
        command += ["-U", "actorproc", "-D", str(data), "-R", "-X", "stream", "-c", "fast", "--no-sync"]
        done = subprocess.run(command, cwd=self.directory, capture_output=True, check=False)
        assert not done.returncode, done.stderr
        self._made = True


class Replicated:
    """A server and its standby. A context manager.

    Args:
        prepare: Called with the URL of the server before it is copied.
        synchronous: A commit waits until the standby has it. Default: False.
    """

    def __init__(self, prepare: Callable[[str], object], *, synchronous: bool = False) -> None:
        self._synchronous = synchronous
        self._prepare = prepare
        self.primary = DatabaseServer()
        self.standby: Standby

    def __enter__(self) -> Self:
        self.primary.start()
        self._prepare(self.primary.url())
        self.proxy = Proxy("127.0.0.1", self.primary.port)
        self.standby = Standby(self.primary, self.proxy.port)
        self.standby.start()
        if self._synchronous:
            self.ask("ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()")
        wanted = "sync" if self._synchronous else "async"
        asked = "SELECT sync_state FROM pg_stat_replication WHERE state = 'streaming'"
        wait_until(lambda: self.ask(asked) == [(wanted,)])
        return self

    def __exit__(self, *_: object) -> None:
        self.proxy.close()
        self.standby.close()
        self.primary.close()

    def url(self, store: str, role: str) -> str:
        """The URL of a store with both hosts."""
        hosts = f"127.0.0.1:{self.primary.port},127.0.0.1:{self.standby.port}"
        return f"postgresql://{role}@{hosts}/postgres?store={store}"

    def ask(self, *statements: str) -> list[tuple]:
        """Rows of the last statement, asked of the first server."""
        import psycopg

        with psycopg.connect(self.primary.url(), autocommit=True) as connection:
            for statement in statements:
                cursor = connection.execute(statement)
            return cursor.fetchall() if cursor.description else []

    def catch_up(self) -> None:
        """Wait until the standby has all that is stored."""
        ((now,),) = self.ask("SELECT pg_current_wal_lsn()::text")
        has = f"SELECT replay_lsn >= '{now}'::pg_lsn FROM pg_stat_replication"
        wait_until(lambda: self.ask(has) == [(True,)])

    def fail_over(self) -> None:
        """The first server crashes and stays away; the standby takes its place."""
        self.primary.stop(signal.SIGQUIT)
        import psycopg

        with psycopg.connect(self.standby.url(), autocommit=True) as connection:
            assert connection.execute("SELECT pg_promote()").fetchone() == (True,)
