"""A database whose disk is full: real ones, of a few megabytes. Nothing acknowledged is lost, and work goes on."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc import Config, Procedure, ProcedureClient, ProcedureManager, Status
from actorproc.testing.database_server import DatabaseServer
from tests.databases import database_or_skip
from tests.kit.waiting import BOUND, wait_until
from tests.leaders.conftest import ROLE, ask

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]
SIZE = 128
"""MiB of the disk."""
LONG = 256 * 1024


@dataclass
class Keep(Procedure):
    """A procedure with a long state, which the database has to find room for."""

    text: str = ""

    def execute(self, ctx):
        return Status.done(len(self.text))


@dataclass
class SmallDisk:
    """A database on a disk of its own."""

    server: DatabaseServer
    url: str

    @property
    def _filler(self) -> str:
        return str(self.server.directory / "filler")

    def fill(self) -> None:
        with open(self._filler, "ab", buffering=0) as filler, contextlib.suppress(OSError):  # noqa: PTH123
            while True:
                filler.write(bytes(1 << 16))
        with open(self._filler, "ab", buffering=0) as filler, contextlib.suppress(OSError):  # noqa: PTH123
            while True:
                filler.write(bytes(512))

    def free(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._filler)  # noqa: PTH108


@pytest.fixture
def disk() -> Iterator[SmallDisk]:
    database_or_skip()
    settings = ["min_wal_size=32MB", "max_wal_size=48MB", "shared_buffers=16MB", "max_connections=40"]
    server = DatabaseServer(fsync=True, settings=settings)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={SIZE}m", "tmpfs", str(server.directory)]
    if os.geteuid() or subprocess.run(mount, capture_output=True, check=False).returncode:
        server.close()
        pytest.skip("this user may mount no disk of its own")
    try:
        server.start()
        ask(server.url(), f"CREATE ROLE {ROLE} LOGIN", f"GRANT CREATE ON DATABASE postgres TO {ROLE}")
        yield SmallDisk(server, server.url("full").replace("//actorproc@", f"//{ROLE}@"))
    finally:
        server.stop(signal.SIGQUIT)
        subprocess.run(["umount", "-l", str(server.directory)], check=True)
        server.close()


def config() -> Config:
    return Config(lease=2.0, spares=0, allow_any_filesystem=True, commit_backoff=0.05, commit_backoff_cap=0.2)


@pytest.fixture
def manager(disk):
    manager = ProcedureManager(disk.url, procedures=[Keep], workers=1, config=config()).start()
    yield manager
    manager.stop(drain=False, timeout=5.0)


class Submits:
    """A client that submits long states, one after the other, until it is stopped."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.acknowledged: list[str] = []
        self.failed: list[BaseException] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            with ProcedureClient(self.url, patience=2 * BOUND, procedures=[Keep], config=config()) as client:
                while not self._stop.is_set():
                    number = len(self.acknowledged)
                    text = os.urandom(LONG // 2).hex()
                    self.acknowledged.append(client.submit(Keep(text), id=f"n{number}").id)
        except BaseException as error:  # noqa: BLE001 - it is told by the test
            self.failed.append(error)

    def await_more(self, count: int) -> None:
        before = len(self.acknowledged)
        wait_until(lambda: self.failed or len(self.acknowledged) >= before + count)

    def end(self) -> None:
        self._stop.set()
        self._thread.join(2 * BOUND)
        assert self.failed == []
        assert not self._thread.is_alive()


@pytest.mark.parametrize("where", ["tables", "log"])
def test_a_full_disk_is_an_outage_that_loses_nothing(disk, manager, where):
    """In `tables` a commit fails with 53100. In its write-ahead log the server crashes, again and again (57P03)."""
    submits = Submits(disk.url)
    submits.await_more(3)
    disk.fill()
    if where == "log":
        with contextlib.suppress(Exception):
            ask(disk.server.url(), "SELECT pg_switch_wal()", "CREATE TABLE t AS SELECT 1", "SELECT pg_switch_wal()")
    health = wait_until(lambda: next((one for one in (manager.health(),) if one.status != "running"), None))
    assert health.status in {"storage-trouble", "degraded"}
    if where == "tables":
        wait_until(lambda: "no space left" in " ".join(manager.health().problems).lower())
    else:
        wait_until(lambda: "PANIC" in disk.server.log)
    before = len(submits.acknowledged)
    disk.free()
    if where == "log":
        disk.server.stop(signal.SIGQUIT)  # it may have given up
        disk.server.start()
    submits.await_more(3)
    submits.end()
    assert len(submits.acknowledged) >= before + 3
    for id_ in submits.acknowledged:
        assert manager.get(id_).result(BOUND) == LONG // 2 * 2
    wait_until(lambda: manager.health().ok)
