"""Workers that tests fork are what a manager starts itself: children of its process, with all that it gives them."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
from pathlib import Path

import psutil
import pytest

from actorproc import Config, Procedure, ProcedureManager, Status
from tests.kit import warm_workers as kit
from tests.kit.waiting import wait_until
from tests.kit.warm_workers import warm_workers

__all__ = ["warm_workers"]

pytestmark = [
    pytest.mark.processes,
    pytest.mark.skipif(sys.platform != "linux", reason="workers are forked for a parent on Linux alone"),
]


class Tells(Procedure):
    """Tells properties of its worker that come from the parent of that."""

    def execute(self, ctx):
        main, heard = threading.main_thread(), threading.Event()
        signal.signal(signal.SIGUSR2, lambda *_: heard.set())
        # The C library signals a thread by the number that it noted when the thread began.
        thread = threading.Thread(target=signal.pthread_kill, args=(main.ident, signal.SIGUSR2))
        thread.start()
        thread.join()
        facts = {
            "parent": os.getppid(),
            "leads": os.getsid(0) == os.getpid(),
            "number": main.native_id == os.getpid(),
            "hears": heard.wait(10),
            "place": str(Path.cwd()),
            "variable": os.environ.get("ACTORPROC_OF_A_TEST"),
            "arguments": sys.orig_argv[-1],
        }
        return Status.done(facts)


class Dies(Procedure):
    def execute(self, ctx):
        if not ctx.replayed:
            os.abort()
        return Status.done("again")


@pytest.fixture
def start(tmp_path):
    managers = []

    def started():
        managers.append(
            ProcedureManager(tmp_path / f"state-{len(managers)}", workers=1, config=Config(spares=0)).start()
        )
        return managers[-1]

    yield started
    for manager in managers:
        manager.stop(drain=False, timeout=10)


@pytest.fixture
def forked(monkeypatch):
    """Counts workers that are forked."""
    if not kit._forking or not kit._forking[0].is_able:
        pytest.skip("the system lets no process fork for its parent, or workers are to be fresh interpreters")
    pids, start = [], kit._ForkingProcess.start

    def counted(*arguments):
        process = start(*arguments)
        pids.append(process.pid)
        return process

    monkeypatch.setattr(kit._ForkingProcess, "start", counted)
    return pids


def test_a_forked_worker_has_what_a_fresh_interpreter_would_have(start, forked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("ACTORPROC_OF_A_TEST", "given ü")
    manager = start()

    facts = manager.run(Tells())

    assert forked == [manager.workers()[0].pid]
    assert facts["parent"] == os.getpid()
    assert facts["leads"]
    assert facts["number"]
    assert facts["hears"]
    assert facts["place"] == str(tmp_path)
    assert facts["variable"] == "given ü"


def test_its_death_is_seen_and_it_is_waited_for(start, forked):
    manager = start()

    assert manager.run(Dies()) == "again"

    assert len(forked) == 2
    wait_until(lambda: not psutil.pid_exists(forked[0]))


@pytest.mark.parametrize("changed", ["limit", "ignored signal", "variable of the interpreter"])
def test_where_it_would_inherit_something_else_a_worker_is_a_fresh_interpreter(start, forked, changed, monkeypatch):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    before = signal.getsignal(signal.SIGUSR2)
    try:
        if changed == "limit":
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
        elif changed == "ignored signal":
            signal.signal(signal.SIGUSR2, signal.SIG_IGN)
        else:
            monkeypatch.setenv("PYTHONHASHSEED", "7")
        facts = start().run(Tells())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        signal.signal(signal.SIGUSR2, before)

    assert forked == []
    assert facts["arguments"] == "actorproc-worker"


def test_without_the_process_that_forks_workers_are_fresh_interpreters(start, forked):
    kit._forking[0]._process.kill()
    kit._forking[0]._process.wait()

    assert start().run(Tells())["arguments"] == "actorproc-worker"

    assert forked == []
