"""Executors that are interrupted: by a signal handler, by the collector, by Ctrl-C, and by a fork in the middle."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time

import pytest

from actorproc.errors import ManagerStopped
from actorproc.executor import ProcedureExecutor, queue
from actorproc.procedure.shipping import by_value
from tests.executor.calls import add, mark_and_wait

pytestmark = pytest.mark.processes


def in_time(work):
    """What it returns, on a thread of its own: it may never come back."""
    found = []
    thread = threading.Thread(target=lambda: found.append(work()), daemon=True)
    thread.start()
    thread.join(30)
    assert found, "it stands still"
    return found[0]


@pytest.fixture
def in_the_middle(monkeypatch):
    """Have something done in the middle of the next submit, as a signal handler or `__del__` would."""
    plain, errands = queue.DurableFuture, []

    def made(*arguments):
        while errands:
            errands.pop()()
        return plain(*arguments)

    monkeypatch.setattr(queue, "DurableFuture", made)
    return errands.append


def test_a_call_may_be_cancelled_in_the_middle_of_a_submit(open_executor, in_the_middle, monkeypatch):
    executor = open_executor()
    go, following = threading.Event(), queue.CallQueue._next
    monkeypatch.setattr(queue.CallQueue, "_next", lambda calls: go.wait(30) and following(calls))
    first = executor.submit(add, 1)  # the sender takes it
    second = executor.submit(add, 2)
    answers = []
    in_the_middle(lambda: answers.append(second.cancel()))

    third = in_time(lambda: executor.submit(add, 3))
    go.set()

    assert answers == [True]
    assert second.cancelled()
    assert (first.result(30), third.result(30)) == (1, 3)


def test_a_call_may_be_submitted_in_the_middle_of_a_submit(open_executor, in_the_middle):
    executor = open_executor()
    inner = []
    in_the_middle(lambda: inner.append(executor.submit(add, 2)))

    outer = in_time(lambda: executor.submit(add, 1))

    assert (outer.result(30), inner[0].result(30)) == (1, 2)


def test_an_executor_that_is_shut_down_in_the_middle_of_a_submit_ends_with_that_call(
    open_executor, in_the_middle, until
):
    executor = open_executor()
    executor.submit(add, 1).result(30)
    in_the_middle(executor.shutdown)

    future = in_time(lambda: executor.submit(add, 2))

    assert future.result(30) == 2
    until(lambda: executor.manager.health().status == "stopped")
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(add, 3)


def test_a_call_on_its_way_may_be_cancelled_in_the_middle_of_a_submit(open_executor, in_the_middle, monkeypatch):
    executor = open_executor()
    sending, go, plain = threading.Event(), threading.Event(), executor._queue._submitted

    def submitted(*arguments):
        sending.set()
        return go.wait(30) and plain(*arguments)

    monkeypatch.setattr(executor._queue, "_submitted", submitted)
    first = executor.submit(add, 1)
    assert sending.wait(30)
    answers = []
    in_the_middle(lambda: answers.append(first.cancel()))

    second = in_time(lambda: executor.submit(add, 2))
    go.set()

    assert answers == [False]  # it is asked on another thread
    assert second.result(30) == 2
    assert first.cancelled() or first.result(30) == 1


def test_a_stored_call_is_not_asked_for_of_an_executor_that_was_shut_down_meanwhile(
    open_executor, monkeypatch, tmp_path
):
    with open_executor(tmp_path / "state").manager as manager:
        executor = ProcedureExecutor(manager)
        known = executor.submit(add, 1).durable(30).id
        monkeypatch.setattr(executor, "_check_not_shut_down", executor.shutdown)  # by a signal handler, right behind it

        def ask():
            while True:  # until its threads have ended
                executor.get(known).result(30)

        with pytest.raises(RuntimeError, match="after shutdown"):
            ask()


def test_a_call_that_went_into_the_rest_of_its_batch_is_still_on_its_way():
    old, rest = queue.CallBatch(), queue.CallBatch()
    old.durable.set_result(None)

    class Moves(queue.DurableFuture):
        """It is parted between two looks."""

        batches = (old, rest, rest)

        @property
        def _batch(self):
            self.at = min(getattr(self, "at", -1) + 1, 2)
            return self.batches[self.at]

        @_batch.setter
        def _batch(self, _):
            self.at = -1

    assert queue.on_its_way(Moves("p", None, old)) is rest


@pytest.mark.parametrize("started", [0, 1])
def test_ctrl_c_while_the_threads_are_started_leaves_none_and_the_next_submit_works(
    open_executor, monkeypatch, until, started
):
    executor = open_executor()
    before = set(threading.enumerate())  # those of the test before may be about to end
    start, starts = threading.Thread.start, []

    def interrupted(thread):
        if len(starts) == started:
            starts.append(thread)
            raise KeyboardInterrupt
        starts.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", interrupted)
    with pytest.raises(KeyboardInterrupt):
        executor.submit(add, 1)
    monkeypatch.setattr(threading.Thread, "start", start)
    until(lambda: not any(thread.is_alive() for thread in starts))

    assert executor.submit(add, 2).result(30) == 2
    names = [thread.name for thread in threading.enumerate() if thread not in before]
    assert [names.count(name) for name in ("actorproc-calls", "actorproc-results")] == [1, 1]
    executor.shutdown()


INTERRUPTED = """
import os, signal, sys, threading, time
from actorproc.executor import ProcedureExecutor

