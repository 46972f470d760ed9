"""Whose crash it is, when a worker had to ask for the state of a step and ran another one meanwhile."""

from __future__ import annotations

import threading
from dataclasses import dataclass

from actorproc import Procedure, ProcedureManager, Status
from actorproc.store.memory import MemoryStore
from actorproc.testing.fake_pool import FakePool
from actorproc.testing.inline import FAST
from tests.kit.waiting import wait_until


class Forgetful(ProcedureManager):
    """Its workers, threads of the test, keep one live object each."""

    def _make_pool(self, epoch):
        del epoch
        self.pool = FakePool(warm_limit=1)
        return self.pool


arrived = threading.Semaphore(0)
begun, pause, resumed, crash, looked = (threading.Event() for _ in range(5))


@dataclass
class Works(Procedure):
    name: str
    at: int = 0

    def execute(self, ctx):
        self.at += 1
        if resumed.is_set():
            if self.name == "second" and ctx.attempt == 1:
                arrived.release()
                crash.wait(20)
            elif ctx.attempt > 1:
                looked.wait(20)  # its end forgets the crashes
            return Status.done(self.name)
        if self.name == "second":
            begun.set()
        elif self.at > 10 and begun.is_set():
            arrived.release()
            pause.wait(20)
        return Status.executing(yield_=True)


def test_the_step_that_ran_meanwhile_is_charged_and_not_the_one_that_waits_for_its_state():
    with Forgetful("forgetful", procedures=[Works], workers=1, store=MemoryStore(), config=FAST) as manager:
        first, second = manager.submit_many([Works("first"), Works("second")])
        assert arrived.acquire(timeout=20)
        manager.pause()
        pause.set()
        wait_until(lambda: [first.info().phase, second.info().phase] == ["queued", "queued"])

        resumed.set()
        manager.resume()
        assert arrived.acquire(timeout=20)
        manager.pool.crash(next(iter(manager.pool.facts())))
        wait_until(lambda: first.info().crashes + second.info().crashes == 1)
        crashes = first.info().crashes, second.info().crashes
        crash.set()
        looked.set()

        assert crashes == (0, 1)
        assert (first.result(20), second.result(20)) == ("first", "second")
