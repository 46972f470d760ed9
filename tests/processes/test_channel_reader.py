"""Which of a worker's two threads reads: the main thread while it has nothing to run, else the other when it is needed."""

from __future__ import annotations

import random
import signal
import threading
from queue import SimpleQueue

import pytest

from actorproc.workers.child.runtime import channel_reader
from actorproc.workers.child.runtime.channel_reader import ChannelReader, wait_for_next

PATIENCE = 60


class Worker:
    """A channel that is a queue, with a reader thread. Messages: a step (text), ("answer", number), ("word", text)."""

    def __init__(self):
        self.channel = SimpleQueue()
        self.steps = SimpleQueue()
        self.asked = {}
        self.read_by = []
        self.words = SimpleQueue()
        self.reading = ChannelReader(self.read, self.steps, self.asked)
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        try:
            self.reading.serve()
        except EOFError:
            return

    def read(self):
        message = self.channel.get()
        self.read_by.append((message, threading.current_thread()))
        if message is EOFError:
            self.channel.put(EOFError)
            self.steps.put(None)
            raise EOFError
        match message:
            case ("answer", number):
                self.asked.pop(number).set()
            case ("word", text):
                self.words.put(text)
            case _:
                self.steps.put(message)

    def ask(self, number):
        answered = self.asked[number] = threading.Event()
        self.reading.ask()
        return answered

    def reader_of(self, message):
        (thread,) = [thread for found, thread in self.read_by if found == message]
        return thread

    def end(self):
        self.channel.put(EOFError)
        self.reading.leave_to_reader()
        self.reading.ask()
        self.thread.join(PATIENCE)
        assert not self.thread.is_alive()


@pytest.fixture
def worker():
    found = Worker()
    yield found
    found.end()


def in_first_step(worker):
    """The worker has booted, and is in a step."""
    worker.reading.begin()
    worker.channel.put("first")
    assert worker.reading.next_step() == "first"


def test_while_the_worker_boots_the_reader_thread_reads(worker):
    worker.channel.put(("word", "prepare"))
    worker.channel.put(("word", "hello"))

    assert worker.words.get(timeout=PATIENCE) == "prepare"
    assert worker.words.get(timeout=PATIENCE) == "hello"
    assert worker.reader_of(("word", "hello")) is worker.thread


def test_the_first_step_is_brought_by_the_reader_thread_and_the_next_read_by_the_main_thread(worker):
    in_first_step(worker)

    for name in range(1000):  # until the reader thread has given up the right to read, in the midst of a step
        worker.channel.put(name)
        assert worker.reading.next_step() == name
        if worker.reader_of(name) is threading.current_thread():
            break
        threading.Event().wait(0.0005)

    assert worker.reader_of("first") is worker.thread
    assert worker.reader_of(name) is threading.current_thread()


def test_what_comes_during_a_step_that_lasts_is_read(worker):
    in_first_step(worker)

    worker.channel.put(("word", "abort"))

    assert worker.words.get(timeout=PATIENCE) == "abort"
    assert worker.reader_of(("word", "abort")) is worker.thread


def test_all_that_comes_during_a_step_that_lasts_is_read(worker):
    in_first_step(worker)

    for number in range(20):
        worker.channel.put(("word", number))
        assert worker.words.get(timeout=PATIENCE) == number


def test_the_step_after_one_that_lasted_comes_although_the_reader_thread_is_at_it(worker):
    in_first_step(worker)
    worker.channel.put(("word", "abort"))
    assert worker.words.get(timeout=PATIENCE) == "abort"

    for number in range(50):
        worker.channel.put(("word", number))
        worker.channel.put(f"step {number}")
        assert worker.reading.next_step() == f"step {number}"


def test_an_answer_is_read_during_the_step_that_asked(worker):
    in_first_step(worker)

    answered = worker.ask(7)
    worker.channel.put(("word", "something else"))
    worker.channel.put(("answer", 7))

    assert answered.wait(PATIENCE)
    assert worker.reader_of(("answer", 7)) is worker.thread


def test_a_question_that_outlives_its_step_is_answered_during_the_next(worker):
    in_first_step(worker)
    answered = worker.ask(1)
    worker.channel.put("second")
    assert worker.reading.next_step() == "second"

    worker.channel.put(("answer", 1))

    assert answered.wait(PATIENCE)


def test_an_idle_worker_looks_at_nothing_and_a_later_step_wakes_the_reader_thread(worker):
    in_first_step(worker)
    released = threading.Event()

    def look():
        while not worker.reading._sleeps:
            threading.Event().wait(0.001)
        released.set()
        worker.channel.put("later")

    threading.Thread(target=look, daemon=True).start()
    assert worker.reading.next_step() == "later"
    assert released.is_set()

    worker.channel.put(("word", "abort"))
    assert worker.words.get(timeout=PATIENCE) == "abort"


