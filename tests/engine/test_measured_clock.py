"""The clock of a store in a database: measured by each commit, worn off or jumped, and never back."""

from __future__ import annotations

import itertools
import logging
import time
from dataclasses import dataclass

import pytest

from actorproc import Procedure, ProcedureManager, Status
from actorproc.store.memory import MemoryStore
from actorproc.support.clock import MeasuredClock, SystemClock, clock_jumps

START = 1_000_000.0


class Two:
    """A monotonic clock moved by hand, the other machine's clock beside it, and the clock under test."""

    def __init__(self, ahead: float = 0.0) -> None:
        self.now = 500.0
        self.other = START
        self.clock = MeasuredClock(lambda: self.now)
        self.clock.begin(self.other, self.now, self.now)
        self.other += ahead

    def pass_(self, seconds: float, *, rate: float = 1.0) -> None:
        self.now += seconds
        self.other += seconds * rate

    def measure(self, *, there: float = 0.0, back: float = 0.0) -> None:
        """A question that takes so long to the other machine, and its answer so long back."""
        sent = self.now
        self.pass_(there)
        at = self.other
        self.pass_(back)
        self.clock.measured(at, sent, self.now)

    @property
    def ahead(self) -> float:
        """Seconds by which the clock under test is ahead of the other one."""
        return self.clock.wall() - self.other


def test_it_begins_with_the_time_of_the_other_machine_whatever_it_said_before():
    two = Two()
    two.pass_(10.0)
    assert two.clock.wall() == START + 10.0

    two.clock.begin(START - 3600.0, two.now, two.now)  # a new owner

    assert two.clock.wall() == START - 3600.0
    assert two.clock.jumps == 0


@pytest.mark.parametrize("ahead", [1.0, 0.3, -0.3, -1.0])
def test_a_difference_of_a_second_or_less_is_worn_off_by_a_millisecond_in_each_second(ahead: float, caplog):
    two = Two(ahead)
    two.measure()
    assert two.ahead == pytest.approx(-ahead)

    seen = [two.clock.wall()]
    for _ in range(100):
        two.pass_(1.0)
        two.measure()
        seen.append(two.clock.wall())

    steps = [later - earlier for earlier, later in itertools.pairwise(seen)]
    assert steps == [pytest.approx(1.001 if ahead > 0 else 0.999)] * 100
    for _ in range(1000):
        two.pass_(1.0)
    assert two.ahead == pytest.approx(0.0, abs=1e-6)  # also without a further measurement
    assert (two.clock.jumps, caplog.records) == (0, [])


def test_a_jump_forward_is_taken_at_once_and_told_once(caplog):
    two = Two(3600.0)

    two.measure()
    assert two.ahead == pytest.approx(0.0)
    two.pass_(1.0)
    two.measure()

    assert two.clock.jumps == 1
    told = [(record.levelno, record.getMessage()) for record in caplog.records]
    assert told == [(logging.WARNING, "the clock of the store went forward by 3600.0 s; what is due by it goes on now")]


def test_after_a_jump_back_it_stands_still_until_the_other_clock_is_there(caplog):
    two = Two()
    two.pass_(5.0)
    before = two.clock.wall()
    two.other -= 30.0

    seen = []
    for _ in range(29):
        two.measure()
        two.pass_(1.0)
        seen.append(two.clock.wall())
    assert seen == [before] * 29
    two.pass_(1.0)
    two.pass_(7.5)

    assert (two.clock.wall(), two.ahead) == (pytest.approx(before + 7.5), pytest.approx(0.0))
    assert two.clock.jumps == 1
    assert ["went back by 30.0 s" in record.getMessage() for record in caplog.records] == [True]


def test_a_slow_answer_says_nothing_that_it_does_not_say():
    two = Two()
    for there, back in ((0.0, 5.0), (5.0, 0.0), (2.0, 3.0), (0.1, 40.0)):
        two.measure(there=there, back=back)
        two.pass_(1.0)

        assert two.ahead == pytest.approx(0.0)
    assert two.clock.jumps == 0
    two.other += 50.0
    two.measure(there=0.0, back=4.0)  # a jump is seen also through a slow answer, by what it says for certain

    assert two.clock.jumps == 1
    assert -4.0 <= two.ahead <= 0.0


def test_it_never_goes_back_whatever_the_other_clock_does():
    import random

    chance = random.Random(45)
    two = Two()
    last = two.clock.wall()
    for _ in range(5000):
        two.pass_(chance.expovariate(1.0), rate=chance.choice((1.0, 0.9995, 1.0005)))
        if chance.random() < 0.05:
            two.other += chance.gauss(0.0, 20.0)
        if chance.random() < 0.7:
            two.measure(there=chance.expovariate(100.0), back=chance.expovariate(100.0))
        assert two.clock.wall() >= last
        last = two.clock.wall()
    assert two.clock.jumps > 10


def test_until_the_first_measurement_it_is_the_clock_of_the_system():
    assert MeasuredClock().wall() == pytest.approx(time.time(), abs=5.0)
    assert clock_jumps(SystemClock()) == 0


# ---------------------------------------------------------------- in the engine
class Dated(MemoryStore):
    """A store with a clock of its own, which each commit measures."""

    def __init__(self) -> None:
        super().__init__()
        self.clock = MeasuredClock()
        self.ahead = -7 * 86400.0

    def own(self) -> int:
        self.clock.begin(time.time() + self.ahead, time.monotonic(), time.monotonic())
        return super().own()

    def commit(self, writes, epoch, batch=0):
        super().commit(writes, epoch, batch)
        self.clock.measured(time.time() + self.ahead, time.monotonic(), time.monotonic())


@dataclass
class Sleeper(Procedure):
    def execute(self, ctx):
        return Status.sleep(3600.0) if ctx.step == 1 else Status.done()


@dataclass
class Quick(Procedure):
    def execute(self, ctx):
        return Status.done()


@pytest.mark.processes
def test_the_engine_takes_its_time_from_the_store_and_wakes_what_a_jump_makes_due(open_manager, until):
    store = Dated()
    manager: ProcedureManager = open_manager(store=store, procedures=[Sleeper, Quick])
    handle = manager.submit(Sleeper(), "sleeper")
    until(lambda: handle.info().state == "WAITING_TIMEOUT")
    info = handle.info()
    assert info.created_at == pytest.approx(time.time() - 7 * 86400.0, abs=60.0)
    assert info.due_at - info.created_at == pytest.approx(3600.0, abs=60.0)
    assert manager.metrics().clock_jumps == 0

    store.ahead += 7200.0
    manager.run(Quick())

    handle.result(60)
    assert manager.metrics().clock_jumps == 1
    assert "actorproc_clock_jumps_total 1" in manager.metrics().prometheus()
