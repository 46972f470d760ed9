"""Hosts with the code of yesterday and of tomorrow: a step runs where the code is the leader's, also over an upgrade."""

from __future__ import annotations

import importlib
import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc import ProcedureClient
from actorproc.cli.main import main
from tests.kit.waiting import BOUND, wait_until

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]
WARES = """
import time
from pathlib import Path
from actorproc import Limits, Procedure, Status

VERSION = "{version}"

class Order(Procedure):
    def __init__(self, steps=1, gate=""):
        self.steps, self.gate, self.seen = steps, gate, []

    def execute(self, ctx):
        if self.gate:
            Path(self.gate + ".ran").touch()
            while not Path(self.gate).exists():
                time.sleep(0.01)
        time.sleep(0.05)
        self.seen.append(VERSION)
        return Status.done(self.seen) if len(self.seen) >= self.steps else Status.executing()

class FarOrder(Order):
    limits = Limits(on=("far",))
"""
SAME = """
import os
import time
from actorproc import Procedure, Status

class Same(Procedure):
    def execute(self, ctx):
        time.sleep(0.2)
        return Status.done(os.environ["OF"])
"""


class Program:
    """A process of the command line with the code of one version."""

    def __init__(self, folder: Path, version: str, command: str, *arguments: str) -> None:
        self.log = folder / f"{command}-{len(list(folder.glob('*.log')))}.log"
        path = os.pathsep.join([str(folder / version), str(ROOT)])
        environment = os.environ | {"PYTHONPATH": path, "OF": version}
        with self.log.open("w") as file:
            words = [sys.executable, "-P", "-m", "actorproc", command, *arguments]
            self.process = subprocess.Popen(words, stderr=file, stdout=file, env=environment, cwd=folder / version)
        self.pid = self.process.pid

    def said(self, text: str) -> bool:
        return text in self.log.read_text()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(BOUND)


@pytest.fixture
def cluster(tmp_path, url, monkeypatch):
    """A function that starts a program of a version on one store, which it has as `url`; and modules of the first."""
    for version in ("v1", "v2"):
        (tmp_path / version).mkdir()
        (tmp_path / version / "wares.py").write_text(WARES.format(version=version))
        (tmp_path / version / "same.py").write_text(SAME)
        (tmp_path / version / "app.py").write_text(
            "from same import Same\nfrom wares import FarOrder, Order\nPROCEDURES = [FarOrder, Order, Same]\n"
        )
    monkeypatch.syspath_prepend(str(tmp_path / "v1"))
    monkeypatch.delitem(sys.modules, "wares", raising=False)
    monkeypatch.delitem(sys.modules, "same", raising=False)
    made = []

    def start(version: str, command: str, *options: str, module: str = "app:PROCEDURES") -> Program:
        made.append(Program(tmp_path, version, command, module, "--path", start.url, *options))
        return made[-1]

    start.url = url
    yield start
    for program in made:
        program.end()
    for name in ("wares", "same"):
        sys.modules.pop(name, None)


def hosts(url: str, capsys) -> dict[str, dict]:
    capsys.readouterr()
    assert main(["hosts", "--path", url, "-o", "json"]) == 0
    return {str(row["pid"]): row for row in json.loads(capsys.readouterr().out)["hosts"]}


def joined(host: Program) -> None:
    wait_until(lambda: host.said("joined the leader"))


