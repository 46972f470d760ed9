"""Ends of programs with executors: Ctrl-C, no shutdown, and a store that was removed."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time

import pytest

from actorproc import ProcedureExecutor, ProcedureManager, StorageUnavailable
from actorproc.executor import queue
from tests.executor.calls import add, mark_and_wait
from tests.kit.waiting import until_it_waits

pytestmark = pytest.mark.processes

BEGIN = """
import os, signal, sys, threading, time
from actorproc import ProcedureExecutor, ProcedureManager
from tests.executor.calls import mark_and_wait
signal.signal(signal.SIGINT, signal.default_int_handler)
path, marker, release = sys.argv[1:]

def begin(executor):
    futures = [executor.submit_as("first", mark_and_wait, marker, release), executor.submit_as("second", abs, -2)]
    while not os.path.exists(marker):
        time.sleep(0.01)
    print("ready", flush=True)
    return futures
"""
WAITS = {
    "for a result": """
with ProcedureExecutor(path, 1) as executor:
    begin(executor)[0].result()
""",
    "at the end of the block": """
with ProcedureExecutor(path, 1) as executor:
    begin(executor)
""",
    "in shutdown": """
executor = ProcedureExecutor(path, 1)
begin(executor)
executor.shutdown()
""",
    "without a block": """
executor = ProcedureExecutor(path, 1)
begin(executor)[0].result()
""",
    "in a map": """
with ProcedureExecutor(path, 1) as executor:
    begin(executor)
    list(executor.map(mark_and_wait, [marker + "-map"] * 2, [release] * 2))
""",
    "with another's manager": """
with ProcedureManager(path, workers=1) as manager:
    with ProcedureExecutor(manager) as executor:
        begin(executor)[0].result()
""",
}


def run(tmp_path, program):
    arguments = [str(tmp_path / name) for name in ("state", "began", "release")]
    return subprocess.Popen(
        [sys.executable, "-c", BEGIN + program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("wait", WAITS)
def test_one_ctrl_c_leaves_says_what_stays_and_the_next_run_goes_on(tmp_path, wait):
    with run(tmp_path, WAITS[wait]) as program:
        assert program.stdout.readline() == "ready\n"
        until_it_waits(program.pid)
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=20)

    assert "KeyboardInterrupt" in said
    assert "calls have not ended" in said
    assert str(tmp_path / "state") in said
    (tmp_path / "release").touch()
    with ProcedureExecutor(tmp_path / "state", 1) as executor:
        assert executor.get("first").result(60) > 0
        assert executor.get("second").result(30) == 2


def test_the_second_ctrl_c_leaves_at_once(tmp_path):
    stuck = """
import actorproc.executor.leaving as leaving
leaving._stop_now = lambda *_: (print("leaving", flush=True), time.sleep(600))
"""
    with run(tmp_path, stuck + WAITS["for a result"]) as program:
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGINT)
        assert program.stdout.readline() == "leaving\n"
        program.send_signal(signal.SIGINT)
        program.communicate(timeout=20)


@pytest.mark.parametrize("count", [1, 200, 2500])
def test_what_was_submitted_is_stored_when_the_program_ends_without_shutdown(tmp_path, count):
    program = f"""
executor = ProcedureExecutor(path, 1)
executor.submit_as("before", abs, -1)
print(*[executor.submit(abs, -number).id for number in range({count})], flush=True)
"""
    with run(tmp_path, program) as ended:
        ids, said = ended.communicate(timeout=60)

    assert ended.returncode == 0, said
    assert count < 1000 or "calls have not ended" in said  # a few may have ended in time
    with ProcedureExecutor(tmp_path / "state", 2) as executor:
        assert [executor.get(id_).result(60) for id_ in ids.split()] == list(range(count))


def test_a_program_whose_calls_have_ended_says_nothing_at_its_end(tmp_path):
    with run(tmp_path, "executor = ProcedureExecutor(path, 1)\nprint(executor.submit(abs, -1).result(30))\n") as ended:
        assert ended.communicate(timeout=60) == ("1\n", "")


def test_calls_that_cannot_be_stored_do_not_keep_the_program_for_longer_than_its_stop_timeout(tmp_path):
    program = """
