"""Spares load the classes in use before they are needed."""

from __future__ import annotations

import importlib
import logging
import os
import signal
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from actorproc import Config, Procedure, Status
from actorproc.workers.pool.pool_thread import PoolThread

pytestmark = pytest.mark.processes


@pytest.fixture
def config() -> Config:
    return Config(spares=1)


MODULE = '''
import os, signal, time
from dataclasses import dataclass
from pathlib import Path
from actorproc import Procedure, Status

FOLDER = Path({folder!r})
with (FOLDER / "imports").open("a") as file:
    file.write(f"{{os.getpid()}}\\n")
if len((FOLDER / "imports").read_text().split()) == 3:  # after the host and the first worker: a spare
    if (FOLDER / "deadly").exists():
        os.kill(os.getpid(), signal.SIGKILL)
    if (FOLDER / "broken").exists():
        raise RuntimeError("a module with a mood")

@dataclass
class Held(Procedure):
    """Tells its pid, and goes on when it is let."""
    def execute(self, ctx):
        with (FOLDER / "begun").open("a") as file:
            file.write(f"{{os.getpid()}}\\n")
        while not (FOLDER / "go").exists():
            time.sleep(0.005)
        return Status.done(os.getpid())
'''


@pytest.fixture
def module(tmp_path, monkeypatch):
    name = f"warm_{os.getpid()}_{tmp_path.name}"
    (tmp_path / f"{name}.py").write_text(MODULE.format(folder=str(tmp_path)))
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    yield importlib.import_module(name)
    sys.modules.pop(name, None)


@pytest.fixture
def pids(tmp_path):
    def of(what):
        path = Path(tmp_path, what)
        lines = path.read_text().split("\n") if path.exists() else []
        return [int(line) for line in lines[:-1]]  # what is after the last line feed is not written yet

    return of


def test_a_spare_has_imported_the_module_of_the_step_before_it_takes_its_place(
    open_manager, until, tmp_path, module, pids
):
    manager = open_manager(workers=1)
    handle = manager.submit(module.Held())
    first = until(lambda: pids("begun"))[0]
    spare = until(lambda: set(pids("imports")) - {os.getpid(), first}).pop()
    until(lambda: psutil.Process(spare).status() == psutil.STATUS_SLEEPING)

    os.kill(first, signal.SIGKILL)
    until(lambda: len(pids("begun")) == 2)
    (tmp_path / "go").touch()

    assert handle.result(30) == spare
    assert pids("imports").count(spare) == 1


def is_gone_or_asleep(pid):
    try:
        return psutil.Process(pid).status() == psutil.STATUS_SLEEPING
    except psutil.NoSuchProcess:
        return True


@pytest.mark.parametrize("mood", ["deadly", "broken"])
def test_a_module_that_ends_or_fails_a_spare_harms_no_step(open_manager, until, tmp_path, module, pids, mood):
    (tmp_path / mood).touch()
    manager = open_manager(workers=1)
    handle = manager.submit(module.Held())
    first = until(lambda: pids("begun"))[0]
    spare = until(lambda: pids("imports")[2:])[0]
    until(lambda: is_gone_or_asleep(spare))

    os.kill(first, signal.SIGKILL)
    until(lambda: len(pids("begun")) == 2)
    (tmp_path / "go").touch()

    assert (handle.result(30) == spare) is (mood == "broken")
    assert manager.health().status == "running"
    assert manager.info(handle.id).state == "SUCCESS"


def chatty():
    """An environment with a library that logs now and then, from a thread of its own."""

    def talk():
        while True:
            logging.getLogger("library").warning("still there")
            time.sleep(0.01)

    threading.Thread(target=talk, daemon=True).start()


@dataclass
class DiesOnce(Procedure):
    folder: str

    def execute(self, ctx):
        Path(self.folder, f"began {ctx.attempt}").touch()
        if ctx.attempt == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return Status.done(ctx.attempt)


def test_what_a_spare_says_in_the_moment_in_which_it_is_taken_is_heard_of_the_worker_that_it_becomes(
    open_manager, tmp_path, monkeypatch, until
):
    """The spare's log line is there before the worker's death is handled, and the pool's thread is slow after the death.

    The manager's thread has been told of the line, and waits for the pool's.
    """
    armed, report, go_on = threading.Event(), PoolThread._report, PoolThread._go_on

    def has_line(thread):
        return any(key.data is not None and key.data[1].worker is None for key, _ in thread.ear.selector.select(0))

    def late(thread, ready):
        if armed.is_set() and any(isinstance(key.data, tuple) for key, _ in ready):
            until(lambda: has_line(thread))
            armed.clear()
        go_on(thread, ready)

    def slow_report(thread, link, crash):
        report(thread, link, crash)
        if link.worker is not None and link.given:
            until(Path(tmp_path, "began 2").exists)
            time.sleep(0.1)  # its answer may be there by now

    monkeypatch.setattr(PoolThread, "_go_on", late)
    monkeypatch.setattr(PoolThread, "_report", slow_report)
    manager = open_manager(workers=1, max_workers=1, procedures=[DiesOnce], environment=chatty)
    spares = manager._tree.pool._thread._spares
    until(lambda: any(spare.prepared for spare in spares))
    armed.set()
    handle = manager.submit(DiesOnce(str(tmp_path)))

    assert handle.result(30) == 2
    assert not Path(tmp_path, "began 3").exists()
    assert not armed.is_set()
