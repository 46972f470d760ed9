"""A signal handler runs between any two instructions of the main thread, and may stop the manager there."""

from __future__ import annotations

from concurrent.futures import Future
from dataclasses import dataclass

import pytest

from actorproc import ManagerStopped, Procedure, ProcedureHandle, Status
from tests.kit.waiting import outcome_of

pytestmark = pytest.mark.processes


@dataclass
class Part(Procedure):
    def execute(self, ctx):
        return Status.done()


def test_a_handler_may_stop_the_manager_while_its_thread_is_about_to_ask(open_manager):
    manager = open_manager(workers=1)
    handlers = [manager.stop]

    class Interrupted(dict):
        def __setitem__(self, number, future):
            super().__setitem__(number, future)
            if handlers:
                handlers.pop()()

    manager._tree._replies._waiting = Interrupted()

    assert isinstance(outcome_of(lambda: manager.submit(Part())), ManagerStopped)


def test_a_handler_may_stop_the_manager_while_its_thread_is_about_to_wait(open_manager, monkeypatch):
    manager = open_manager(workers=1)
    manager.register(Part)
    replies = manager._tree._replies
    ask = replies.open

    class Interrupted(Future):
        def result(self, timeout=None):
            with self._condition:  # as the standard library does before it waits
                manager.stop()
            return super().result(timeout)

    def interrupted():
        number, future = ask()
        future.__class__ = Interrupted
        return number, future

    monkeypatch.setattr(replies, "open", interrupted)

    assert isinstance(outcome_of(lambda: manager.submit(Part())), ProcedureHandle)
