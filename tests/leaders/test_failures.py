"""Leaders that are killed, frozen, cut off, and a database that crashes: real processes, real signals, one oracle.

The oracle: every submit that was acknowledged ends, each step is stored once, every parent was woken once, and no commit
of an older epoch comes after one of a newer epoch. A trigger in the database writes down the epochs of the commits in
their order.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc import Config, ProcedureClient, StoreReader
from actorproc.errors import ActorprocError
from actorproc.store.home import home_of
from actorproc.store.postgres.connecting import title_of_owners
from actorproc.store.postgres.place import place_of
from tests.databases import database_or_skip
from tests.kit.waiting import BOUND, wait_until
from tests.leaders.conftest import ROLE, ask

FAILURES = int(os.environ.get("ACTORPROC_LEADER_FAILURES", "3"))
"""Failures of each kind in one run; nightly more."""
pytestmark = [pytest.mark.processes, pytest.mark.timeout(60 + 40 * FAILURES)]
LEASE = 1.0
SETTINGS = Config(lease=LEASE, spares=0, allow_any_filesystem=True, commit_backoff=0.05, commit_backoff_cap=0.2)

MODULE = """
import time
from dataclasses import dataclass
from actorproc import Procedure, Saga, Status, step


@dataclass
class Leaf(Procedure):
    number: int = 0

    def execute(self, ctx):
        time.sleep(0.01)
        return Status.done(self.number)


@dataclass
class Tree(Saga):
    number: int = 0

    @step
    def begin(self, ctx):
        return Status.suspended([(f"{ctx.id}-{place}", Leaf(place)) for place in range(3)])

    @step
    def woken(self, ctx):
        self.number += sum(outcome.output for outcome in ctx.children.values())

    @step
    def end(self, ctx):
        return self.number
"""
SERVICE = """
import sys
sys.path.insert(0, sys.argv[2])
from actorproc import Config, ProcedureManager
from failing_app import Leaf, Tree
config = eval(sys.argv[3])
with ProcedureManager(sys.argv[1], procedures=[Leaf, Tree], workers=2, config=config):
    print("up", flush=True)
    sys.stdin.read()
