"""The manager's inbox: a thread that brings a message may have it handled on itself, one at a time and in order."""

from __future__ import annotations

import signal
import threading
import time
from types import SimpleNamespace

import pytest

from actorproc.engine.runtime.inbox import CombiningInbox


class Actor:
    """Takes messages from its inbox on a thread of its own, and notes on which thread it handled which."""

    def __init__(self):
        self.inbox = CombiningInbox()
        self.inbox.handle = self.handle
        self.handled = []
        self.inside = 0
        self.overlapped = False
        self.let_go = threading.Event()
        self.let_go.set()
        self.is_at_it = threading.Event()
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        while (envelope := self.inbox.get()) is not None:
            self.handle(envelope.message)

    def handle(self, message):
        self.inside += 1
        self.overlapped |= self.inside != 1
        self.is_at_it.set()
        assert self.let_go.wait(60)
        self.handled.append((message, threading.current_thread()))
        self.inside -= 1

    def tell(self, message):
        self.inbox.put(SimpleNamespace(message=message))

    def end(self):
        self.inbox.put(None)
        self.thread.join(60)
        assert not self.thread.is_alive()


@pytest.fixture
def actor():
    found = Actor()
    yield found
    found.let_go.set()
    found.end()


def test_a_resting_actor_handles_a_message_on_the_thread_that_brings_it(actor):
    assert actor.inbox.deliver("here")

    assert actor.handled == [("here", threading.current_thread())]


def test_an_actor_at_work_is_told_to_come_back(actor):
    actor.let_go.clear()
    actor.tell("first")
    assert actor.is_at_it.wait(60)

    assert not actor.inbox.deliver("second")

    actor.let_go.set()


def test_what_waits_comes_first():
    inbox = CombiningInbox()
    handled = []
    inbox.handle = handled.append
    inbox.put("first")

    assert not inbox.deliver("second")
    assert handled == []
    assert inbox.get() == "first"
    assert inbox.empty()


def test_nobody_else_handles_anything_between_two_messages_of_the_actors_own_thread():
    inbox = CombiningInbox()
    inbox.handle = lambda _: None
    inbox.put("first")
    inbox.get()

    assert not inbox.deliver("the first is being handled")


def test_an_actor_that_has_ended_is_lent_nothing():
    inbox = CombiningInbox()

    assert not inbox.deliver("too late")


def test_a_message_brought_from_inside_of_another_waits(actor):
    brought = []
    handle = actor.handle

    def nested(message):
        handle(message)
        if message == "outer":
            brought.append(actor.inbox.deliver("inner"))

    actor.inbox.handle = nested

    assert actor.inbox.deliver("outer")
    assert brought == [False]


def test_a_handler_that_raises_keeps_nobody_out():
    inbox = CombiningInbox()

    def fail(_):
        raise ZeroDivisionError

    inbox.handle = fail
    with pytest.raises(ZeroDivisionError):
        inbox.deliver("bad")

    handled = []
    inbox.handle = handled.append
    assert inbox.deliver("good")
    assert handled == ["good"]


def test_a_signal_handler_that_raises_in_the_middle_of_a_message_leaves_none_behind():
    class Interrupted(Exception):
        pass

    def interrupt(*_):
        signal.setitimer(signal.ITIMER_REAL, 0)
        raise Interrupted

    torn = told = 0
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(300):
            inbox = CombiningInbox()
            ear = inbox._ear
            ear._waits = True  # as the actor's thread sets it before it looks what is due
            try:
                # Again and again: beside other threads CPython 3.11 may overlook a signal until the next one, and then
                # this would put messages until the memory is full.
                signal.setitimer(signal.ITIMER_REAL, 0.0005, 0.05)
                while True:
                    inbox.put("message")
            except Interrupted:
                told += 1
            torn += len(inbox._messages) > ear._arrivals.qsize()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert told == 300
    assert torn == 0


def test_an_arrival_without_a_message_is_passed_over():
    inbox = CombiningInbox()
    inbox._ear._arrivals.put(None)
    teller = threading.Timer(0.05, inbox.put, ["message"])
    teller.start()

    assert inbox.get() == "message"
    teller.join()


def test_from_many_threads_each_message_is_handled_once_alone_and_in_the_order_of_its_thread():
    actor = Actor()
    senders, messages = 6, 400
    lent = [0] * senders

    def send(number):
        for message in range(messages):
            if actor.inbox.deliver((number, message)):
                lent[number] += 1
            else:
                actor.tell((number, message))
            if message % 7 == number:
                time.sleep(0)  # let another thread come in between

    threads = [threading.Thread(target=send, args=(number,)) for number in range(senders)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    actor.tell("last")
    actor.end()

    handled = [message for message, _ in actor.handled]
    assert not actor.overlapped
    assert handled[-1] == "last"
    assert len(handled) == senders * messages + 1
    for number in range(senders):
        assert [message for message in handled[:-1] if message[0] == number] == [
            (number, message) for message in range(messages)
        ]
    assert sum(thread is not actor.thread for _, thread in actor.handled) == sum(lent) > 0