def waits(thread):
    names, frame = [], sys._current_frames()[thread]
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return names[0] == "wait" and "finish" in names

def interrupt(thread):
    while not waits(thread):  # else the end of the block, come to in the interrupt, would wait for good
        time.sleep(0.01)
    os.kill(os.getpid(), signal.SIGINT)

if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)  # shells have what runs behind them ignore it
    release = sys.argv[2]
    from tests.executor.calls import mark_and_wait
    try:
        with ProcedureExecutor(sys.argv[1], 1) as executor:
            executor.submit(mark_and_wait, sys.argv[3], release)
            while not os.path.exists(sys.argv[3]):
                time.sleep(0.01)
            threading.Thread(target=interrupt, args=[threading.get_ident()]).start()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
    del executor
    open(release, "w").close()
    deadline = time.monotonic() + 30
    while threading.active_count() > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    print([thread.name for thread in threading.enumerate() if thread is not threading.main_thread()])
    with ProcedureExecutor(sys.argv[1], 1) as again:
        print(again.submit(abs, -3).result(30))
"""


def test_ctrl_c_while_an_executor_waits_for_its_end_lets_it_end_all_the_same(tmp_path):
    arguments = [str(tmp_path / name) for name in ("state", "release", "began")]

    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, *arguments], capture_output=True, text=True, timeout=90, check=False
    )

    assert done.stdout.splitlines() == ["interrupted", "[]", "3"], done.stderr


def child_ends(work):
    """The exit code of a forked copy that does this; None when it stands still."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = 0 if work() else 2
        finally:
            os._exit(code)
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        pid, status = os.waitpid(child, os.WNOHANG)
        if pid:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 9)
    os.waitpid(child, 0)
    return None


def test_a_forked_copy_is_refused_at_once_whatever_is_locked(open_executor, tmp_path):
    executor = open_executor(max_workers=1)
    release = tmp_path / "release"
    running = executor.submit(mark_and_wait, str(tmp_path / "began"), str(release))
    waiting = executor.submit(add, 1)

    def is_refused():
        try:
            executor.submit(add, 2)
        except ManagerStopped:
            return waiting.cancel() is False and executor.shutdown() is None
        return False

    held, fork = threading.Event(), threading.Event()

    def hold():
        with executor._state, executor._queue._lock:
            held.set()
            fork.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(30)
    try:
        assert child_ends(is_refused) == 0
    finally:
        fork.set()
        thread.join()
    release.touch()
    assert (running.result(30) > 0, waiting.result(30)) == (True, 1)


def test_a_forked_copy_that_drops_the_executor_waits_for_nothing(tmp_path):
    executor = ProcedureExecutor(tmp_path / "state", 1)
    release = tmp_path / "release"
    running = executor.submit(mark_and_wait, str(tmp_path / "began"), str(release))

    def drops():
        before = threading.active_count()
        executor._queue.dropped.__callback__(None)
        return threading.active_count() == before

    assert child_ends(drops) == 0
    release.touch()
    assert running.result(30)
    executor.shutdown()


def test_a_fork_while_another_thread_pickles_by_value_keeps_nobody_from_it(monkeypatch):
    import cloudpickle

    entered, leave = threading.Event(), threading.Event()
    monkeypatch.setattr(by_value, "is_on_path", lambda _: False)

    def pickles():
        with by_value.unimportable_by_value({"tests.executor.calls"}):
            entered.set()
            leave.wait(30)

    def pickles_too():
        if cloudpickle.list_registry_pickle_by_value():
            return False
        with by_value.unimportable_by_value({"tests.executor.calls"}):
            return "tests.executor.calls" in cloudpickle.list_registry_pickle_by_value()

    thread = threading.Thread(target=pickles)
    thread.start()
    assert entered.wait(30)
    try:
        assert child_ends(pickles_too) == 0
        assert "tests.executor.calls" in cloudpickle.list_registry_pickle_by_value()
    finally:
        leave.set()
        thread.join()
    assert not cloudpickle.list_registry_pickle_by_value()
