"""A manager over outages of its database: real signals to a real server, under load."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from actorproc import ProcedureManager, Saga, StorageUnavailable, step
from actorproc.errors import EngineError
from actorproc.store.postgres.connecting import connect
from actorproc.store.postgres.place import place_of
from actorproc.store.postgres.sessions import Statement
from actorproc.store.postgres.store import DatabaseStore
from actorproc.testing.database_server import DatabaseServer
from tests.databases import database_or_skip
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes

MANY = 64


class Longer(Saga):
    """Some steps; each writes a line into a journal before it ends, so that lost and repeated ones are seen."""

    journal: str
    done: int = 0

    def _note(self, name: str) -> None:
        with Path(self.journal).open("a") as file:
            file.write(f"{name}\n")

    @step
    def one(self, ctx):
        self._note(f"{ctx.id} one")
        self.done += 1

    @step
    def two(self, ctx):
        self._note(f"{ctx.id} two")
        self.done += 1

    @step
    def three(self, ctx):
        self._note(f"{ctx.id} three")
        self.done += 1
        return self.done


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A server of this test alone, which it may end."""
    database_or_skip()  # skips where there is none
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))
    with DatabaseServer() as made:
        yield made


def administrate(server, sql, name="postgres"):
    session = connect(place_of(server.url()), "look", f"administrator {name}")
    try:
        (answer,) = session.ask([(Statement(sql.encode(), once=True), ())], 10.0)
    finally:
        session.close()
    return answer


class Load:
    """Submits until it is told to stop; what was acknowledged must end, and end once."""

    def __init__(self, manager, journal):
        self.manager, self.journal = manager, journal
        self.handles = []
        self.refused = 0
        self.failed = None
        self.room = threading.Semaphore(MANY)
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.run)
        self.thread.start()

    def run(self):
        number = 0
        while not self.over.is_set():
            if not self.room.acquire(timeout=0.1):
                continue
            number += 1
            try:
                handle = self.manager.submit(Longer(self.journal), id=f"p{number}")
                handle.add_done_callback(lambda _: self.room.release())
            except StorageUnavailable:
                self.refused += 1
                self.room.release()
                self.over.wait(0.02)
            except Exception as error:  # noqa: BLE001 - told to the test
                self.failed = error
                return
            else:
                self.handles.append(handle)

    def stop(self):
        self.over.set()
        self.thread.join()
        assert self.failed is None
        results = [handle.result(60) for handle in self.handles]
        assert results == [3] * len(self.handles)
        lines = Path(self.journal).read_text().split("\n")
        for handle in self.handles:
            # A step may run again; it is in the state once, as the result above says.
            assert {f"{handle.id} {name}" for name in ("one", "two", "three")} <= set(lines)
        return len(results)


@pytest.mark.parametrize("how", [signal.SIGQUIT, signal.SIGINT], ids=["a crash", "a fast restart"])
def test_a_database_that_restarts_under_load_loses_nothing(server, tmp_path, how):
    with ProcedureManager(server.url(), procedures=[Longer], workers=2) as manager:
        load = Load(manager, str(tmp_path / "journal"))
        for _ in range(3):
            before = len(load.handles)
            wait_until(lambda before=before: len(load.handles) > before + 20)
            server.restart(how)
        wait_until(lambda: manager.health().status == "running")
        assert load.stop() > 60
        heads = manager.list(limit=1)
        assert heads[0].state == "SUCCESS"

    with ProcedureManager(server.url(), procedures=[Longer], workers=1) as manager:
        assert {info.state for info in manager.list(limit=10_000)} == {"SUCCESS"}


def test_sessions_that_an_administrator_ends_under_load_cost_nothing(server, tmp_path):
    with ProcedureManager(server.url(), procedures=[Longer], workers=2) as manager:
        load = Load(manager, str(tmp_path / "journal"))
        for _ in range(5):
            before = len(load.handles)
            wait_until(lambda before=before: len(load.handles) > before + 10)
            administrate(
                server,
                "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE application_name LIKE 'actorproc%'",
            )
        assert load.stop() > 50


def test_a_server_that_stands_still_is_waited_for(server, tmp_path):
    """SIGSTOP of all its processes: a slow database, as seen from here."""
    with ProcedureManager(server.url(), procedures=[Longer], workers=2) as manager:
        load = Load(manager, str(tmp_path / "journal"))
        wait_until(lambda: len(load.handles) > 20)
        pids = processes_of(server)
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)
        threading.Event().wait(1.0)
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        assert load.stop() > 20


def processes_of(server):
    found = [server.pid]
    for place in Path("/proc").iterdir():
        if place.name.isdecimal():
            with contextlib.suppress(OSError, IndexError):
                fields = (place / "stat").read_text().rpartition(")")[2].split()
                if int(fields[1]) == server.pid:
                    found.append(int(place.name))
    return found


