"""What `ps` and `top` show of a worker process."""

from __future__ import annotations

import sys

import psutil
import pytest

from actorproc import ProcedureManager, procedure


@procedure
def look(ctx):
    process = psutil.Process()
    return process.name(), process.cmdline()


@pytest.mark.processes
def test_a_worker_says_in_one_line_what_it_is(tmp_path):
    with ProcedureManager(tmp_path / "store", workers=1) as manager:
        name, command = manager.run(look(), timeout=60)

    assert name == "actorproc-work" or sys.platform != "linux"
    assert "actorproc.workers.child" in " ".join(command)
    assert command[-1] == "actorproc-worker"
    assert not any("\n" in part for part in command)
    assert len(" ".join(command)) < 1000
