"""Processes that are forked while threads of their parent submit, log, start and stop, as behind gunicorn's `preload_app`.

A copy that hangs writes where it stands and dies of it, so that its place tells whose lock it is.
"""

from __future__ import annotations

import faulthandler
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from logging.config import dictConfig
from pathlib import Path

import pytest

import actorproc
from actorproc.store.lmdb import open_store
from actorproc.store.lmdb.store import LmdbStore
from tests.kit.waiting import BOUND, wait_until

pytestmark = [pytest.mark.processes, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

FORKS = int(os.environ.get("ACTORPROC_MANY_FORKS", "10"))
_IS_PLACE = re.compile("Timeout|Thread 0x|  File ").match  # of what hangs
PATIENCE = 50
"""Seconds until a copy, and a program, that stands still says where."""

SHARED = """
import os
from actorproc import Config, connect, procedure

@procedure
def double(ctx, number: int) -> int:
    return 2 * number

hub = connect(os.environ["STATE"], procedures=[double], workers=2, config=Config(spares=0))
"""
PROGRAM = """
import faulthandler, logging, os, statistics, sys, threading, time
logging.basicConfig(filename="log", format="%(levelname)s %(message)s", level="INFO")
from shared import hub, double

def copy(number):
    "Fork, and wait for a copy that logs and submits; its seconds from the fork to its output."
    begun = time.monotonic()
    pid = os.fork()
    if not pid:
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        logging.info("copy %d", number)
        os._exit(hub.run(double(number), id=f"copy-{number}", timeout=60) != 2 * number)
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if ended:
        print("copy", number, "ended with", ended, flush=True)
    return time.monotonic() - begun

"""
LOAD = """
hub.run(double(1), timeout=60)
over = threading.Event()

def load(place):
    number = 0
    while not over.is_set():
        number += 1
        logging.info("load %d.%d", place, number)
        assert hub.run(double(number), timeout=60) == 2 * number

threads = [threading.Thread(target=load, args=(place,)) for place in range(3)]
for thread in threads:
    thread.start()
took = [copy(number) for number in range(FORKS)]
over.set()
for thread in threads:
    thread.join()
print("in time:", statistics.median(took) < 5, flush=True)
hub.close()
"""
MOMENTS = {
    "while another thread opens the connection": """
        thread = threading.Thread(target=hub.run, args=(double(0),), kwargs={"timeout": 60})
        thread.start()
        while hub._starter is None and thread.is_alive():
            time.sleep(0.001)
        took = [copy(number) for number in range(2)]
        thread.join()
        hub.close()
    """,
    "while another thread closes it": """
        hub.run(double(0), timeout=60)
        thread = threading.Thread(target=hub.close)
        thread.start()
        took = [copy(number) for number in range(2)]
        thread.join()
    """,
    "from a thread": """
        hub.run(double(0), timeout=60)
        thread = threading.Thread(target=copy, args=(0,))
        thread.start()
        thread.join()
        copy(1)
        hub.close()
    """,
    "from two threads at once": """
        hub.run(double(0), timeout=60)
        threads = [threading.Thread(target=copy, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        hub.close()
    """,
    "while clients connect": """
        from actorproc import ProcedureClient
        hub.run(double(0), timeout=60)
        over = threading.Event()
        def call():
            while not over.is_set():
                with ProcedureClient(os.environ["STATE"]) as client:
                    client.workers()
        thread = threading.Thread(target=call)
        thread.start()
        for number in range(2):
            copy(number)
        over.set()
        thread.join()
        hub.close()
    """,
}


def output_of(place: Path, text: str, within: float, before: str = "") -> list[str]:
    (place / "shared.py").write_text(SHARED)
    environment = os.environ | {
        "STATE": str(place / "state"),
        "PYTHONPATH": f"{place}:{Path(actorproc.__file__).parents[1]}",
    }
    head = f"{before}FORKS, PATIENCE = {FORKS}, {PATIENCE}\n{PROGRAM}"
    found = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", head + text],
        check=False, cwd=place, env=environment, capture_output=True, text=True, timeout=within,
    )  # fmt: skip
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines() + [line for line in found.stderr.splitlines() if _IS_PLACE(line)]


def said_by_copies(place: Path) -> set[str]:
    return {line for line in (place / "log").read_text().splitlines() if line.startswith("INFO copy ")}


def test_copies_that_are_forked_under_load_log_and_submit(tmp_path):
    """1,000 of them by hand: ACTORPROC_MANY_FORKS."""
    assert output_of(tmp_path, LOAD, within=4 * BOUND + 5 * FORKS) == ["in time: True"]
    assert said_by_copies(tmp_path) == {f"INFO copy {number}" for number in range(FORKS)}


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_copy_works_at_whichever_moment_it_is_forked(tmp_path, moment):
    assert output_of(tmp_path, "if True:" + MOMENTS[moment], within=4 * BOUND) == []
    assert said_by_copies(tmp_path) == {"INFO copy 0", "INFO copy 1"}


