"""A manager, readers, clients and the stopped store on the URL of a database."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from actorproc import (
    Config,
    ProcedureClient,
    ProcedureExecutor,
    ProcedureManager,
    Saga,
    StateTooLarge,
    StoreInUse,
    StoreReader,
    UsageError,
    step,
)
from actorproc.api.stopped import StoppedStore
from actorproc.errors import EngineError
from actorproc.store.home import home_of
from tests.databases import database_or_skip

pytestmark = pytest.mark.processes


class Counted(Saga):
    number: int

    @step
    def add(self, ctx):
        self.number += 1

    @step
    def tell(self, ctx):
        return self.number


class Environment(Saga):
    @step
    def look(self, ctx):
        names = [name for name in os.environ if name.startswith(("PG", "ACTORPROC_PATH"))]
        return {"names": sorted(names), "modules": sorted({"psycopg", "lmdb"} & set(sys.modules))}


def twice(x):
    return x * 2


def enlarged(size):
    return b"x" * size


def raises(x):
    raise LookupError(x)


@pytest.fixture
def state_home(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))
    return tmp_path / "state-home"


@pytest.fixture
def url(database_url, state_home):
    return database_url


@pytest.mark.parametrize(("asked", "waits"), [(10.0, 0.5), (0.2, 0.2)])
def test_a_database_is_tried_again_after_half_a_second_at_most(url, asked, waits):
    with ProcedureManager(url, workers=1, config=Config(commit_backoff_cap=asked)) as manager:
        assert manager._tree._local._config.commit_backoff_cap == waits


def test_a_manager_runs_stops_and_goes_on(url):
    with ProcedureManager(url, procedures=[Counted], workers=2) as manager:
        assert manager.run(Counted(3)) == 4
        handles = manager.submit_many([Counted(n) for n in range(50)])
        assert [handle.result() for handle in handles] == list(range(1, 51))
        manager.submit(Counted(7), id="later", delay=0.05)

    with ProcedureManager(url, procedures=[Counted], workers=2) as manager:
        assert manager.get("later").result() == 8
        assert len(manager.list(limit=100)) == 52


def test_readers_and_clients_see_it_by_the_same_url(url):
    with ProcedureManager(url, procedures=[Counted], workers=2) as manager:
        manager.run(Counted(3), id="a")
        with StoreReader(url) as reader:
            assert reader.owner().pid == os.getpid()
            assert reader.info("a").state == "SUCCESS"
            assert reader.steps("a") == manager.steps("a")
            assert reader.stats().procedures == 1
            assert reader.path == home_of(url).words
        with ProcedureClient(url, procedures=[Counted]) as client:
            assert client.run(Counted(5), id="b") == 6
            assert client.get("a").result() == 4
            assert {info.id for info in client.list()} == {"a", "b"}

    with StoreReader(url) as reader:
        assert reader.owner() is None
    with StoppedStore(url) as stopped:
        stopped.submit(Counted(1), id="c")
        assert stopped.info("c").state == "RUNNABLE"


def test_a_stopped_store_is_not_opened_while_a_manager_leads(url):
    with ProcedureManager(url, procedures=[Counted], workers=1), pytest.raises(StoreInUse), StoppedStore(url):
        pass


def test_workers_have_neither_the_password_nor_a_driver_nor_a_socket_of_the_database(url, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", "secret")
    with_password = url.replace("actorproc@", "actorproc:secret@")
    monkeypatch.setenv("ACTORPROC_PATH", with_password)
    with ProcedureManager(with_password, procedures=[Environment], workers=1) as manager:
        found = manager.run(Environment())
        assert "secret" not in repr(manager) + repr(manager.health())
        pids = [worker.pid for worker in manager.workers()]
        assert pids
        for pid in pids:
            assert b"secret" not in Path(f"/proc/{pid}/environ").read_bytes()
            assert sockets_to(pid, database_or_skip().port) == []

    assert found["names"] == []
    assert found["modules"] == []


def sockets_to(pid, port):
    """Descriptors of a process that are sockets to a port of this machine."""
    table = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    inodes = {f"socket:[{words[9]}]" for words in table if int(words[2].rpartition(":")[2], 16) == port}
    found = []
    for place in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            found.append(str(place.readlink()))
    return [target for target in found if target in inodes]


def test_an_executor_runs_calls_and_refuses_arguments_that_no_row_holds(url):
    config = Config(max_state=1 << 20)
    with ProcedureManager(url, workers=1, config=config) as manager, ProcedureExecutor(manager) as executor:
        assert executor.submit(twice, 21).result() == 42
        with pytest.raises(LookupError):
            executor.submit(raises, 1).result()
        with pytest.raises(StateTooLarge, match="storage that all machines share"):
            executor.submit(twice, b"x" * (2 << 20)).result()
        with pytest.raises(StateTooLarge, match="shared storage"):
            executor.submit(enlarged, 17 << 20).result()


def test_a_setting_that_no_row_holds_is_refused(url):
    with pytest.raises(UsageError, match=r"Config.max_state is"):
        ProcedureManager(url, config=Config(max_state=1 << 30, max_frame=(1 << 30) + (1 << 20)))


def test_a_backup_of_a_running_manager_is_a_directory_that_starts(url, tmp_path):
    with ProcedureManager(url, procedures=[Counted], workers=1) as manager:
        manager.run(Counted(3), id="a")
        manager.submit(Counted(9), id="later", delay=3600)
        report = manager.backup(tmp_path / "copy")
        assert report.copied_from != report.store_id

    with ProcedureManager(tmp_path / "copy", procedures=[Counted], workers=1) as manager:
        assert manager.get("a").result() == 4
        assert manager.run(Counted(5)) == 6
        assert manager.info("later").state == "RUNNABLE"


def test_a_missing_driver_is_told_with_what_to_install(url):
    program = f"import sys\nsys.modules['psycopg'] = None\nfrom actorproc import StoreReader\nStoreReader({url!r})\n"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)

    assert "pip install 'actorproc[postgres]'" in done.stderr


def test_a_store_that_is_not_there_is_told(url, tmp_path):
    missing = f"{url}_missing"
    with pytest.raises(EngineError, match="there is no store at"):
        StoreReader(missing)
    assert not home_of(missing).exists()
    with pytest.raises(EngineError, match="there is no store at"), StoppedStore(missing):
        pass
