"""What an agent tells the leader that takes its host over, of workers that end or want to leave meanwhile."""

from __future__ import annotations

import threading

import pytest

from actorproc.model.crash_report import CrashReport
from actorproc.model.ids import Mode, StepToken, WorkerId
from actorproc.model.messages.outcomes import Finished
from actorproc.testing.no_processes import NoProcesses
from actorproc.workers.base import PoolSettings, WorkerBooted, WorkerDied, WorkerMessages
from actorproc.workers.hosts.handshake import HostWelcome
from actorproc.workers.hosts.host_workers import HostWorkers
from actorproc.workers.hosts.messages import Died, Launch, Said, Send
from actorproc.workers.protocol.frames import Ended, Leaving, Run

FIRST, SPARE = WorkerId(1000, 1), WorkerId(1000, 2)
TOKEN = StepToken(1, FIRST, "p", 1, 1, Mode.EXECUTE)
DEAD = CrashReport(kind="signal", message="killed by signal 9 (SIGKILL)")


class Pool(NoProcesses):
    """A pool that does what the test says."""

    def __init__(self):
        self.launched, self.killed = [], []

    def open(self, sink):
        self.sink = sink

    def launch(self, worker, *, replace=False):
        self.launched.append(worker)

    def send(self, worker, messages):
        pass

    def kill(self, worker, **how):
        self.killed.append(worker)


@pytest.fixture
def host():
    """A host with one worker, which has a step in hand; what it tells is in `told`, and its pool in `own`."""
    pool, told = Pool(), []
    workers = HostWorkers(lambda settings, epoch: pool, threading.RLock(), told.append, lambda: None)
    workers.own, workers.told = pool, told
    workers.take_over(welcome())
    workers.hear(Launch(FIRST, True))
    pool.sink(WorkerBooted(FIRST, 7))
    workers.hear(Send(FIRST, [Run(TOKEN, "T", "p", None, b"0", "", 1)]))
    return workers


def welcome(*, keep=(), adopted=(), epoch=1):
    return HostWelcome(b"s", False, 0, 1, "h1", epoch, 10.0, PoolSettings(), keep, adopted)


@pytest.mark.parametrize("lives", [True, False], ids=["the spare lives", "the spare has died as well"])
def test_a_worker_that_died_while_its_host_was_let_in_is_dead_without_its_spare(host, lives):
    """The leader would wait for the boot of the spare, which it was never told of, and the step for ever."""
    host.begin_hello()
    host.own.sink(WorkerDied(FIRST, DEAD, True, SPARE))
    host.own.sink(WorkerBooted(SPARE, 8))
    if not lives:
        host.own.sink(WorkerDied(SPARE, DEAD, True))
    host.told.clear()

    host.take_over(welcome(keep=(FIRST,), adopted=(TOKEN,), epoch=2))

    assert [each for each in host.told if isinstance(each, Died)] == [Died(FIRST, DEAD, True, None)]
    assert host.own.killed == ([SPARE] if lives else [])
    host.hear(Launch(SPARE))  # the leader starts the next one of the slot
    host.own.sink(WorkerDied(SPARE, DEAD, True)) if lives else None
    assert host.own.launched == [FIRST, SPARE]


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_worker_that_wants_to_leave_says_so_to_the_next_leader(host, is_answered):
    """It gives back what it is sent: the leader would send the same step again and again."""
    answer = Ended(TOKEN, Finished(output=b"x"))
    host.own.sink(WorkerMessages(FIRST, [Leaving("it ran long enough")]))
    if is_answered:
        host.own.sink(WorkerMessages(FIRST, [answer]))
    host.told.clear()

    host.begin_hello()
    host.take_over(welcome(keep=(FIRST,), adopted=(TOKEN,), epoch=2))

    (said,) = [each.messages for each in host.told if isinstance(each, Said)]
    assert said == [*([answer] if is_answered else []), Leaving("it ran long enough")]
