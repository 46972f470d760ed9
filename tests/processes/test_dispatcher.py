"""Actors that share one thread."""

from __future__ import annotations

import sys
import threading
from typing import Any

import pykka
import pytest

from actorproc.workers.child.runtime.dispatcher import DispatchedActor, Dispatcher


class Recorder(DispatchedActor):
    def __init__(self, dispatcher: Dispatcher, log: list[Any]) -> None:
        super().__init__(dispatcher)
        self.log = log

    def on_start(self) -> None:
        self.log.append("start")

    def on_stop(self) -> None:
        self.log.append("stop")

    def on_failure(self, _type: Any, error: Any, _traceback: Any) -> None:
        self.log.append(f"failed: {type(error).__name__}")

    def on_receive(self, message: Any) -> Any:
        if message == "exit":
            sys.exit(1)
        if message == "break":
            raise ValueError(message)
        self.log.append(message)
        return threading.current_thread().name


class Stopper(BaseException):
    pass


class Thrower(DispatchedActor):
    def on_receive(self, _message: Any) -> None:
        raise Stopper


def test_messages_to_several_actors_are_handled_in_the_order_they_were_sent() -> None:
    dispatcher, log = Dispatcher(), []
    first, second = (Recorder.create(dispatcher, log) for _ in range(2))
    for number in range(4):
        (first if number in (0, 1) else second).actor_ref.tell(number)

    dispatcher.run()

    assert log == ["start", "start", 0, 1, 2, 3]


def test_an_ask_is_answered_on_the_dispatchers_thread() -> None:
    dispatcher = Dispatcher()
    actor = Recorder.create(dispatcher, [])
    future = actor.actor_ref.ask("hello", block=False)

    dispatcher.run()

    assert future.get(timeout=1) == threading.current_thread().name


def test_a_system_exit_stops_its_actor_and_no_other() -> None:
    dispatcher, log = Dispatcher(), []
    guilty, innocent = (Recorder.create(dispatcher, log) for _ in range(2))
    guilty.actor_ref.tell("exit")
    innocent.actor_ref.tell("hello")

    dispatcher.run()

    assert log == ["start", "start", "failed: SystemExit", "hello"]
    assert not guilty.actor_ref.is_alive()
    assert innocent.actor_ref.is_alive()


def test_a_failing_ask_goes_to_the_asker_and_the_actor_lives() -> None:
    dispatcher = Dispatcher()
    actor = Recorder.create(dispatcher, [])
    future = actor.actor_ref.ask("break", block=False)

    dispatcher.run()

    with pytest.raises(ValueError, match="break"):
        future.get(timeout=1)
    assert actor.actor_ref.is_alive()


def test_messages_behind_a_failure_are_refused() -> None:
    dispatcher, log = Dispatcher(), []
    actor = Recorder.create(dispatcher, log)
    actor.actor_ref.tell("break")
    waiting = actor.actor_ref.ask("late", block=False)

    dispatcher.run()

    with pytest.raises(pykka.ActorDeadError):
        waiting.get(timeout=5)
    assert log == ["start", "failed: ValueError"]


def test_messages_behind_a_stop_are_refused() -> None:
    dispatcher, log = Dispatcher(), []
    actor = Recorder.create(dispatcher, log)
    actor.stop()
    future = actor.actor_ref.ask("too late", block=False)

    dispatcher.run()

    with pytest.raises(pykka.ActorDeadError):
        future.get(timeout=1)
    assert log == ["start", "stop"]


def test_an_exception_of_the_dispatchers_own_ends_its_run() -> None:
    dispatcher = Dispatcher(passing=(Stopper,))
    actor = Thrower.create(dispatcher)
    actor.actor_ref.tell("anything")

    with pytest.raises(Stopper):
        dispatcher.run()


def test_stopping_all_actors_of_the_process_does_not_wait_for_dispatched_ones() -> None:
    actor = Recorder.create(Dispatcher(), [])

    pykka.ActorRegistry.stop_all(timeout=1)

    assert actor.actor_ref.is_alive()
