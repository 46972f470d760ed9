"""Pools with one fault each, and the conformance suite on all of them. Run by `test_pool_suite.py`; most must fail."""

from __future__ import annotations

import threading

import pytest
from msgspec.structs import replace

from actorproc.testing.fake_pool import FakePool
from actorproc.testing.pool_suite import PoolSuite
from actorproc.workers.base import HostJoined, WorkerBooted, WorkerDied, WorkerExceeded, WorkerMessages
from actorproc.workers.protocol.frames import Ended, Run, StepAnswer


class Sound(FakePool):
    """No fault."""


class LetsLaterStepsPass(FakePool):
    """A step waits for the next one, and goes behind it; by itself it waits for a moment."""

    def send(self, worker, messages):
        waiting = self.__dict__.setdefault("_waiting", {})
        runs = [message for message in messages if isinstance(message, Run)]
        super().send(worker, [message for message in messages if not isinstance(message, Run)])
        for run in runs:
            first = waiting.pop(worker, None)
            if first is None:
                waiting[worker] = run
                threading.Timer(0.02, self._let_go, (worker,)).start()
            else:
                super().send(worker, [run, first])

    def _let_go(self, worker):
        run = self._waiting.pop(worker, None)
        if run is not None:
            super().send(worker, [run])


class DropsAnswers(FakePool):
    def send(self, worker, messages):
        super().send(worker, [message for message in messages if not isinstance(message, StepAnswer)])


class FeedsTheFirstWorkerOnly(FakePool):
    def send(self, worker, messages):
        super().send(min(self._workers, default=worker), messages)


class TellsNoDeath(FakePool):
    def open(self, sink):
        super().open(lambda event: None if isinstance(event, WorkerDied) else sink(event))


class TellsEachDeathTwice(FakePool):
    def open(self, sink):
        def told(event):
            sink(event)
            if isinstance(event, WorkerDied):
                sink(event)

        super().open(told)


class TellsDeathsAsBootFailures(FakePool):
    def _bury(self, worker, report, *, booted):
        super()._bury(worker, report, booted=False)


class ForgetsTheReason(FakePool):
    def kill(self, worker, *, grace=0.0, blamed=None, reason="", kind="", ask=True):
        super().kill(worker, grace=grace, blamed=blamed, kind=kind)


class ForgetsTheKind(FakePool):
    def kill(self, worker, *, grace=0.0, blamed=None, reason="", kind="", ask=True):
        super().kill(worker, grace=grace, blamed=blamed, reason=reason)


class KillsAllOfThem(FakePool):
    def kill(self, worker, **how):
        for each in list(self._workers):
            super().kill(each, **how)


class KillsInWordsOnly(FakePool):
    def kill(self, worker, *, grace=0.0, blamed=None, reason="", kind="", ask=True):
        kind = kind or ("stopped" if blamed is None else "timeout")
        fake = self._workers.get(worker)
        if fake is not None:
            from actorproc.model.messages.events import CrashReport

            self._emit(fake, WorkerDied(worker, CrashReport(kind=kind, message=reason), True))


class StopsByForce(FakePool):
    def stop(self, worker):
        self.kill(worker)


class TellsTheDeathBeforeTheLastAnswer(FakePool):
    def open(self, sink):
        held = {}

        def told(event):
            if isinstance(event, WorkerMessages) and any(isinstance(message, Ended) for message in event.messages):
                held.setdefault(event.worker, []).append(event)
                return
            sink(event)

        super().open(told)


class KeepsTheDeadInItsFacts(FakePool):
    def facts(self, timeout=5.0):
        known = self.__dict__.setdefault("_known", {})
        known.update(super().facts())
        return known


class StartsWorkersAfterItsEnd(FakePool):
    def launch(self, worker, *, replace=False):
        self._closed = False
        super().launch(worker, replace=replace)


class IsClosedOnceOnly(FakePool):
    def close(self, timeout):
        assert not self._closed
        super().close(timeout)


class LeavesItsWorkers(FakePool):
    def close(self, timeout):
        self._closed = True


class BootsWithoutAWord(FakePool):
    def open(self, sink):
        super().open(lambda event: None if isinstance(event, WorkerBooted) else sink(event))


class RefusesMessagesToTheDead(FakePool):
    def send(self, worker, messages):
        if worker not in self._workers:
            raise KeyError(worker)
        super().send(worker, messages)


class HasNoStacks(FakePool):
    def stack(self, token, timeout=5.0):
        return ""


class MeasuresNonsense(FakePool):
    def facts(self, timeout=5.0):
        return {worker: replace(fact, cpu=-1.0, rss=0) for worker, fact in super().facts().items()}


class SaysNothingOfItsMachine(FakePool):
    def open(self, sink):
        super().open(lambda event: None if isinstance(event, HostJoined) else sink(event))


class WatchesWithoutAWord(FakePool):
    def open(self, sink):
        super().open(lambda event: sink(HostJoined(0, "rlimit") if isinstance(event, HostJoined) else event))


class WatchesWhatHasEnded(FakePool):
    def watch(self, worker, token, limits):
        self._sink(WorkerExceeded(worker, token, "memory-limit", "it held more than its memory_hard"))


SOUND = [Sound]
BROKEN = [found for found in FakePool.__subclasses__() if found.__module__ == __name__ and found not in SOUND]


class OnAPool(PoolSuite):
    kind = Sound
    bound = 0.3

    @pytest.fixture
    def make_pool(self):
        return self.kind


class TestSound(OnAPool):
    bound = 20.0


for _kind in BROKEN:
    globals()[f"Test{_kind.__name__}"] = type(f"Test{_kind.__name__}", (OnAPool,), {"kind": _kind})
