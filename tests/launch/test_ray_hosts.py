"""Hosts in a Ray cluster of three nodes: started once, used, started again after a kill, drained."""

from __future__ import annotations

import os
import signal

import pytest

pytest.importorskip("ray", reason="Ray is not installed (extra ray)")

from actorproc import Config, Limits, ProcedureManager
from tests.databases import database_or_skip, new_store
from tests.hosts.journalled import Noted
from tests.kit.waiting import wait_until

pytestmark = [pytest.mark.ray, pytest.mark.processes, pytest.mark.timeout(300)]


@pytest.fixture
def address(monkeypatch):
    """The address of a cluster: a head without room, and two nodes with two processors each."""
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    cluster.add_node(num_cpus=2)
    cluster.add_node(num_cpus=2)
    yield cluster.address
    cluster.shutdown()


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
