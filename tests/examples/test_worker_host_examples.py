"""Units and manifests for worker hosts: their own tools read them, and they say what agents need."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "examples" / "12_worker_hosts"


def test_the_unit_of_a_host_is_one_that_systemd_accepts(tmp_path):
    text = (FOLDER / "shop-worker.service").read_text()
    told = dict(line.split("=", 1) for line in text.splitlines() if "=" in line and not line.startswith("#"))
    assert told["KillMode"] == "mixed"
    assert told["OOMPolicy"] == "continue"
    assert told["StartLimitIntervalSec"] == "0"
    assert told["Delegate"] == "yes"
    drain = re.search(r"--stop-timeout (\d+)s", told["ExecStart"])
    assert drain is not None
    assert float(told["TimeoutStopSec"]) > float(drain[1])
    assert not re.match(r"\S*/(ba|da)?sh\b", told["ExecStart"])
    verify = shutil.which("systemd-analyze")
    if verify is None:
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "shop-worker.service"
    unit.write_text(text.replace("/srv/shop/.venv/bin/actorproc", sys.executable).replace("/srv/shop", str(tmp_path)))

    ended = subprocess.run(
        [verify, "verify", "--man=no", "--recursive-errors=no", str(unit)],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert [line for line in ended.stderr.splitlines() if "shop-worker.service" in line] == []


def test_the_manifests_are_read_by_kubectl_and_have_no_shell_and_time_for_the_drain(tmp_path):
    text = (FOLDER / "kubernetes.yaml").read_text()
    commands = [json.loads(line.split("command:", 1)[1]) for line in text.splitlines() if "command: [" in line]
    assert len(commands) == 2
    # A probe that asked for the leader or the database would start every pod again in an outage.
    assert not re.search(r"^\s*(liveness|startup)Probe:", text, re.MULTILINE)
    graces = [int(grace) for grace in re.findall(r"terminationGracePeriodSeconds: (\d+)", text)]
    for command, grace in zip(commands, graces, strict=True):
        assert not any(part.endswith("sh") for part in command)
        assert grace > int(command[command.index("--stop-timeout") + 1].removesuffix("s"))
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("kubectl is not installed")
    (tmp_path / "kubernetes.yaml").write_text(text)
    (tmp_path / "kustomization.yaml").write_text("resources: [kubernetes.yaml]\n")

    ended = subprocess.run(
        [kubectl, "kustomize", str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )

    assert ended.returncode == 0, ended.stderr
    assert re.findall(r"^  name: (.*)", ended.stdout, re.MULTILINE) == ["shop-manager", "shop-worker"]


@pytest.mark.parametrize("file", ["shop-worker.service", "kubernetes.yaml"])
def test_commands_of_the_examples_have_options_that_exist(file):
    from actorproc.cli.main import build_parser

    text = (FOLDER / file).read_text()
    commands = [json.loads(line.split("command:", 1)[1])[3:] for line in text.splitlines() if "command: [" in line]
    commands += [line.split()[1:] for line in text.splitlines() if line.startswith("ExecStart=")]
    assert commands
    for command in commands:
        assert build_parser().parse_args(command).target == "shop"