def ends(pid: int) -> int:
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_copy(work) -> int:
    """How a copy ends that does this work: 0, or -14 if it hangs, and then it writes where."""
    pid = os.fork()
    if pid:
        return ends(pid)
    code = 1
    try:
        faulthandler.register(signal.SIGALRM, file=2, chain=True)  # its watchdog is not here, where pytest has one
        signal.alarm(20)
        work()
        code = 0
    finally:
        os._exit(code)


@pytest.fixture
def logged():
    """A logger of its own, whose file is a pipe."""
    end, way = os.pipe()
    handler = logging.StreamHandler(open(way, "w"))  # noqa: SIM115, PTH123 - the handler closes it
    logger = logging.Logger("forked")  # noqa: LOG001 - it goes with the test
    logger.addHandler(handler)
    yield logger, end
    handler.stream.close()
    os.close(end)


def test_a_fork_waits_for_a_thread_that_writes_a_line(logged):
    logger, end = logged
    thread = threading.Thread(target=logger.error, args=("x" * 200_000,), name="actorproc-test")
    thread.start()  # it fills the pipe, and stands in the stream, under the lock of the handler

    def drain():
        left = 200_000
        while left > 0:
            left -= len(os.read(end, left))

    os.read(end, 1)
    drained = threading.Timer(0.2, drain)
    drained.start()
    assert in_copy(lambda: logger.error("from the copy")) == 0
    thread.join(BOUND)
    drained.join(BOUND)


def test_a_fork_does_not_wait_for_ever_for_a_handler_that_is_stuck(logged):
    logger, end = logged
    thread = threading.Thread(target=logger.error, args=("x" * 200_000,), name="actorproc-test")
    thread.start()
    os.read(end, 1)
    assert in_copy(lambda: logging.getLogger("another").error("of another handler")) == 0
    assert not logger.handlers[0].lock.acquire(blocking=False)
    while thread.is_alive():
        os.read(end, 65536)
        thread.join(0.01)
    assert logger.handlers[0].lock.acquire(blocking=False)
    logger.handlers[0].lock.release()


def test_forks_and_settings_of_logging_do_not_wait_for_each_other():
    over = threading.Event()
    settings = {"version": 1, "disable_existing_loggers": False, "incremental": False}
    settings |= {"handlers": {"h": {"class": "logging.NullHandler"}}, "loggers": {"forked.x": {"handlers": ["h"]}}}

    def set_again():
        while not over.is_set():
            dictConfig(settings)

    root = logging.getLogger()
    kept = list(root.handlers)
    thread = threading.Thread(target=set_again, name="actorproc-test")
    thread.start()
    assert [in_copy(lambda: logging.getLogger("forked.x").error("hello")) for _ in range(20)] == [0] * 20
    over.set()
    thread.join(BOUND)
    assert not thread.is_alive()
    assert root.handlers == kept


def test_a_fork_of_a_program_whose_lock_is_taken_in_a_later_hook_and_logged_under(tmp_path):
    """A hook that is registered before this package runs behind its own, and waits for a thread that logs."""
    text = """if True:
        faulthandler.dump_traceback_later(PATIENCE, exit=True)
        over = threading.Event()
        def work():
            while not over.is_set():
                time.sleep(0.001)
                with lock:
                    time.sleep(0.001)
                    logging.info("under the lock")
        thread = threading.Thread(target=work, name="actorproc-test")
        thread.start()
        for number in range(10):
            pid = os.fork()
            if not pid:
                logging.info("copy %d", number)
                os._exit(0)
            print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
        over.set()
        thread.join()
    """
    # Behind `logging`, whose own hook would wait for the thread without this package as well.
    before = "import logging, os, threading\nlock = threading.Lock()\n"
    before += "os.register_at_fork(before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release)\n"
    assert output_of(tmp_path, text, within=4 * BOUND, before=before) == ["0"] * 10
    assert said_by_copies(tmp_path) == {f"INFO copy {number}" for number in range(10)}


def test_a_copy_made_in_a_commit_that_lasts_says_that_it_cannot_open_the_store(tmp_path, monkeypatch):
    monkeypatch.setattr(open_store, "_COMMIT", 0.05)
    store = LmdbStore(tmp_path / "state")
    store.own()
    inside, over = threading.Event(), threading.Event()

    def work(txn):
        inside.set()
        over.wait(BOUND)

    thread = threading.Thread(target=store._transact, args=(work,))
    thread.start()
    wait_until(inside.is_set)

    def look():
        open_store.leave_inherited(store.path)
        with pytest.raises(actorproc.EngineError, match="already open in this process"):
            LmdbStore.reader(store.path)

    assert in_copy(look) == 0
    over.set()
    thread.join(BOUND)
    assert in_copy(lambda: open_store.leave_inherited(store.path)) == 0
    store.close()
