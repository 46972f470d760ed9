"""Threads in a worker: steps beside each other, and threads of a step, preempted where it hurts."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

import pytest

from actorproc import Limits, NotAllowed, Procedure, Status
from actorproc.testing import InlineManager, fake_pool
from actorproc.workers.child.runtime.worker_runtime import WorkerRuntime
from actorproc.workers.protocol.frames import NeedState


@dataclass
class Beside(Procedure):
    limits = Limits(threads=8)
    attempts: list[int] = field(default_factory=list)

    def execute(self, ctx):
        self.attempts.append(ctx.attempt)
        ctx.remember("one", lambda: 1)
        began.set()
        ctx.remember("other", lambda: 2)
        return Status.done(self.attempts) if len(self.attempts) == 3 else Status.executing()


began = threading.Event()


@pytest.mark.parametrize("place", ["sent", "finished"])
def test_a_thread_that_asked_for_a_state_does_not_touch_the_step_that_comes_again_with_it(monkeypatch, place):
    here = threading.local()
    send, finished = fake_pool._FakeWorker.send, WorkerRuntime.finished
    asked = []

    def preempted():
        here.asks = False
        began.wait(0.2)  # the step may begin on another thread meanwhile; in order, this one is done with it

    def slow_send(worker, messages):
        began.clear()
        send(worker, messages)
        if any(isinstance(message, NeedState) for message in messages):
            asked.append(messages)
            here.asks = True
            if place == "sent":
                preempted()

    def slow_finished(worker, run):
        if getattr(here, "asks", False):
            preempted()
        finished(worker, run)

    monkeypatch.setattr(fake_pool._FakeWorker, "send", slow_send)
    monkeypatch.setattr(WorkerRuntime, "finished", slow_finished)
    with InlineManager([Beside]) as manager:
        assert manager.run(Beside(), timeout=30) == [1, 1, 1]

    assert asked


@dataclass
class LeavesAThread(Procedure):
    def execute(self, ctx):
        def later():
            answered.wait(30)
            try:
                ctx.remember("key", lambda: 1)
            except NotAllowed as error:
                refused.append(str(error))
            finally:
                is_through.set()

        threading.Thread(target=later, daemon=True).start()
        return Status.done("done")


answered, is_through, refused = threading.Event(), threading.Event(), []


def test_a_thread_that_asks_when_its_step_was_answered_a_moment_ago_does_not_wait_for_ever(monkeypatch, until):
    finished, workers = WorkerRuntime.finished, []

    def slow_finished(worker, run):
        workers.append(worker)
        answered.set()
        until(lambda: worker.asked)
        finished(worker, run)

    monkeypatch.setattr(WorkerRuntime, "finished", slow_finished)
    with InlineManager([LeavesAThread]) as manager:
        assert manager.run(LeavesAThread(), timeout=30) == "done"
        assert is_through.wait(30)

    assert "is over" in refused[0]
    assert not workers[0].asked
