"""An agent in a container whose memory a step eats: the step pays, and neither the agent nor its other steps."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("cryptography", reason="the certificate of a link is made by cryptography (extra postgres)")

from actorproc import Config, Context, Limits, Procedure, ProcedureFailed, ProcedureManager, Status
from actorproc.workers.os.container_cgroups import MOUNT
from tests.kit.waiting import BOUND, wait_until

pytestmark = pytest.mark.processes
ROOT = Path(__file__).parents[2]
LIMIT = 400 * 1024 * 1024


class Eats(Procedure):
    """Takes memory until something stops it."""

    limits = Limits(on=("box",), crashes=1)

    def execute(self, ctx: Context) -> Status:
        """Take 4 MB in each hundredth of a second: slower than the looks of the guard, which are ten a second."""
        taken = []
        while True:
            taken.append(bytearray(os.urandom(1024)) * 4096)
            time.sleep(0.01)


class Waits(Procedure):
    """Runs beside it."""

    limits = Limits(on=("box",))

    def __init__(self, file: str) -> None:
        self.file = file

    def execute(self, ctx: Context) -> Status:
        """End when the file is there."""
        while not Path(self.file).exists():
            time.sleep(0.01)
        return Status.done(ctx.attempt)


@pytest.fixture
def container() -> Iterator[Path]:
    """A control group with a limit of memory: the file to which a process writes its pid to be in it."""
    version_2 = (MOUNT / "cgroup.controllers").exists()
    group = (MOUNT if version_2 else MOUNT / "memory") / f"actorproc-test-{os.getpid()}"
    try:
        group.mkdir()
        (group / ("memory.max" if version_2 else "memory.limit_in_bytes")).write_text(str(LIMIT))
    except OSError as error:
        with contextlib.suppress(OSError):
            group.rmdir()
        pytest.skip(f"no control group with a limit of memory can be made here: {error}")
    yield group / "cgroup.procs"

    def is_gone() -> bool:
        with contextlib.suppress(OSError):
            group.rmdir()
        return not group.exists()

    wait_until(is_gone)


def test_a_step_that_eats_the_memory_of_its_container_costs_that_step_alone(container, url, tmp_path):
    config = Config(lease=1.0, host_patience=6.0, spares=0, allow_any_filesystem=True)
    with ProcedureManager(url, procedures=[Eats, Waits], workers=1, config=config) as manager:
        program = f"import os; open({str(container)!r}, 'w').write(str(os.getpid())); from actorproc.cli.main import main; main()"
        command = [sys.executable, "-c", program, "worker", __name__, "--path", url, "-n", "2", "--label", "box"]
        agent = subprocess.Popen(command, cwd=ROOT, env=os.environ | {"PYTHONPATH": str(ROOT)})
        try:
            beside = manager.submit(Waits(str(tmp_path / "go")))
            wait_until(lambda: beside.info().phase.name == "RUNNING")
            with pytest.raises(ProcedureFailed, match="the container of its host") as caught:
                manager.run(Eats(), timeout=BOUND)
            assert "420 MB" in str(caught.value) or "419 MB" in str(caught.value)
            (tmp_path / "go").touch()
            assert beside.result(BOUND) == 1, "it was not run again"
            assert [host.pid for host in manager.hosts()] == [agent.pid]
            assert manager.metrics().host_losses == 0
        finally:
            agent.kill()
            agent.wait(BOUND)