def test_a_step_runs_where_the_code_is_the_leaders_and_other_types_anywhere(cluster, tmp_path, capsys):
    leader = cluster("v1", "run", "-n", "1")
    old, new = cluster("v1", "worker", "-n", "1"), cluster("v2", "worker", "-n", "2", "--label", "far")
    joined(old)
    joined(new)
    wares, same = importlib.import_module("wares"), importlib.import_module("same")
    with ProcedureClient(cluster.url, patience=BOUND) as client:
        found = hosts(cluster.url, capsys)
        assert found[str(new.pid)]["other_code"] == ["wares.FarOrder", "wares.Order"]
        assert found[str(old.pid)]["other_code"] == []
        assert main(["hosts", "--path", cluster.url]) == 0
        said = capsys.readouterr().out
        assert "other code of wares.FarOrder, wares.Order" in said
        assert "wares.Order: 1 of 2 hosts have the manager's code" in said

        orders = [client.submit(wares.Order(3)) for _ in range(20)]
        assert {tuple(order.result(BOUND)) for order in orders} == {("v1", "v1", "v1")}
        others = [client.submit(same.Same()) for _ in range(12)]
        assert {other.result(BOUND) for other in others} == {"v1", "v2"}

        far = client.submit(wares.FarOrder())
        words = "for a host with far and the code of FarOrder (1 host has other code)"
        wait_until(lambda: words in (far.info().reason or ""))
        assert main(["why", far.id, "--path", cluster.url]) == 0
        assert words in capsys.readouterr().out
        wait_until(lambda: leader.said("all that are connected have other code (1)"))
        cluster("v1", "worker", "-n", "1", "--label", "far")
        assert far.result(BOUND) == ["v1"]


def test_a_host_that_did_not_name_a_type_gives_its_steps_back_unbegun(cluster, capsys):
    leader = cluster("v1", "run", "-n", "1")
    other = cluster("v2", "worker", "-n", "2", module="same")
    joined(other)
    wares = importlib.import_module("wares")
    with ProcedureClient(cluster.url, patience=BOUND) as client:
        assert hosts(cluster.url, capsys)[str(other.pid)]["other_code"] == []
        orders = [client.submit(wares.Order(2)) for _ in range(20)]
        assert {tuple(order.result(BOUND)) for order in orders} == {("v1", "v1")}
        assert {(order.info().errors, order.info().crashes) for order in orders} == {(0, 0)}
        assert hosts(cluster.url, capsys)[str(other.pid)]["other_code"] == ["wares.Order"]
        assert leader.said("has other code of wares.Order than this manager")


def test_an_upgrade_machine_by_machine_under_a_client_that_submits(cluster, tmp_path, capsys):
    first = cluster("v1", "run", "-n", "1")
    old = cluster("v1", "worker", "-n", "2")
    joined(old)
    wares = importlib.import_module("wares")
    orders, over = [], threading.Event()

    def submit() -> None:
        with ProcedureClient(cluster.url, patience=BOUND) as own:
            while not over.is_set():
                orders.append(own.submit(wares.Order(2)).id)
                over.wait(0.02)

    with ProcedureClient(cluster.url, patience=BOUND) as client:
        wait_until(lambda: len(hosts(cluster.url, capsys)) == 1)
        gates = [str(tmp_path / f"gate{number}") for number in range(3)]
        long = [client.submit(wares.Order(1, gate)) for gate in gates]
        wait_until(lambda: all(Path(gate + ".ran").exists() for gate in gates))
        thread = threading.Thread(target=submit)
        thread.start()
        try:
            second, new = cluster("v2", "run", "-n", "1"), cluster("v2", "worker", "-n", "2")
            joined(new)
            wait_until(lambda: second.said("joined the leader"))
            seen = hosts(cluster.url, capsys)
            assert seen[str(new.pid)]["other_code"] == seen[str(second.pid)]["other_code"] != []
            count = len(orders)
            wait_until(lambda: len(orders) > count + 5)
            assert main(["leader", "--step-down", "--path", cluster.url]) == 0
            both = ["wares.FarOrder", "wares.Order"]
            wait_until(lambda: hosts(cluster.url, capsys).get(str(old.pid), {}).get("other_code") == both)
            count = len(orders)
            wait_until(lambda: len(orders) > count + 20)
        finally:
            over.set()
            thread.join(BOUND)
        for gate in gates:
            Path(gate).touch()
        results = [order.result(BOUND) for order in long]
        assert results.count(["v1"]) >= 2, "what ran on the old host went on there"
        found = [client.get(id).result(BOUND) for id in orders]
        assert found[-1] == ["v2", "v2"]
        assert {version for seen in found for version in seen} <= {"v1", "v2"}
        assert all(seen == sorted(seen) for seen in found), "no step went back to the old code"
        for program in (old, first):
            program.process.send_signal(signal.SIGTERM)
            assert program.process.wait(BOUND) == 0
        assert client.submit(wares.Order()).result(BOUND) == ["v2"]
