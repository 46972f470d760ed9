"""Hosts in a Ray cluster of three nodes: started once, used, started again after a kill, drained."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("ray", reason="Ray is not installed (extra ray)")

from actorproc import Config, Limits, ProcedureManager
from tests.databases import database_or_skip, new_store
from tests.hosts.far_steps import Far
from tests.hosts.journalled import Noted
from tests.hosts.test_leader_changes import runs
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.processes, pytest.mark.timeout(300)]


@pytest.fixture
def cluster(monkeypatch):
    """A cluster: a head without room, and two nodes with two processors each.

    Its nodes reap what their actors leave, which is off by default. They end soon when the head is gone for good.
    """
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_kill_child_processes_on_worker_exit_with_raylet_subreaper", "1")
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "3")
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    cluster.add_node(num_cpus=2)
    cluster.add_node(num_cpus=2)
    yield cluster
    cluster.shutdown()


@pytest.fixture
def address(cluster):
    return cluster.address


@pytest.mark.filterwarnings("ignore")
def test_hosts_are_started_once_used_started_again_and_drained(address, tmp_path, monkeypatch):
    from actorproc.api.launch.ray import start_hosts, stop_hosts

    database_or_skip()
    url = new_store()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))
    config = Config(host_patience=5.0, spares=0, allow_any_filesystem=True)
    with ProcedureManager(url, procedures=[Noted], workers=1, config=config) as leader:
        how = {"hosts": 2, "cpus": 1, "address": address, "labels": ("far",), "timeout": 90.0}
        first = start_hosts("tests.hosts.journalled", url, **how)
        assert len({host.host for host in first}) == 2
        assert start_hosts("tests.hosts.journalled", url, **how) == first, "what runs is not started again"

        journal, far = tmp_path / "journal", Limits(on=("far",))
        handles = [leader.submit(Noted(str(journal), 3), limits=far) for _ in range(6)]
        assert [handle.result(90) for handle in handles] == [3] * 6
        pids = {row.pid for row in leader._tree.hosts()}
        assert {int(line.split()[-1]) for line in journal.read_text().splitlines()} <= pids

        os.kill(min(pids), signal.SIGKILL)
        wait_until(lambda: len({row.pid for row in leader._tree.hosts()} - {min(pids)}) == 2, 90.0)

        assert len(stop_hosts(url, address=address)) == 2
        wait_until(lambda: not leader._tree.hosts(), 60.0)


@pytest.mark.filterwarnings("ignore")
def test_a_node_that_ray_drains_keeps_its_host_until_it_goes_which_then_comes_again_on_another(
    cluster, tmp_path, monkeypatch
):
    """Ray only starts nothing more on such a node: who drained it is to end it, as an autoscaler does."""
    from actorproc.api.launch.ray import start_hosts

    database_or_skip()
    url = new_store()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))
    config = Config(host_patience=5.0, spares=0, allow_any_filesystem=True)
    with ProcedureManager(url, procedures=[Far], workers=1, config=config) as leader:
        how = {"hosts": 1, "cpus": 1, "address": cluster.address, "labels": ("far",), "timeout": 90.0}
        start_hosts("tests.hosts.far_steps", url, **how)
        (host,) = leader._tree.hosts()
        node = next(node for node in cluster.worker_nodes if _raylet_of(node) == _parent_of(host.pid))
        first = leader.submit(Far(str(tmp_path), "first"))
        wait_until(lambda: runs(tmp_path, "first"), 90.0)

        command = [sys.executable, "-m", "ray.scripts.scripts", "drain-node", "--address", cluster.address]
        why = ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "it goes"]
        subprocess.run([*command, "--node-id", node.node_id, *why], check=True, capture_output=True, timeout=120)
        (tmp_path / "first.go").touch()
        assert first.result(90) == "first"
        second = leader.submit(Far(str(tmp_path), "second"))
        wait_until(lambda: runs(tmp_path, "second"), 90.0)
        assert [row.pid for row in leader._tree.hosts()] == [host.pid], "it goes on as long as its node does"
        cluster.remove_node(node, allow_graceful=False)
        wait_until(lambda: len(runs(tmp_path, "second")) == 2, 120.0)
        (tmp_path / "second.go").touch()

        assert second.result(90) == "second"
        assert (runs(tmp_path, "first"), runs(tmp_path, "second")) == (["1"], ["1", "2"])
        assert (second.info().errors, second.info().crashes, second.info().host_losses) == (0, 0, 0)
        (again,) = leader._tree.hosts()
        assert _parent_of(again.pid) in {_raylet_of(node) for node in cluster.worker_nodes}


@pytest.mark.filterwarnings("ignore")
def test_hosts_end_when_the_head_of_ray_is_gone_for_good_and_their_steps_run_elsewhere(cluster, tmp_path, monkeypatch):
    """Without Ray's fault tolerance, for which the head needs a Redis server."""
    from actorproc.api.launch.ray import start_hosts

    database_or_skip()
    url = new_store()
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state-home"))
    config = Config(host_patience=5.0, spares=0, allow_any_filesystem=True)
    with ProcedureManager(url, procedures=[Noted], workers=1, config=config) as leader:
        start_hosts("tests.hosts.journalled", url, hosts=2, cpus=1, address=cluster.address, timeout=90.0)
        journal = tmp_path / "journal"
        handles = [leader.submit(Noted(str(journal), 8, 0.5)) for _ in range(3)]
        pids = {row.pid for row in leader._tree.hosts()}
        wait_until(lambda: pids & {int(line.split()[-1]) for line in _lines(journal)})

        cluster.head_node.kill_gcs_server()

        wait_until(lambda: not leader._tree.hosts(), 90.0)
        assert [handle.result(90) for handle in handles] == [8] * 3
        assert all((handle.info().errors, handle.info().crashes) == (0, 0) for handle in handles)


def _lines(journal) -> list[str]:
    return journal.read_text().splitlines() if journal.exists() else []


def _raylet_of(node) -> int:
    (raylet,) = node.all_processes["raylet"]
    return raylet.process.pid


def _parent_of(pid: int) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("PPid:")))
