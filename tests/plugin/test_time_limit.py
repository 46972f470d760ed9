"""The time limit of a replayed step: it is thrown into the step alone, and into nothing that comes after it."""

from __future__ import annotations

import threading
import time

import pytest

from actorproc.api.replay import time_limit
from actorproc.api.replay.time_limit import StepTookTooLong, TimeLimit


def in_a_thread(call):
    said = []
    thread = threading.Thread(target=lambda: said.append(call()))
    thread.start()
    thread.join()
    return said[0]


def endless():
    try:
        with TimeLimit(0.01):
            while True:
                time.sleep(0.001)
    except StepTookTooLong:
        return "stopped"


def test_an_endless_step_of_a_thread_is_stopped():
    assert in_a_thread(endless) == "stopped"


def test_an_endless_step_of_the_main_thread_is_stopped():
    assert endless() == "stopped"


@pytest.mark.parametrize("when", ["at the end", "after the end"])
def test_nothing_is_thrown_into_a_thread_that_has_left_its_step(monkeypatch, when):
    """The limit is reached while the step ends: the watch is held where it is about to throw."""
    about, go_on, thrown = threading.Event(), threading.Event(), []
    throw = time_limit._throw

    class Lock:
        def __init__(self):
            self.lock = threading.Lock()

        def __enter__(self):
            if threading.current_thread().name == "actorproc-replay-limit":
                if when == "after the end":
                    about.set()
                    go_on.wait()
                self.lock.acquire()
                return
            self.lock.acquire()

        def __exit__(self, *_):
            self.lock.release()

    def noted(thread, error):
        if error is not None:
            thrown.append(error)
        throw(thread, error)
        about.set()

    monkeypatch.setattr(time_limit, "_throw", noted)

    def step():
        limit = TimeLimit(0.01)
        limit._throwing = Lock()
        try:
            with limit:
                about.wait()
        except StepTookTooLong:
            return "stopped"
        go_on.set()
        try:
            for _ in range(1000):
                time.sleep(0)
        except StepTookTooLong:
            return "thrown after its end"
        return "ended"

    said = in_a_thread(step)

    assert said in {"at the end": ("stopped", "ended"), "after the end": ("ended",)}[when]
    assert len(thrown) == (when == "at the end")


def test_a_watch_ends_with_its_thread(monkeypatch):
    """Its number may be another thread's by then."""
    thrown = []
    monkeypatch.setattr(time_limit, "_throw", lambda thread, error: thrown.append(thread))
    limit = TimeLimit(0.01)
    threads = []

    def leaves_nothing():
        limit.__enter__()
        threads.extend(thread for thread in threading.enumerate() if thread.name == "actorproc-replay-limit")
        return True

    assert in_a_thread(leaves_nothing)
    threads[-1].join(30)

    assert not threads[-1].is_alive()
