"""Workers and hosts killed in the middle of steps, judged from outside: a journal, a referee and the store."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

import actorproc
from actorproc.store.lmdb.store import LmdbStore
from actorproc.testing.histories.real_histories import check_journal
from actorproc.testing.journal import Journal, JournalLine
from tests.simulator.rules.invariants import StoreDump

pytestmark = pytest.mark.processes

ROUNDS = 5
WORKER_KILLS = 3
"""In each round, before the host is killed: 20 kills in all."""
SEED = 20
BOUND = 60.0

HOST = """
import sys, time
from pathlib import Path
from actorproc import Limits, LockKey, Procedure, ProcedureFailed, ProcedureManager, Saga, Status, step
from actorproc.testing.journal import Journal, Referee

FOLDER, ROUND = sys.argv[1:]

class Part(Procedure):
    limits = Limits(crashes=100)
    def __init__(self, folder, key, wanted, good):
        self.folder, self.key, self.wanted, self.good, self.done = folder, key, wanted, good, 0

    def lock_keys(self):
        return [LockKey.write(self.key)]

    def execute(self, ctx):
        journal = Journal(self.folder + "/journal")
        with journal.step(ctx, self), Referee(self.folder + "/canaries", journal).hold(self.key, ctx=ctx):
            time.sleep(0.01)
            journal.effect(ctx, f"part {self.done}")
            self.done += 1
            if self.done == self.wanted and not self.good:
                raise RuntimeError("a bad part")
        return Status.executing() if self.done < self.wanted else Status.done(self.done)

    def rollback(self, ctx):
        journal = Journal(self.folder + "/journal")
        with journal.step(ctx, self), Referee(self.folder + "/canaries", journal).hold(self.key, ctx=ctx):
            time.sleep(0.01)

class Whole(Saga):
    limits = Limits(crashes=100)
    folder: str
    shelf: str
    reads: bool
    good: bool
    count: int = 0

    def lock_keys(self):
        return [LockKey.read("library"), (LockKey.read if self.reads else LockKey.write)(self.shelf)]

    def work(self, ctx):
        journal = Journal(self.folder + "/journal")
        referee = Referee(self.folder + "/canaries", journal)
        with journal.step(ctx, self), referee.hold("library", shared=True, ctx=ctx), \\
                referee.hold(self.shelf, shared=self.reads, ctx=ctx):
            time.sleep(0.01)
            self.count += 1

    @step
    def open(self, ctx):
        self.work(ctx)
    @open.undo
    def close(self, ctx):
        self.work(ctx)

    @step
    def make_parts(self, ctx):
        self.work(ctx)
        place = f"boxes/{ctx.id}" if self.reads else self.shelf
        return Status.suspended(
            Part(self.folder, f"{place}/{n}", 3, self.good or n > 0) for n in range(3)
        )
    @make_parts.undo
    def forget_parts(self, ctx):
        self.work(ctx)

    @step
    def weigh(self, ctx):
        self.work(ctx)
        return sum(outcome.output for outcome in ctx.children.values())

journal = Journal(FOLDER + "/journal")
with ProcedureManager(Path(FOLDER, "state"), workers=3, procedures=[Whole, Part]) as manager:
    for name, whole in {
        "writer": Whole(FOLDER, "shelf", False, True),
        "reader": Whole(FOLDER, "shelf", True, True),
        "failing": Whole(FOLDER, "shelf", False, False),
        "elsewhere": Whole(FOLDER, "table", False, True),
    }.items():
        id = f"{name}-{ROUND}"
        journal.submitted(id)
        manager.submit(whole, id=id)
        journal.acknowledged(id)
    if ROUND == "last":
        for info in list(manager.list()):
            if info.parent_id is None:
                handle = manager.get(info.id)
                handle.wait(60)
                journal.resolved(info.id, handle.info().state.value)
    else:
        time.sleep(60)
"""


def wait_for(condition: Callable[[], object], host: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + BOUND
    while not condition():
        assert host.poll() is None, f"the host left with {host.returncode}"
        assert time.monotonic() < deadline
        time.sleep(0.002)


def busy(lines: list[JournalLine]) -> list[int]:
    """Pids of the workers that are inside a step, as the journal says."""
    inside: dict[int, bool] = {}
    for line in lines:
        if line.epoch:
            inside[line.pid] = line.kind not in {"exit", "raised"}
    return [pid for pid, runs in inside.items() if runs]


@contextlib.contextmanager
def started(program: Path, folder: Path, name: str):
    environment = {**os.environ, "PYTHONPATH": str(Path(actorproc.__file__).parents[1])}
    host = subprocess.Popen([sys.executable, str(program), str(folder), name], env=environment)
    with host:
        try:
            yield host
        finally:
            host.kill()


def kill_a_busy_worker(host: subprocess.Popen[bytes], journal: Journal, chance: random.Random) -> None:
    """Wait for a few more steps, then kill a worker in the middle of one."""
    began = len(journal.lines()) + chance.randrange(2, 15)
    wait_for(lambda: len(journal.lines()) >= began, host)
    victims: list[int] = []

    def found() -> bool:
        children = {child.pid for child in psutil.Process(host.pid).children(recursive=True)}
        victims[:] = [pid for pid in busy(journal.lines()) if pid in children]
        return bool(victims)

    wait_for(found, host)
    victim = chance.choice(victims)
    journal.killing(victim)
    with contextlib.suppress(ProcessLookupError):
        os.kill(victim, signal.SIGKILL)


def test_a_storm_of_kills_breaks_no_promise(tmp_path):
    program = tmp_path / "host.py"
    program.write_text(HOST)
    journal = Journal(tmp_path / "journal")
    chance = random.Random(SEED)

    for number in range(ROUNDS):
        with started(program, tmp_path, str(number)) as host:
            for _ in range(WORKER_KILLS):
                kill_a_busy_worker(host, journal, chance)
            began = len(journal.lines()) + chance.randrange(12)
            wait_for(lambda began=began: len(journal.lines()) >= began, host)
            journal.killing(host.pid, is_host=True)
            host.kill()
    with started(program, tmp_path, "last") as host:
        assert host.wait(BOUND) == 0

    lines = journal.lines()
    with LmdbStore.reader(tmp_path / "state") as reader:
        dump = StoreDump.of(reader)
    assert check_journal(lines, dump) == []
    kinds = Counter(line.kind for line in lines)
    assert kinds["killing"] == ROUNDS * (WORKER_KILLS + 1)
    assert kinds["enter"] > kinds["exit"] + kinds["raised"], "no step was hit"
    states = {line.procedure: line.text for line in lines if line.kind == "resolved"}
    acknowledged = {line.procedure for line in lines if line.kind == "acknowledged"}
    assert states.keys() >= acknowledged
    for id, state in states.items():
        assert state == ("ROLLEDBACK" if id.startswith("failing") else "SUCCESS"), id
