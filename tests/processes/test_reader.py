"""Which thread of a worker reads its channel, and that no message is left unread."""

from __future__ import annotations

import queue
import threading

import pytest

from actorproc.workers.child import reader as reading
from actorproc.workers.child.limits import Limiter
from actorproc.workers.child.reader import Reader

STEP, WORD = "step", "word"
NEVER = 3600.0


class FakeChannel:
    """Messages are put in by the test, and received by whoever reads."""

    def __init__(self) -> None:
        self.limiter = Limiter()
        self.sent: queue.SimpleQueue[str] = queue.SimpleQueue()

    def receive(self) -> list[str]:
        return [self.sent.get()]


class FakeDesk:
    """Steps wait here for the thread of the test; other messages are only noted, each with the thread that read it."""

    def __init__(self) -> None:
        self.taken = 0
        self.steps: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.words: queue.SimpleQueue[str] = queue.SimpleQueue()
        self.readers: list[bool] = []
        self.main = threading.get_ident()

    @property
    def is_empty(self) -> bool:
        return self.steps.empty()

    def take_in(self, message: str) -> None:
        self.readers.append(threading.get_ident() == self.main)
        (self.steps if message == STEP else self.words).put(message)


class Worker:
    """The main thread's side of the desk, as `Desk` does it."""

    def __init__(self) -> None:
        self.channel, self.desk = FakeChannel(), FakeDesk()
        self.reader = Reader(self.channel, self.desk, self.desk.take_in)  # type: ignore[arg-type]
        # A worker's reader thread ends with its process. Here it stays, under a name that is not the engine's.
        threading.Thread(target=self.reader._run, name="a worker's reader", daemon=True).start()

    def take(self) -> None:
        while self.desk.is_empty and self.reader.read():
            pass
        self.desk.steps.get(timeout=60)
        self.reader.served()
        self.desk.taken += 1

    def run_steps_until_main_reads(self) -> None:
        """The first step comes through the reader thread, as one does after a long step: the next ones need not."""
        for _ in range(100):
            self.channel.sent.put(STEP)
            self.take()
            if self.desk.readers[-1]:
                return
        pytest.fail("the main thread never read for itself")

    def hears_a_word(self) -> bool:
        """A message comes while the main thread does something else; whether the other thread heard it."""
        self.channel.sent.put(WORD)
        self.desk.words.get(timeout=60)
        return not self.desk.readers[-1]


@pytest.fixture(autouse=True)
def _no_hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_LATE", NEVER)


def test_the_thread_that_runs_the_steps_reads_them() -> None:
    worker = Worker()
    worker.run_steps_until_main_reads()
    count = len(worker.desk.readers)
    for _ in range(50):
        worker.channel.sent.put(STEP)
        worker.take()
    assert worker.desk.readers[count:] == [True] * 50


def test_a_step_that_asks_for_something_is_answered_at_once() -> None:
    worker = Worker()
    worker.run_steps_until_main_reads()
    worker.reader.take_over()
    assert worker.hears_a_word()
    assert worker.hears_a_word()  # and again, without being asked
    worker.run_steps_until_main_reads()


def test_a_step_that_lasts_is_told_what_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_LATE", 0.001)
    worker = Worker()
    for _ in range(5):
        worker.channel.sent.put(STEP)
        worker.take()
        assert worker.hears_a_word()


def test_after_a_quiet_time_a_step_that_lasts_is_told_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "_LATE", 0.001)
    monkeypatch.setattr(reading, "_QUIET", 1)
    worker = Worker()
    reader = worker.reader
    roused = 0

    def speak_when_it_sleeps(heard: threading.Event) -> None:
        nonlocal roused
        # Or when the main thread waits for the reader thread, which then has no reason to sleep.
        while not (reader._asleep or reader._main_waits or heard.is_set()):
            pass
        roused += reader._asleep
        worker.channel.sent.put(STEP)

    while roused < 3:
        heard = threading.Event()
        speaker = threading.Thread(target=speak_when_it_sleeps, args=(heard,), daemon=True)
        speaker.start()
        worker.take()
        heard.set()
        speaker.join()
        assert worker.hears_a_word()
        # It reads until it has handed over a step; then the main thread may read again.
        worker.run_steps_until_main_reads()


def test_while_other_threads_run_steps_the_reader_thread_reads_all() -> None:
    worker = Worker()
    worker.run_steps_until_main_reads()
    worker.reader.leave()
    assert worker.hears_a_word()
    worker.channel.sent.put(STEP)
    worker.desk.steps.get(timeout=60)
    worker.reader.served()
    assert not worker.desk.readers[-1]
    worker.reader.leave()
    assert worker.hears_a_word()