def test_a_commit_that_finds_no_room_is_an_outage_in_words_and_goes_on(server, tmp_path):
    url = server.url()
    with ProcedureManager(url, procedures=[Longer], workers=1) as manager:
        manager.run(Longer(str(tmp_path / "journal")), id="a")
        schema = place_of(url).schema
        administrate(
            server,
            f"CREATE FUNCTION {schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS "
            "$$ BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$",
        )
        administrate(
            server,
            f"CREATE TRIGGER refuse BEFORE INSERT ON {schema}.batch FOR EACH ROW EXECUTE FUNCTION {schema}.refuse()",
        )
        late = threading.Thread(target=try_submit, args=(manager, tmp_path))
        late.start()
        wait_until(lambda: manager.health().status != "running")
        with pytest.raises(StorageUnavailable, match="no disk space left"):
            manager.submit(Longer(str(tmp_path / "journal")))
        administrate(server, f"DROP FUNCTION {schema}.refuse() CASCADE")
        late.join()
        wait_until(lambda: manager.health().status == "running")

        assert manager.run(Longer(str(tmp_path / "journal")), id="c") == 3


def test_a_full_disk_is_an_outage_until_there_is_room(server, tmp_path):
    """A tablespace on a file system of some MB, which is filled."""
    place = Path(server.directory, "small")
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m,mode=0777", "tmpfs", str(place)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no small file system can be mounted here: {mounted.stderr.decode().strip()}")
    try:
        inside = place / "space"
        inside.mkdir()
        inside.chmod(0o777)
        owner = Path(server.directory, "data").stat()
        os.chown(inside, owner.st_uid, owner.st_gid)
        administrate(server, f"CREATE TABLESPACE small LOCATION '{inside}'")
        url = server.url()
        with ProcedureManager(url, procedures=[Longer], workers=1) as manager:
            manager.run(Longer(str(tmp_path / "journal")), id="a")
        administrate(server, f"ALTER TABLE {place_of(url).schema}.steps SET TABLESPACE small")
        filler = place / "filler"
        with ProcedureManager(url, procedures=[Longer], workers=1) as manager:
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(b"x" * 4096):
                    pass
            late = threading.Thread(target=fill_it, args=(manager, tmp_path))
            late.start()
            wait_until(lambda: manager.health().status != "running")
            with pytest.raises(StorageUnavailable, match="no disk space left"):
                manager.submit(Longer(str(tmp_path / "journal")))
            filler.unlink()
            late.join()
            wait_until(lambda: manager.health().status == "running")
            assert manager.run(Longer(str(tmp_path / "journal")), id="c") == 3
    finally:
        server.stop()
        subprocess.run(["umount", "-l", str(place)], capture_output=True, check=False)


def fill_it(manager, tmp_path):
    with contextlib.suppress(StorageUnavailable):
        for number in range(2000):
            manager.submit(Longer(f"{tmp_path / 'journal'}{'/.' * 500}"), id=f"b{number}")


def test_a_server_that_is_gone_for_long_is_told_and_come_back_to(server, tmp_path):
    with ProcedureManager(server.url(), procedures=[Longer], workers=1) as manager:
        manager.run(Longer(str(tmp_path / "journal")), id="a")
        server.stop(signal.SIGQUIT)
        handles = []
        late = threading.Thread(target=lambda: handles.append(try_submit(manager, tmp_path)))
        late.start()
        wait_until(lambda: manager.health().status != "running")
        with pytest.raises(StorageUnavailable, match=r"cannot|refuses|try again|Connection refused"):
            manager.submit(Longer(str(tmp_path / "journal")))
        server.start()
        late.join()
        wait_until(lambda: manager.health().status == "running")
        assert manager.run(Longer(str(tmp_path / "journal")), id="c") == 3


def try_submit(manager, tmp_path):
    """Either it is refused, or it counts once the database is back."""
    try:
        return manager.submit(Longer(str(tmp_path / "journal")), id="b").result()
    except StorageUnavailable as error:
        return error


def test_too_many_clients_are_told_as_that(server):
    sessions = []
    administrate(server, "CREATE ROLE few LOGIN CONNECTION LIMIT 3")
    administrate(server, "GRANT CREATE ON DATABASE postgres TO few")
    place = place_of(server.url().replace("actorproc@", "few@"))
    try:
        sessions += [connect(place, "look", "one of many") for _ in range(3)]
        with pytest.raises(EngineError, match="too many clients already; raise max_connections"):
            DatabaseStore(place).own()
    finally:
        for session in sessions:
            session.close()
