"""Hosts over changes of leaders, with real managers on a real database: a running step is not interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("psycopg", reason="needs the extra postgres")
pytest.importorskip("cryptography", reason="needs the extra postgres")

from actorproc import ProcedureManager
from actorproc.control.link_door import LinkWay
from actorproc.store.home import home_of
from actorproc.workers.hosts.agent import HostAgent, HostOffer
from actorproc.workers.link.handshake import LinkRole
from actorproc.workers.pool.local_pool import LocalPool
from tests.hosts.far_steps import CONFIG, Far
from tests.kit.waiting import BOUND, wait_until

pytestmark = pytest.mark.processes


class Host:
    """An agent on a thread, whose workers are processes."""

    def __init__(self, url, *, workers=1):
        import threading

        way = LinkWay(home_of(url), LinkRole.HOST)
        self.agent = HostAgent(
            HostOffer(name="there", version="1", workers=workers, labels=("far",)),
            connect=lambda: way.connect(3.0),
            seen_epoch=lambda: 0,
            make_pool=lambda settings, epoch: LocalPool(epoch=epoch, spares=0, max_state=settings.max_state),
        )
        self.thread = threading.Thread(target=self.agent.run, daemon=True)
        self.thread.start()

    def close(self):
        self.agent.stop()
        self.thread.join(BOUND)


@pytest.fixture
def host(url):
    made = Host(url)
    yield made
    made.close()


def leader_of(url):
    """A leader in a process of its own. The test ends it, and closes its pipes."""
    root = Path(__file__).parents[2]
    leader = subprocess.Popen(
        [sys.executable, "-m", "tests.hosts.far_steps", url],
        cwd=root,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert leader.stdout.readline().strip() == "leads"
    return leader


def runs(folder, name="p"):
    """Attempts of the step that began."""
    try:
        return (folder / f"{name}.ran").read_text().split()
    except FileNotFoundError:
        return []


def test_a_step_runs_on_a_host_that_has_what_it_asks_for(url, host, tmp_path):
    (tmp_path / "p.go").touch()
    with ProcedureManager(url, procedures=[Far], workers=1, config=CONFIG) as manager:
        assert manager.run(Far(str(tmp_path), "p"), timeout=BOUND) == "p"
        assert any(worker.slot >= 1000 for worker in manager.workers())


@pytest.mark.parametrize("end", ["killed", "stopped"])
def test_a_running_step_of_a_host_goes_on_under_the_next_leader(url, host, tmp_path, end):
    leader = leader_of(url)
    with ProcedureManager(url, procedures=[Far], workers=1, config=CONFIG) as manager:
        handle = manager.submit(Far(str(tmp_path), "p"), "p")
        wait_until(lambda: runs(tmp_path) == ["1"])

        if end == "killed":
            os.kill(leader.pid, signal.SIGKILL)
        else:
            leader.stdin.write("\n")
            leader.stdin.flush()
        leader.wait(BOUND)
        leader.stdin.close()
        leader.stdout.close()
        wait_until(lambda: manager.health().role == "leading" and host.agent.is_joined and host.agent.epoch == 2)
        (tmp_path / "p.go").touch()

        assert handle.result(timeout=BOUND) == "p"
        assert runs(tmp_path) == ["1"], "it was neither interrupted nor run again"
        assert handle.info().attempt <= 1


def test_a_host_that_is_killed_has_its_step_run_on_another(url, tmp_path):
    first = subprocess.Popen([sys.executable, "-c", AGENT, url], cwd=Path(__file__).parents[2])
    try:
        with ProcedureManager(url, procedures=[Far], workers=1, config=CONFIG) as manager:
            handle = manager.submit(Far(str(tmp_path), "p"), "p")
            wait_until(lambda: runs(tmp_path) == ["1"])
            os.kill(first.pid, signal.SIGKILL)
            first.wait(BOUND)
            second = Host(url)
            wait_until(lambda: runs(tmp_path) == ["1", "2"])
            (tmp_path / "p.go").touch()
            assert handle.result(timeout=BOUND) == "p"
            info = handle.info()
            assert (info.errors, info.crashes) == (0, 0)
        second.close()
    finally:
        first.kill()
        first.wait()


def test_a_step_of_a_host_that_died_with_the_leader_runs_on_another(url, tmp_path):
    agent = subprocess.Popen([sys.executable, "-c", AGENT, url], cwd=Path(__file__).parents[2])
    leader = leader_of(url)
    with ProcedureManager(url, procedures=[Far], workers=1, config=CONFIG) as manager:
        handle = manager.submit(Far(str(tmp_path), "p"), "p")
        wait_until(lambda: runs(tmp_path) == ["1"])
        os.kill(agent.pid, signal.SIGKILL)
        os.kill(leader.pid, signal.SIGKILL)
        for process in (agent, leader):
            process.wait(BOUND)
        leader.stdin.close()
        leader.stdout.close()
        second = Host(url)
        (tmp_path / "p.go").touch()
        assert handle.result(timeout=BOUND) == "p"
        assert runs(tmp_path) == ["1", "2"]
    second.close()


AGENT = """
import sys
from tests.hosts.test_leader_changes import Host
Host(sys.argv[1]).thread.join()
"""
