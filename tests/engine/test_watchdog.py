"""A manager that does not answer is given up, unless it is seen at work: it decides, or waits for its database."""

from __future__ import annotations

import threading
from concurrent.futures import Future

import pytest

from actorproc.engine.runtime import watchdog as watchdog_module
from actorproc.engine.runtime.watchdog import ManagerWatchdog
from actorproc.errors import ManagerStopped

LIMIT = 2.0


class Work:
    """A thread that is at work, in a file of that name, until it is set free."""

    def __init__(self, file):
        self.free, self.began = threading.Event(), threading.Event()
        names = {}
        exec(compile("def wait(work):\n    work.began.set()\n    work.free.wait(60)\n", file, "exec"), names)
        self._wait = names["wait"]
        self.thread = threading.Thread(target=self.work)
        self.thread.start()
        assert self.began.wait(60)

    def work(self):
        self._wait(self)

    def end(self):
        self.free.set()
        self.thread.join(60)


@pytest.fixture
def now(monkeypatch):
    found = [100.0]
    monkeypatch.setattr(watchdog_module.time, "monotonic", lambda: found[0])
    return found


def lives_for(watchdog, now):
    """The number of limits for which it is taken to live."""
    assert watchdog()
    for limits in range(1, 100):
        now[0] += LIMIT
        if not watchdog():
            return limits
    return None


@pytest.mark.parametrize(
    ("file", "limits"),
    [("/x/actorproc/store/postgres/sessions.py", 13), ("/x/actorproc/store/committer.py", 2)],
    ids=["waits for the database", "waits for something else"],
)
def test_a_thread_at_work_is_waited_for_while_it_waits_for_the_database(now, file, limits):
    work = Work(file)
    try:
        assert lives_for(ManagerWatchdog(Future, (Work.work.__code__,), LIMIT), now) == limits
    finally:
        work.end()


def test_the_wait_of_one_of_two_threads_at_work_counts(now):
    """The manager's own thread waits for the database, and its stand-in has the turn and no processor."""
    both = [Work(f"/x/actorproc/{name}.py") for name in ("engine/stand_in", "store/postgres/sessions")]
    try:
        assert lives_for(ManagerWatchdog(Future, (Work.work.__code__,), LIMIT), now) == 13
    finally:
        for work in both:
            work.end()


def test_a_manager_that_is_nowhere_at_work_and_does_not_answer_hangs(now):
    assert lives_for(ManagerWatchdog(Future, (Work.work.__code__,), LIMIT), now) == 2


def test_a_manager_that_answers_lives_and_one_that_has_ended_does_not(now):
    answers = []

    def ask():
        if len(answers) == 5:
            raise ManagerStopped("it has ended")
        answers.append(Future())
        answers[-1].set_result(True)
        return answers[-1]

    assert lives_for(ManagerWatchdog(ask, (Work.work.__code__,), LIMIT), now) == 5
