"""A torture that is killed leaves nothing behind that runs."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import actorproc

pytestmark = pytest.mark.processes

BOUND = 30.0


def hosts_below(folder: Path) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            is_host = str(folder) in " ".join(process.cmdline()) and process.status() != psutil.STATUS_ZOMBIE
        except psutil.Error:
            continue
        if is_host:
            found.append(process)
    return found


def wait_for(condition) -> None:
    deadline = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_the_host_ends_with_its_tormentor(tmp_path):
    environment = {**os.environ, "PYTHONPATH": str(Path(actorproc.__file__).parents[1]), "TMPDIR": str(tmp_path)}
    torture = subprocess.Popen(
        [sys.executable, "-m", "actorproc", "torture", "--episodes", "1", "--keep", str(tmp_path / "keep")],
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    with torture:
        wait_for(lambda: hosts_below(tmp_path))
        torture.kill()

    wait_for(lambda: not hosts_below(tmp_path))
