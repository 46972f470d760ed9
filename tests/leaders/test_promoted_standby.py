"""A database that fails over to its standby: what was acknowledged is kept, or what was lost is told, and work goes on."""

from __future__ import annotations

import logging
import signal
import threading
import time
from dataclasses import dataclass

import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc import Config, Procedure, ProcedureClient, ProcedureManager, Status, UnknownProcedure
from actorproc.testing.database_server import find_server
from tests.databases import database_or_skip
from tests.kit.procedures import Add
from tests.kit.waiting import BOUND, wait_until
from tests.leaders.conftest import ROLE, ask

pytestmark = [pytest.mark.processes, pytest.mark.timeout(120)]
LEASE = 1.0


@dataclass
class Fence(Procedure):
    """Its output is the fence of its step."""

    def execute(self, ctx):
        return Status.done(ctx.fence)


def config() -> Config:
    return Config(lease=LEASE, spares=0, allow_any_filesystem=True, commit_backoff=0.05, commit_backoff_cap=0.2)


def prepare(url: str) -> None:
    ask(url, f"CREATE ROLE {ROLE} LOGIN", f"GRANT CREATE ON DATABASE postgres TO {ROLE}")


@pytest.fixture
def replicated():
    """Makes a server with a standby."""
    database_or_skip()
    if not (find_server() / "pg_basebackup").exists():
        pytest.skip("this installation of PostgreSQL has no pg_basebackup")
    from tests.kit.standby import Replicated

    opened = []

    def make(*, synchronous: bool = False) -> Replicated:
        opened.append(Replicated(prepare, synchronous=synchronous).__enter__())
        return opened[-1]

    yield make
    for servers in opened:
        servers.__exit__()


@pytest.fixture
def open_manager():
    opened = []

    def make(url: str) -> ProcedureManager:
        opened.append(ProcedureManager(url, procedures=[Add, Fence], workers=1, config=config()))
        return opened[-1].start()

    yield make
    for manager in reversed(opened):
        manager.stop(drain=False, timeout=5.0)


def told(caplog) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.CRITICAL]


def fences(manager: ProcedureManager, count: int = 5) -> list[int]:
    return [manager.run(Fence(), timeout=BOUND) for _ in range(count)]


def leads(manager: ProcedureManager) -> bool:
    return manager._tree.leads


def epoch_of(manager: ProcedureManager) -> int:
    return manager._tree._local.epoch


def test_the_leader_tells_which_commits_an_asynchronous_standby_lost_and_goes_on(replicated, open_manager, caplog):
    servers = replicated()
    manager = open_manager(servers.url("lost", ROLE))
    epoch = epoch_of(manager)
    seen = fences(manager)
    assert manager.run(Add(1, 2), id="kept") == 3
    servers.catch_up()
    servers.proxy.hold()
    seen += fences(manager)
    assert manager.run(Add(2, 2), id="gone") == 4

    servers.fail_over()
    seen += wait_until(lambda: fences(manager, 1))
    lost = manager.metrics().lost_commits
    assert lost >= 6
    (text,) = told(caplog)
    first, last = (int(word) for word in text.partition("commits ")[2].split(",")[0].split(" to "))
    assert last - first + 1 == lost
    with pytest.raises(UnknownProcedure):
        manager.info("gone")
    assert manager.get("kept").result(BOUND) == 3
    assert manager.run(Add(2, 3), id="gone") == 5
    seen += fences(manager)
    assert epoch_of(manager) == epoch
    manager.stop()
    seen += fences(manager.start())
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("leader_survives", [True, False], ids=["the leader goes on", "another machine takes over"])
def test_an_epoch_that_an_asynchronous_standby_lost_is_never_taken_again(
    replicated, open_manager, caplog, monkeypatch, tmp_path, leader_survives
):
    servers = replicated()
    url = servers.url("epochs", ROLE)
    first = open_manager(url)
    seen = fences(first)
    first.stop()
    servers.catch_up()
    servers.proxy.hold()
    second = open_manager(url)
    seen += fences(second)
    lost = epoch_of(second)
    if not leader_survives:
        servers.primary.stop(signal.SIGQUIT)
        second.stop(drain=False, timeout=0.0)
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another-machine"))
    servers.fail_over()
    third = second if leader_survives else open_manager(url)
    seen += wait_until(lambda: fences(third, 1))
    seen += fences(third)
    assert epoch_of(third) > lost
    assert seen == sorted(set(seen))
    if leader_survives:
        assert f"lost the epoch {lost} " in told(caplog)[0]


def test_a_synchronous_standby_loses_nothing_that_was_acknowledged(replicated, open_manager, caplog):
    servers = replicated(synchronous=True)
    url = servers.url("synchronous", ROLE)
    leader, follower = open_manager(url), open_manager(url)
    acknowledged, stop = [], threading.Event()

    def submit() -> None:
        with ProcedureClient(url, patience=BOUND, config=config()) as client:
            while not stop.is_set():
                number = len(acknowledged)
                acknowledged.append(client.submit(Add(number, 1), id=f"n{number}"))

    submitter = threading.Thread(target=submit)
    submitter.start()
    wait_until(lambda: len(acknowledged) > 50)
    seen = fences(leader)
    servers.fail_over()
    after = len(acknowledged)
    wait_until(lambda: len(acknowledged) > after + 50)
    stop.set()
    submitter.join(BOUND)
    seen += fences(follower)
    assert seen == sorted(set(seen))
    for number in range(len(acknowledged)):
        assert follower.get(f"n{number}").result(BOUND) == number + 1
    assert told(caplog) == []


def test_a_commit_that_a_stopped_synchronous_standby_holds_up_is_not_acknowledged_before(replicated, open_manager):
    servers = replicated(synchronous=True)
    url = servers.url("waits", ROLE)
    leader, follower = open_manager(url), open_manager(url)
    assert leader.run(Add(1, 2), id="before") == 3
    epoch = epoch_of(leader)
    servers.proxy.hold()
    answers = []
    thread = threading.Thread(target=lambda: answers.append(leader.submit(Add(2, 2), id="held").result(BOUND)))
    thread.start()
    wait_until(lambda: servers.ask("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))
    health = wait_until(lambda: next(filter(lambda found: found.problems, (leader.health(),)), None))
    assert health.status == "degraded"
    assert "a commit has waited" in health.problems[0]
    time.sleep(3 * LEASE)  # no other leader could do better
    assert leads(leader)
    # To end the session that waits makes its commit visible, and it is on one server alone.
    servers.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE wait_event = 'SyncRep'")
    health = wait_until(lambda: next(filter(lambda found: found.status == "storage-trouble", (leader.health(),)), None))
    assert "nothing acknowledged is lost" in health.problems[0]
    wait_until(lambda: servers.ask("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'"))
    assert answers == []
    servers.proxy.release()
    thread.join(BOUND)
    assert answers == [4]
    assert epoch_of(leader) == epoch
    assert follower.run(Add(2, 3)) == 5
    wait_until(lambda: leader.health().ok and follower.health().ok)
