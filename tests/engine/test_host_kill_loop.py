"""A host that is killed again and again, each time a little later, until its work is done."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

import actorproc

pytestmark = pytest.mark.processes

STEPS = 3
PARTS = 6
FIRST_DELAY = 0.05
GROWTH = 1.2
ROUNDS = 30
"""More than enough: each round leaves a fifth more time than the one before, the last one ten seconds."""

HOST = """
import fcntl, json, sys, time
from dataclasses import dataclass
from pathlib import Path
from actorproc import LockKey, Procedure, ProcedureFailed, ProcedureManager, Saga, Status, step

FOLDER = sys.argv[1]

def note(folder, id, step):
    with Path(folder, "journal").open("a") as file:
        file.write(f"{id} {step}\\n")

@dataclass
class Part(Procedure):
    folder: str
    name: str
    wanted: int
    done: int = 0

    def lock_keys(self):
        return [LockKey.write(f"shelf/{self.name[-1] in '135'}")]

    def execute(self, ctx):
        note(self.folder, ctx.id, ctx.step)
        with Path(self.folder, f"lock-{self.name[-1] in '135'}").open("w") as shelf:
            fcntl.flock(shelf, fcntl.LOCK_EX | fcntl.LOCK_NB)     # BlockingIOError: two hold the same lock
            self.done += 1
            Path(self.folder, self.name).write_text("x" * self.done)
            time.sleep(0.03)
        return Status.executing() if self.done < self.wanted else Status.done(self.done)

    def rollback(self, ctx):
        Path(self.folder, self.name).unlink(missing_ok=True)

class Whole(Saga):
    folder: str
    prefix: str
    parts: int
    steps: int
    good: bool

    def lock_keys(self):
        return [LockKey.write("shelf")] if self.good else [LockKey.read("shelf")]

    @step
    def open(self, ctx):
        note(self.folder, ctx.id, ctx.step)
        Path(self.folder, self.prefix).touch()
    @open.undo
    def close(self, ctx):
        time.sleep(0.03)
        Path(self.folder, self.prefix).unlink(missing_ok=True)

    @step
    def make_parts(self, ctx):
        note(self.folder, ctx.id, ctx.step)
        names = [f"{self.prefix}-{number}" for number in range(self.parts)]
        return Status.suspended((name, Part(self.folder, name, self.steps)) for name in names)

    @step
    def weigh(self, ctx):
        note(self.folder, ctx.id, ctx.step)
        if not self.good:
            raise RuntimeError("nobody wants it")
        return sum(outcome.output for outcome in ctx.children.values())

with ProcedureManager(Path(FOLDER, "state"), workers=2, procedures=[Whole, Part]) as manager:
    good = manager.submit(Whole(FOLDER, "good", PARTS, STEPS, True), id="good")
    bad = manager.submit(Whole(FOLDER, "bad", 2, STEPS, False), id="bad")
    output = good.result(30)
    failure = bad.exception(30)
    print(json.dumps({
        "output": output, "bad": failure.state, "cause": str(failure.cause),
        "states": {info.id: info.state for info in manager.list()},
        "crashes": sum(info.crashes for info in manager.list()),
        "locks": len(manager.locks()),
    }))
"""


def run_for(seconds: float, program: Path, folder: Path) -> str | None:
    """Start the host, kill it after so many seconds; what it printed when it was done before."""
    source = str(Path(actorproc.__file__).parents[1])
    host = subprocess.Popen(
        [sys.executable, str(program), str(folder)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": source},
    )
    with host:
        try:
            text = host.communicate(timeout=seconds)[0]
        except subprocess.TimeoutExpired:
            workers = psutil.Process(host.pid).children(recursive=True)
            host.send_signal(signal.SIGKILL)
            host.communicate()
            assert left_after(2.0, workers) == []
            return None
    assert host.returncode == 0
    return text


def lives(process: psutil.Process) -> bool:
    """It still runs; one that is dead and waits for its parent to look does not."""
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def left_after(bound: float, processes: list[psutil.Process]) -> list[psutil.Process]:
    """Those of the processes that still live after so many seconds (they are killed then, for the tests after)."""
    deadline = time.monotonic() + bound
    while (alive := [process for process in processes if lives(process)]) and time.monotonic() < deadline:
        time.sleep(0.005)
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    return alive


def test_a_host_killed_a_little_later_each_time_finishes_its_work_consistently(tmp_path):
    program = tmp_path / "host.py"
    program.write_text(HOST.replace("PARTS", str(PARTS)).replace("STEPS", str(STEPS)))
    folder = tmp_path / "work"
    folder.mkdir()
    kills, printed = 0, None

    while printed is None:
        printed = run_for(FIRST_DELAY * GROWTH**kills, program, folder)
        kills += printed is None
        assert kills < ROUNDS

    told = json.loads(printed)
    assert kills >= 4, "the work was done before it was disturbed"
    assert told["output"] == PARTS * STEPS
    assert (told["bad"], told["cause"]) == ("ROLLEDBACK", "RuntimeError: nobody wants it")
    assert told["locks"] == 0
    assert told["crashes"] == 0, "the death of a host is charged to no step"
    assert told["states"].pop("bad") == "ROLLEDBACK"
    assert {told["states"].pop(f"bad-{number}") for number in range(2)} == {"ROLLEDBACK"}
    assert told["states"] == {"good": "SUCCESS"} | {f"good-{number}": "SUCCESS" for number in range(PARTS)}
    assert sorted(path.name for path in folder.glob("good*")) == sorted(["good", *(f"good-{n}" for n in range(PARTS))])
    assert {path.read_text() for path in folder.glob("good-*")} == {"x" * STEPS}
    assert list(folder.glob("bad*")) == []
    assert_no_step_went_back(folder / "journal")


def assert_no_step_went_back(journal: Path) -> None:
    """A step may be repeated; one before it never runs again, and none is left out."""
    reached: dict[str, int] = {}
    for line in journal.read_text().splitlines():
        id, step = line.split()
        assert int(step) in {reached.get(id, 0), reached.get(id, 0) + 1}, line
        reached[id] = int(step)
