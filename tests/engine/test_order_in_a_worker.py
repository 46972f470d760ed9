"""The manager knows in which order a worker has its steps, also when it asked for the state of one of them."""

from __future__ import annotations

import threading
from collections import defaultdict
from dataclasses import dataclass

import pytest

from actorproc import Procedure, ProcedureManager, Status
from actorproc.core.queues import worker_table
from actorproc.engine.workers.worker_messages import WorkerMessageHandler
from actorproc.testing.fake_pool import FakePool
from actorproc.testing.inline import FAST
from tests.kit.stores import HeldCommits
from tests.kit.waiting import wait_until


class Forgetful(ProcedureManager):
    """Its workers, threads of the test, keep no live object."""

    def _make_pool(self, epoch):
        del epoch
        manager = self

        class Pool(FakePool):
            def _prepare(self, worker_runtime):
                manager.worker_runtime = worker_runtime

        return Pool(warm_limit=0)

    def waits_in_the_worker(self, procedure):
        return any(token.procedure == procedure for token in list(self.worker_runtime._waiting))


begun: defaultdict[str, list[int]] = defaultdict(list)
may_end: defaultdict[str, threading.Event] = defaultdict(threading.Event)
saw_abort: dict[str, bool] = {}


@dataclass
class Works(Procedure):
    name: str = ""
    steps: int = 1
    at: int = 0

    def execute(self, ctx):
        self.at += 1
        if self.at < self.steps:
            return Status.executing()
        if self.name:
            begun[self.name].append(ctx.attempt)
            may_end[self.name].wait(20)
            saw_abort[self.name] = ctx.aborting
        return Status.done(self.name)

    def abort(self, ctx):
        return False  # a class that may refuse is not taken back from its worker when an abort is asked for


@pytest.fixture
def asked_for_state(monkeypatch):
    """Set when the manager has heard that a worker lacks a state."""
    heard, plain = threading.Event(), WorkerMessageHandler._need_state

    def need_state(worker_messages, message):
        plain(worker_messages, message)
        heard.set()

    monkeypatch.setattr(WorkerMessageHandler, "_need_state", need_state)
    begun.clear()
    may_end.clear()
    yield heard
    for event in may_end.values():
        event.set()


@pytest.fixture
def manager(tmp_path, asked_for_state, monkeypatch):
    monkeypatch.setattr(worker_table, "PREFETCH_WINDOW", 3600.0)  # however long a step took, it counts as short
    with Forgetful(tmp_path / "state", procedures=[Works], workers=1, config=FAST) as manager:
        manager.commits = HeldCommits(manager._running().store)
        for handle in manager.submit_many([Works() for _ in range(60)]):  # before, each counts as the whole window
            handle.result(20)
        manager.submit_many([("second", Works("second", steps=2)), ("first", Works("first"))])
        wait_until(lambda: begun["first"] and manager.waits_in_the_worker("second"))
        asked_for_state.clear()
        yield manager
        manager.commits.free.set()
        for event in may_end.values():
            event.set()


@pytest.mark.parametrize("name", ["second", "third"])
def test_who_must_not_go_on_is_stopped_and_nobody_else(manager, asked_for_state, name):
    store = manager.commits
    store.free.clear()
    submit = threading.Thread(target=lambda: manager.submit(Works("third"), id="third"))
    submit.start()
    assert store.waiting.wait(20)
    may_end["first"].set()
    assert asked_for_state.wait(20)
    store.free.set()
    submit.join(20)
    wait_until(lambda: begun["second"] or begun["third"])

    assert manager.abort(name, force=True)

    wait_until(lambda: manager.info(name).phase == "done")
    other = {"second": "third", "third": "second"}[name]
    wait_until(lambda: begun[other])
    assert len(begun[other]) == 1  # and not interrupted
    may_end[other].set()
    assert manager.get(other).result(20) == other


def test_an_abort_that_was_asked_for_is_known_to_a_step_that_is_sent_again(manager, asked_for_state):
    assert manager.abort("second")

    may_end["first"].set()
    assert asked_for_state.wait(20)
    wait_until(lambda: begun["second"])
    may_end["second"].set()
    wait_until(lambda: manager.info("second").phase == "done")

    assert saw_abort["second"] is True
