"""Runs of the demo with several machines, and what they must not leave behind."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from actorproc.errors import EngineError
from actorproc.testing.database_server import find_server
from tests.kit.waiting import wait_until

__all__ = ["DemoRun", "demo_run"]

ROOT = Path(__file__).parents[2]
MARK = "ACTORPROC_TEST_OF_DEMO"
_LISTENS = "0A"


class DemoRun:
    """A place of its own for a demo, and what is found of it."""

    def __init__(self, place: Path, sources: Path) -> None:
        self.place = place
        self.sources = sources
        self._shared = _shared_memory()

    def start(self, *options: str) -> subprocess.Popen[str]:
        """Start the demo."""
        command = [sys.executable, "-m", "actorproc.cli.main", "demo", str(self.sources), "--seed", "3"]
        environment = os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(self.place), MARK: str(self.place)}
        return subprocess.Popen(
            [*command, "--regions", "6", *options],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def processes(self) -> list[psutil.Process]:
        """The processes that have the environment of the demo, and those below, which may have overwritten theirs."""
        found: dict[int, psutil.Process] = {}
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get(MARK) == str(self.place):
                    found |= {one.pid: one for one in (process, *process.children(recursive=True))}
        return [process for process in found.values() if process.is_running() and not _is_zombie(process)]

    def end(self) -> None:
        """Kill what a failed test has left."""
        for process in self.processes():
            with contextlib.suppress(psutil.Error):
                process.kill()

    def check_consistent(self, told: str) -> None:
        """It ended well, and each planned kill happened, or is told as left out.

        How many come to happen goes by the machine: the work may be done before an agent or a leader has a step.
        `test_any_process_but_those_of_the_database_may_be_killed` kills one of each kind.
        """
        assert "\nConsistent (" in told, told
        for kind, name, count in (
            ("worker", "worker", 4),
            ("agent", "the agent of a host", 2),
            ("leader", "the leader", 2),
        ):
            kills = len(re.findall(rf"kill -9 \d+ \({name}\) during", told))
            left_out = told.count(f"not killed: {kind}")  # the work may end before the last ones
            assert kills >= (kind == "worker"), told
            assert kills + left_out >= count, told
        assert "leads, " in told
        assert "left behind: no region file, no manifest, no catalog row, no lock" in told

    def check_gone(self, told: str) -> None:
        """No process, directory, port or shared memory is left."""
        wait_until(lambda: not self.processes())
        assert list(self.place.iterdir()) == []
        port = int(re.search(r"port (\d+)", told)[1])
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
        assert f"{port:04X}" not in {
            address.rpartition(":")[2] for _, address, _, state, *_ in rows if state == _LISTENS
        }
        assert not {name for name in _shared_memory() - self._shared if "plasma" in name}


def _is_zombie(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.status() == psutil.STATUS_ZOMBIE
    return True


def _shared_memory() -> set[str]:
    return {path.name for path in Path("/dev/shm").iterdir()}


@contextlib.contextmanager
def demo_run(tmp_path: Path, modules: int = 144) -> Iterator[DemoRun]:
    """A place that other users can reach, as the server may run as one, with sources that take time enough."""
    try:
        find_server()
    except EngineError as error:
        pytest.skip(f"no PostgreSQL: {error}")
    sources = tmp_path / "sources"
    sources.mkdir()
    text = "\n".join(f"def function_{number}(): return [{number}, {{}}, '']" for number in range(800))
    for number in range(modules):
        (sources / f"module_{number}.py").write_text(text)
    place = Path(tempfile.mkdtemp(prefix="d-", dir="/tmp"))  # short, as Ray makes sockets in it
    place.chmod(0o711)
    run = DemoRun(place, sources)
    try:
        yield run
    finally:
        run.end()
        shutil.rmtree(place, ignore_errors=True)
