"""Hosts in lists, health, metrics, events and the reasons for a standstill: joined, silent, draining, lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc import Config, HostEvent, Limits, ProcedureClient, ProcedureManager
from actorproc.cli.main import main
from tests.hosts.journalled import Noted
from tests.kit.waiting import BOUND, wait_until

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]


@pytest.fixture
def start_host(url):
    """A function that starts a host as a program of its own."""
    made = []

    def start(*options: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "actorproc", "worker", "tests.hosts.journalled", "--path", url, *options]
        made.append(subprocess.Popen(command, env=os.environ | {"PYTHONPATH": str(ROOT)}, cwd=ROOT))
        return made[-1]

    yield start
    for process in made:
        if process.poll() is None:
            process.send_signal(signal.SIGCONT)
            process.kill()
        process.wait(BOUND)


def kinds(told) -> list[str]:
    return [event.kind for event in told]


def test_a_host_is_seen_to_join_to_fall_silent_to_be_lost_and_another_to_drain(url, start_host, tmp_path, capsys):
    told = []
    config = Config(lease=1.0, host_patience=4.0, spares=0, allow_any_filesystem=True)
    with ProcedureManager(
        url,
        procedures=[Noted],
        workers=1,
        config=config,
        on_event=lambda event: told.append(event) if isinstance(event, HostEvent) else None,
    ) as manager:
        handle = manager.submit(Noted(str(tmp_path / "journal"), 1, 600.0), limits=Limits(on=("gpu",)))
        wait_until(lambda: "for a host with gpu" in str(manager.why(handle.id)))
        assert (manager.hosts(), manager.health().hosts) == ([], ())

        process = start_host("-n", "1", "--label", "gpu")
        wait_until(lambda: manager.hosts() and manager.hosts()[0].busy == 1 and manager.hosts()[0].round_trip)
        [host] = manager.hosts()
        assert (host.name, host.state, host.pid, host.labels) == ("h1", "joined", process.pid, ("gpu",))
        assert json.loads(json.dumps(host.to_dict()))["workers"] == 1
        assert manager.health().hosts[0].name == "h1"
        assert [(one.kind, one.name, one.machine, one.workers) for one in told] == [
            ("host-joined", "h1", host.machine, 1)
        ]
        wait_until(lambda: f"on host h1 ({host.machine})" in str(manager.why(handle.id)))
        with ProcedureClient(url) as client:
            assert [one.name for one in client.hosts()] == ["h1"]
            text = client.metrics().prometheus()
        for line in (
            'hosts{state="joined"} 1',
            'hosts{state="silent"} 0',
            'host_workers{host="h1"} 1',
            'host_workers_busy{host="h1"} 1',
            "takeovers_total 1",
            "host_losses_total 0",
            "adopted_steps_total 0",
            "link_resumes_total 0",
        ):
            assert f"actorproc_{line}\n" in text
        for name in ("host_round_trip_seconds", "host_silence_seconds", "host_outstanding_bytes"):
            assert re.search(rf'^actorproc_{name}{{host="h1"}} [0-9.e-]+$', text, re.MULTILINE)
        wait_until(lambda: "store_round_trip_seconds 0." in manager.metrics().prometheus())
        assert main(["top", "--path", url]) == 0
        assert re.search(r"^h1 .* joined +1/1 ", capsys.readouterr().out, re.MULTILINE)

        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: manager.health().problems)
        assert re.search(
            rf"host h1 \({re.escape(host.machine)}\) has been silent for \d+ s", manager.health().problems[0]
        )
        assert manager.health().status == "running", "no probe restarts the leader for that"
        assert "which has been silent for" in str(manager.why(handle.id))
        wait_until(lambda: "host-lost" in kinds(told))
        lost = next(event for event in told if event.kind == "host-lost")
        assert (lost.name, lost.steps, lost.workers) == ("h1", 1, 1)
        assert "was silent for 4 s" in str(lost)
        assert manager.metrics().host_losses == 1

        other = start_host("-n", "1", "--label", "gpu")
        wait_until(lambda: [one.busy for one in manager.hosts()] == [1])
        other.terminate()
        wait_until(lambda: [one.state for one in manager.hosts()] == ["draining"])
        manager.kill(handle.id)
        assert other.wait(BOUND) == 0
        wait_until(lambda: kinds(told) == ["host-joined", "host-lost", "host-joined", "host-drains", "host-left"])
        assert told[-1].steps == 0


def test_a_directory_has_no_hosts(tmp_path):
    with ProcedureManager(tmp_path / "state", procedures=[Noted], workers=1) as manager:
        assert (manager.hosts(), manager.health().hosts) == ([], ())
        assert manager.metrics().store_round_trip is None
        assert 'actorproc_hosts{state="joined"} 0\n' in manager.metrics().prometheus()
