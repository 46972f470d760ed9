"""Many deaths in a row: nothing piles up in the host.

60 by default, 20 of each kind: what piles up shows after a few. ``ACTORPROC_MANY_DEATHS=1000`` for more.
"""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from actorproc import Config, Limits, Procedure, ProcedureManager, Status

pytestmark = pytest.mark.processes


@pytest.fixture
def config() -> Config:
    return Config(spares=1)


DEATHS = int(os.environ.get("ACTORPROC_MANY_DEATHS", "60"))


@dataclass
class Mortal(Procedure):
    """Each step kills its worker once, in one of several ways, and is well at the next attempt."""

    deaths: int
    done: int = 0
    limits = Limits(crashes=2)

    def execute(self, ctx):
        if not ctx.replayed:
            way = self.done % 3
            if way == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            elif way == 1:
                os._exit(0)
            os.abort()
        self.done += 1
        return Status.executing() if self.done < self.deaths else Status.done(self.done)


def processes_of_this_program() -> list[psutil.Process]:
    """Its descendants, without the database server of the tests: it has a process for each session and for its upkeep."""
    found = []
    for child in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.NoSuchProcess):
            if not child.name().startswith("postgres"):
                found.append(child)
    return found


def kept_by_this_program() -> dict[str, int]:
    me = psutil.Process()
    return {
        "descriptors": len(list(Path("/proc/self/fd").iterdir())),
        "threads": threading.active_count(),
        "children": len(processes_of_this_program()),
        "zombies": sum(child.status() == psutil.STATUS_ZOMBIE for child in me.children()),
        "temporary files": len(list(Path(tempfile.gettempdir()).iterdir())),
        "mappings of shared memory": Path("/proc/self/maps").read_text().count("/dev/shm/"),
    }


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
@pytest.mark.timeout(60 + DEATHS)
def test_many_deaths_leave_nothing_behind_in_the_host(open_manager, until, tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    others = len(processes_of_this_program())
    pools = []
    make_pool = ProcedureManager._make_pool

    def kept_pool(manager, epoch):
        pools.append(make_pool(manager, epoch))
        return pools[-1]

    monkeypatch.setattr(ProcedureManager, "_make_pool", kept_pool)
    manager = open_manager(workers=1)
    manager.submit(Mortal(3)).result(60)

    def worker_and_spare_are_there() -> bool:
        # While a process is started, the host has its ends of all channels for a moment, too.
        spares = list(pools[0]._thread._spares)
        is_prepared = len(spares) == 1 and spares[0].prepared
        return is_prepared and len(processes_of_this_program()) == others + 2

    until(worker_and_spare_are_there)
    before = kept_by_this_program()

    assert manager.submit(Mortal(DEATHS)).result(60 + DEATHS) == DEATHS
    until(worker_and_spare_are_there)
    deadline = time.monotonic() + 20

    def grown() -> dict[str, int]:
        now = kept_by_this_program()
        return {what: now[what] - before[what] for what in before if now[what] > before[what]}

    until(lambda: not grown() or time.monotonic() > deadline)
    assert grown() == {}
    assert sum(slot.restarts for slot in manager.health().slots) >= DEATHS
    assert manager.health().status == "running"