def test_beside_steps_on_other_threads_only_the_reader_thread_reads(worker):
    in_first_step(worker)

    worker.reading.leave_to_reader()
    for name in ("second", "third"):
        worker.channel.put(name)
        assert worker.reading.next_step() == name

    worker.steps.put(None)  # as when something broke on one of those threads
    assert worker.reading.next_step() is None
    assert worker.reader_of("third") is worker.thread


def test_questions_beside_steps_on_other_threads_leave_nothing_behind(worker):
    in_first_step(worker)
    worker.reading.leave_to_reader()

    for number in range(100):
        answered = worker.ask(number)
        worker.channel.put(("answer", number))
        assert answered.wait(PATIENCE)

    assert worker.reading._calls.qsize() <= 1


def test_what_comes_while_short_steps_follow_each_other_without_end_is_read(worker):
    in_first_step(worker)
    heard = threading.Event()

    def listen():
        assert worker.words.get(timeout=PATIENCE) == "abort"
        heard.set()

    threading.Thread(target=listen, daemon=True).start()
    worker.channel.put(("word", "abort"))
    while not heard.is_set():  # there is always a next step: this thread never comes to read
        worker.steps.put("short")
        assert worker.reading.next_step() == "short"
        heard.wait(0.0005)


def test_a_reader_thread_without_memory_goes_on(worker):
    in_first_step(worker)
    rest, failures = worker.reading._rest, []

    def fail_once():
        if not failures:
            failures.append(1)
            raise MemoryError
        rest()

    worker.reading._rest = fail_once
    worker.channel.put("second")
    assert worker.reading.next_step() == "second"
    worker.channel.put(("word", "abort"))

    assert worker.words.get(timeout=PATIENCE) == "abort"
    assert failures


@pytest.mark.parametrize("seed", range(8))
def test_whatever_comes_and_however_long_steps_take_nothing_is_left_unread(worker, seed):
    chance = random.Random(seed)
    worker.reading.begin()
    steps = 150
    kinds = [chance.choice(("short", "short", "short", "asks", "lasts")) for _ in range(steps)]
    said = 0
    for number, kind in enumerate(kinds):
        worker.channel.put((number, kind))
        if chance.random() < 0.3:
            worker.channel.put(("word", said))
            said += 1

    for number, kind in enumerate(kinds):
        assert worker.reading.next_step() == (number, kind)
        if kind == "asks":
            answered = worker.ask(number)
            worker.channel.put(("answer", number))
            assert answered.wait(PATIENCE)
        elif kind == "lasts":
            worker.channel.put(("word", said))
            said += 1
            threading.Event().wait(chance.random() * 0.01)

    assert [worker.words.get(timeout=PATIENCE) for _ in range(said)] == sorted(range(said))


def test_a_signal_that_another_thread_took_is_heard_by_who_waits_for_the_next(monkeypatch):
    def heard(*_):
        raise InterruptedError

    def come():
        waiting.wait(PATIENCE)
        signal.pthread_kill(threading.get_ident(), signal.SIGUSR2)

    class Queue:
        def get(self, timeout):
            waiting.set()
            return SimpleQueue().get(timeout=timeout)

    waiting = threading.Event()
    monkeypatch.setattr(channel_reader, "_LOOK_UP", 0.01)
    usual = signal.signal(signal.SIGUSR2, heard)
    try:
        threading.Thread(target=come, daemon=True).start()
        with pytest.raises(InterruptedError):
            wait_for_next(Queue())
    finally:
        signal.signal(signal.SIGUSR2, usual)


def test_the_main_thread_is_nudged_when_it_has_come_to_rest(worker, monkeypatch):
    nudges = SimpleQueue()
    monkeypatch.setattr(channel_reader, "_NUDGES", (0.0, 0.01))
    worker.reading._nudge = lambda: nudges.put(threading.current_thread())
    worker.reading.begin()

    def give_the_next_when_nudged():
        worker.channel.put(("word", "for the reader thread, which leaves the reading to the main thread then"))
        for _ in range(5):
            assert nudges.get(timeout=PATIENCE) is worker.thread
        worker.channel.put("next")

    giver = threading.Thread(target=give_the_next_when_nudged, daemon=True)
    giver.start()
    assert worker.reading.next_step() == "next"
    giver.join(PATIENCE)


def test_the_main_thread_looks_up_while_the_other_one_reads(monkeypatch):
    class Right:
        tries = 0

        def acquire(self, timeout):
            self.tries += 1
            return self.tries == 3

        def release(self):
            self.tries = 0

    steps = SimpleQueue()
    alone = ChannelReader(lambda: steps.put("step"), steps, {})
    monkeypatch.setattr(alone, "_right", Right())
    alone.begin()

    assert alone.next_step() == "step"