from actorproc import Config
executor = ProcedureExecutor(path, 1, config=Config(stop_timeout=0.5))
executor.manager
executor._queue._submitted = lambda *_: time.sleep(600)
executor.submit(abs, -1)
"""
    with run(tmp_path, program) as ended:
        _, said = ended.communicate(timeout=60)
    assert (ended.returncode, "1 calls could not be stored" in said) == (0, True), said


def test_the_thread_for_the_programs_end_ends_with_the_calls_and_begins_again(open_executor, until, monkeypatch):
    begun = []
    executor = open_executor()
    executor._queue._watch = lambda calls, plain=executor._queue._watch: (begun.append(calls), plain(calls))[1]
    for expected in (1, 2):
        assert executor.submit(add, 1, 2).result(30) == 3
        assert len(begun) == expected
        until(lambda: not executor._queue._is_watched)


@pytest.mark.parametrize("is_own", [True, False])
def test_a_store_that_was_removed_ends_shutdown_with_an_error(tmp_path, is_own):
    state = tmp_path / "state"
    manager = None if is_own else ProcedureManager(state, workers=1).start()
    executor = ProcedureExecutor(state, 1) if is_own else ProcedureExecutor(manager)
    future = executor.submit(mark_and_wait, tmp_path / "began", tmp_path / "release").durable(30)
    shutil.rmtree(state)

    with pytest.raises(StorageUnavailable, match="was removed while calls of this executor were open"):
        executor.shutdown()
    if manager is not None:
        manager.stop(drain=False, timeout=1)
    assert future.exception(30) is not None


def test_a_store_that_is_there_is_waited_for(open_executor, tmp_path, monkeypatch):
    executor = open_executor(max_workers=1)
    looks = []
    monkeypatch.setattr("actorproc.executor.leaving._LOOK_EVERY", 0.01)
    plain = queue.CallQueue.finish
    monkeypatch.setattr(
        queue.CallQueue, "finish", lambda calls, look, every: plain(calls, lambda: looks.append(look()), every)
    )
    future = executor.submit(time.sleep, 0.5)

    executor.shutdown()

    assert future.done()
    assert looks


WITHOUT_WAITING = {
    "then waits for a result": """
executor = ProcedureExecutor(path, 1)
futures = begin(executor)
executor.shutdown(wait=False)
futures[0].result()
""",
    "then does something else": """
executor = ProcedureExecutor(path, 1)
begin(executor)
executor.shutdown(wait=False)
time.sleep(100)
""",
    "and cancels the rest": """
executor = ProcedureExecutor(path, 1)
futures = begin(executor)
executor.shutdown(wait=False, cancel_futures=True)
futures[0].result()
""",
    "in a block that waits": """
with ProcedureExecutor(path, 1) as executor:
    futures = begin(executor)
    executor.shutdown(wait=False)
    futures[0].result()
""",
    "in a block that ends": """
with ProcedureExecutor(path, 1) as executor:
    begin(executor)
    executor.shutdown(wait=False)
""",
    "and shuts down again": """
executor = ProcedureExecutor(path, 1)
begin(executor)
executor.shutdown(wait=False)
executor.shutdown()
""",
    "by dropping it": """
executor = ProcedureExecutor(path, 1)
futures = begin(executor)
del executor
futures[0].result()
""",
    "on another thread that waits": """
executor = ProcedureExecutor(path, 1)
futures = begin(executor)
threading.Thread(target=executor.shutdown).start()
futures[0].result()
""",
    "and the program ends": """
executor = ProcedureExecutor(path, 1)
begin(executor)
executor.shutdown(wait=False)
""",
}


@pytest.mark.parametrize("way", WITHOUT_WAITING)
def test_one_ctrl_c_leaves_an_executor_that_was_shut_down_without_waiting(tmp_path, way):
    with run(tmp_path, WITHOUT_WAITING[way]) as program:
        assert program.stdout.readline() == "ready\n"
        until_it_waits(program.pid)
        program.send_signal(signal.SIGINT)
        _, said = program.communicate(timeout=20)

    assert "KeyboardInterrupt" in said
    if way != "and the program ends":  # the interpreter itself leaves its wait for threads
        assert program.returncode == -signal.SIGINT
        assert "not ended. They stay stored in" in said
    (tmp_path / "release").touch()
    with ProcedureExecutor(tmp_path / "state", 1) as executor:
        assert executor.get("first").result(60) is not None


def test_a_program_that_ends_after_a_shutdown_without_waiting_makes_its_calls_and_says_nothing(tmp_path):
    program = """
executor = ProcedureExecutor(path, 1)
futures = begin(executor)
futures[0].add_done_callback(lambda future: print("made", flush=True))
executor.shutdown(wait=False)
threading.Timer(1.0, open(release, "w").close).start()
"""
    with run(tmp_path, program) as running:
        out, said = running.communicate(timeout=60)

    assert (running.returncode, out, said) == (0, "ready\nmade\n", "")


def test_a_program_that_goes_on_after_ctrl_c_waits_for_its_calls_at_its_end(tmp_path):
    program = """
executor = ProcedureExecutor(path, 1)
futures = begin(executor)
executor.shutdown(wait=False)
try:
    futures[0].result()
except KeyboardInterrupt:
    open(release, "w").close()
    print("goes on", flush=True)
print(futures[0].result() is not None)
"""
    with run(tmp_path, program) as running:
        assert running.stdout.readline() == "ready\n"
        until_it_waits(running.pid)
        running.send_signal(signal.SIGINT)
        out, said = running.communicate(timeout=60)

    assert (running.returncode, out, said) == (0, "goes on\nTrue\n", "")