"""


class Service:
    """A manager in a process of its own, on the shared store."""

    def __init__(self, url: str, directory: Path) -> None:
        words = (
            f"Config(lease={LEASE}, spares=0, allow_any_filesystem=True, commit_backoff=0.05, commit_backoff_cap=0.2)"
        )
        self.process = subprocess.Popen(
            [sys.executable, "-c", SERVICE, url, str(directory), words],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def wait_up(self) -> None:
        assert self.process.stdout.readline() == "up\n"

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGCONT)
        self.process.kill()
        self.process.wait(BOUND)
        self.process.stdin.close()
        self.process.stdout.close()


class Cluster:
    """Managers on one store, and a client that submits all the time."""

    def __init__(self, url: str, directory: Path) -> None:
        self.url = url
        self._directory = directory
        (directory / "failing_app.py").write_text(MODULE)
        self.services: dict[int, Service] = {}
        self.acknowledged: list[str] = []
        self._stop = threading.Event()
        self._refused: list[BaseException] = []
        for _ in range(2):
            self.add()
        for service in list(self.services.values()):
            service.wait_up()
        self._watch_epochs()
        self._submitter = threading.Thread(target=self._submit, daemon=True)
        self._submitter.start()

    def add(self) -> Service:
        service = Service(self.url, self._directory)
        self.services[service.process.pid] = service
        return service

    def leader(self) -> Service:
        """The service that leads now."""

        def found() -> Service | None:
            with contextlib.suppress(ActorprocError):
                leader = home_of(self.url).leader()
                if leader is not None and leader.leads:
                    return self.services.get(int(leader.owner.split()[1]))
            return None

        return wait_until(found)

    def await_progress(self, count: int = 5) -> None:
        """Wait until this number of further submits was acknowledged."""
        before = len(self.acknowledged)
        wait_until(lambda: len(self.acknowledged) >= before + count)

    def _watch_epochs(self) -> None:
        schema = place_of(self.url).schema
        ask(
            self.url,
            f"CREATE TABLE {schema}.seen (n bigserial, epoch bigint)",
            f"CREATE FUNCTION {schema}.see() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN INSERT INTO {schema}.seen (epoch) VALUES (NEW.epoch); RETURN NEW; END $$",
            f"CREATE TRIGGER see AFTER INSERT ON {schema}.batch FOR EACH ROW EXECUTE FUNCTION {schema}.see()",
        )

    def _submit(self) -> None:
        sys.path.insert(0, str(self._directory))
        from failing_app import Tree

        with ProcedureClient(self.url, patience=60.0, config=SETTINGS) as client:
            number = 0
            while not self._stop.is_set():
                number += 1
                try:
                    self.acknowledged.append(client.submit(Tree(number), id=f"t{number}").id)
                except ActorprocError as error:
                    self._refused.append(error)  # it may be stored, or not: it was not acknowledged
                time.sleep(0.01)

    def judge(self) -> None:
        """Wait for the ends of all that was acknowledged, and look for what must not be."""
        self._stop.set()
        self._submitter.join(BOUND)
        assert not self._submitter.is_alive()
        with ProcedureClient(self.url, patience=60.0, config=SETTINGS) as client:
            for id_ in self.acknowledged:
                assert client.get(id_).result(90.0) == int(id_[1:]) + 3
        schema = place_of(self.url).schema
        epochs = [epoch for (epoch,) in ask(self.url, f"SELECT epoch FROM {schema}.seen ORDER BY n")]
        assert epochs == sorted(epochs)
        with StoreReader(self.url) as reader:
            for id_ in self.acknowledged:
                names = [record.step_name for record in reader.steps(id_)]
                assert names == [None, "begin", "woken", "end"], id_
                assert len(list(reader.list(root=id_))) == 4

    def close(self) -> None:
        self._stop.set()
        for service in self.services.values():
            service.end()
        with contextlib.suppress(ValueError):
            sys.path.remove(str(self._directory))
        sys.modules.pop("failing_app", None)


@pytest.fixture
def cluster(url, tmp_path) -> Iterator[Cluster]:
    cluster = Cluster(url, tmp_path)
    yield cluster
    cluster.close()


def kill(cluster: Cluster) -> None:
    leader = cluster.leader()
    leader.process.kill()
    leader.end()
    del cluster.services[leader.process.pid]
    cluster.add()


def kill_follower(cluster: Cluster) -> None:
    leader = cluster.leader()
    epoch = home_of(cluster.url).leader().epoch
    follower = next(service for service in cluster.services.values() if service is not leader)
    follower.end()
    del cluster.services[follower.process.pid]
    cluster.await_progress()
    assert home_of(cluster.url).leader().epoch == epoch
    cluster.add().wait_up()


def freeze(cluster: Cluster) -> None:
    leader = cluster.leader()
    os.kill(leader.process.pid, signal.SIGSTOP)
    wait_until(lambda: cluster.leader() is not leader)
    cluster.await_progress()
    os.kill(leader.process.pid, signal.SIGCONT)


def end_sessions(cluster: Cluster) -> None:
    place = place_of(cluster.url)
    title = title_of_owners(place)
    ask(
        cluster.url,
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE '{title}%' "
        "AND pid <> pg_backend_pid()",
    )


def step_down(cluster: Cluster) -> None:
    from actorproc.cli.main import main

    cluster.leader()
    main(["leader", "--path", cluster.url, "--step-down"])


@pytest.mark.parametrize(
    "failure", [kill, kill_follower, freeze, end_sessions, step_down], ids=lambda failure: failure.__name__
)
def test_nothing_acknowledged_is_lost_when_leaders_fail_under_load(cluster, failure: Callable[[Cluster], None]):
    for _ in range(1 if failure is kill_follower else FAILURES):
        cluster.await_progress()
        time.sleep(random.Random(len(cluster.acknowledged)).uniform(0.0, 0.1))  # anywhere in a commit
        failure(cluster)
    cluster.await_progress()
    cluster.judge()


def test_a_database_that_crashes_under_load_loses_nothing(tmp_path):
    database_or_skip()
    from actorproc.testing.database_server import DatabaseServer

    with DatabaseServer(fsync=True) as server:
        ask(server.url(), f"CREATE ROLE {ROLE} LOGIN", f"GRANT CREATE ON DATABASE postgres TO {ROLE}")
        url = server.url("crashes").replace("//actorproc@", f"//{ROLE}@")
        cluster = Cluster(url, tmp_path)
        try:
            for _ in range(2):
                cluster.await_progress()
                server.restart(signal.SIGQUIT)
            cluster.await_progress()
            cluster.judge()
        finally:
            cluster.close()
