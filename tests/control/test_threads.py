"""The threads that answer clients."""

from __future__ import annotations

import threading

import pytest

from actorproc.control.threads import Threads
from tests.kit.waiting import wait_until


@pytest.fixture
def threads(request):
    made = Threads(2, request.node.nodeid)  # those of the test before may be about to end
    yield made
    made.close()


@pytest.fixture
def named(request):
    return lambda: [thread for thread in threading.enumerate() if thread.name == request.node.nodeid]


def test_what_is_submitted_is_done_by_no_more_threads_than_allowed(threads, named):
    go, began = threading.Event(), threading.Semaphore(0)

    def work(number):
        began.release()
        go.wait(20)
        return number

    futures = [threads.submit(work, number) for number in range(10)]
    assert began.acquire(timeout=20)
    assert began.acquire(timeout=20)

    assert len(named()) == 2
    assert not began.acquire(blocking=False)
    go.set()
    assert [future.result(20) for future in futures] == list(range(10))


def test_one_thread_is_enough_for_one_after_the_other(threads, named):
    for number in range(20):
        assert threads.submit(pow, number, 2).result(20) == number**2
        wait_until(lambda: threads._idle == threads._running)

    assert len(named()) == 1


def test_whoever_asked_is_told_what_was_raised_and_the_thread_goes_on(threads):
    with pytest.raises(SystemExit):
        threads.submit(exit).result(20)

    assert threads.submit(len, "abc").result(20) == 3


def test_a_close_ends_the_threads_and_cancels_what_waits(threads, named):
    go, began = threading.Event(), threading.Semaphore(0)
    running = [threads.submit(lambda: (began.release(), go.wait(20))) for _ in range(2)]
    assert began.acquire(timeout=20)
    assert began.acquire(timeout=20)
    waiting = threads.submit(len, "abc")

    threads.close()
    go.set()

    assert waiting.cancelled()
    assert all(future.result(20) for future in running)
    wait_until(lambda: not named())
    with pytest.raises(RuntimeError):
        threads.submit(len, "abc")


def test_without_a_thread_from_the_system_others_do_it_or_the_caller_is_told(threads, monkeypatch):
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    start = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(RuntimeError, match="new thread"):
        threads.submit(len, "abc")
    monkeypatch.setattr(threading.Thread, "start", start)
    go = threading.Event()
    first = threads.submit(go.wait, 20)
    monkeypatch.setattr(threading.Thread, "start", refuse)
    second = threads.submit(len, "abc")
    go.set()

    assert (first.result(20), second.result(20)) == (True, 3)
