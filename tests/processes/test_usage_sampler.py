"""The sampler of a pool: which steps it measures, from when to when, and what it says of them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from actorproc.model.ids import StepToken, WorkerId
from actorproc.model.policies import StepLimits
from actorproc.workers.os.cgroups import Cgroups
from actorproc.workers.pool import usage_sampler
from actorproc.workers.pool.usage_sampler import UsageSampler
from actorproc.workers.pool.worker_link import WorkerLink

WORKER = WorkerId(0, 1)
TOKEN, NEXT = StepToken(1, WORKER, "p", 3, 1), StepToken(1, WORKER, "q", 1, 1)
MIB = 1 << 20


class Timers:
    """Timers that go off when the test says so."""

    def __init__(self) -> None:
        self.calls = []

    def after(self, seconds, call):
        self.calls.append(call)

    def pass_by(self):
        due, self.calls = self.calls, []
        for call in due:
            call()


class Group:
    """A control group that notes the limits it is given."""

    def __init__(self) -> None:
        self.limits = []

    def limit(self, pid, size):
        self.limits.append(size)

    def processes(self, pid):
        return None


@pytest.fixture
def played(monkeypatch):
    told, timers, group = [], Timers(), Group()
    link = WorkerLink(WORKER, 1000)
    link.process = SimpleNamespace(pid=7)
    link.given = {TOKEN: ("p", "t", "ship"), NEXT: ("q", "t", None)}
    world = SimpleNamespace(told=told, timers=timers, group=group, link=link, used=(0.0, MIB), children=0)
    monkeypatch.setattr(usage_sampler, "family_usage", lambda pid: world.used)
    monkeypatch.setattr(usage_sampler, "started_by", lambda pid: world.children)
    world.sampler = UsageSampler(timers, Cgroups(memory=group), told.append)
    return world


def test_cpu_time_counts_from_the_begin_of_the_step(played):
    played.used = (100.0, MIB)
    played.sampler.begin(played.link, TOKEN, StepLimits(cpu_time=2.0))
    played.used = (101.9, MIB)
    played.timers.pass_by()
    assert played.told == []

    played.used = (102.5, MIB)
    played.timers.pass_by()

    [told] = played.told
    assert (told.worker, told.token, told.kind) == (WORKER, TOKEN, "cpu-limit")
    assert told.why == "step 3 (ship) used 2.5 s of CPU time, more than its cpu_time of 2 s"


@pytest.mark.parametrize(
    ("limits", "used", "children", "kind", "words"),
    [
        (StepLimits(memory_hard=2 * MIB), (0.0, 3 * MIB), 0, "memory-limit", "held 3 MB of memory, more than"),
        (StepLimits(processes=2), (0.0, MIB), 3, "process-limit", "had started 3 processes that lived, more than"),
    ],
)
def test_an_excess_is_told_once_and_the_worker_lives(played, limits, used, children, kind, words):
    played.sampler.begin(played.link, TOKEN, limits)
    played.timers.pass_by()
    assert played.told == []
    played.used, played.children = used, children

    played.timers.pass_by()
    played.timers.pass_by()

    [told] = played.told
    assert told.kind == kind
    assert "killed in step 3 (ship) because it" in told.why
    assert words in told.why


def test_the_limit_of_the_kernel_goes_with_the_step_and_is_not_written_twice(played):
    for _ in range(2):
        played.sampler.begin(played.link, TOKEN, StepLimits(memory_hard=5 * MIB))
    assert played.group.limits == [5 * MIB]

    played.sampler.end(played.link)
    played.used = (9.0, 9 * MIB)
    played.timers.pass_by()

    assert played.group.limits == [5 * MIB, None]
    assert (played.told, played.timers.calls) == ([], []), "nothing is watched any more"


def test_a_step_that_follows_is_measured_by_itself(played):
    played.sampler.begin(played.link, TOKEN, StepLimits(cpu_time=1.0))
    played.used = (0.9, MIB)
    played.sampler.end(played.link)
    played.sampler.begin(played.link, NEXT, StepLimits(cpu_time=1.0))
    played.used = (1.5, MIB)
    played.timers.pass_by()

    assert played.told == []
    assert len(played.timers.calls) == 1, "one look for all workers"


@pytest.mark.parametrize("fate", ["answered", "dead", "no process", "unknown"])
def test_what_does_not_run_here_is_not_watched(played, fate):
    if fate == "answered":
        del played.link.given[TOKEN]
    elif fate == "dead":
        played.link.dead = True
    elif fate == "no process":
        played.link.process = None

    played.sampler.begin(None if fate == "unknown" else played.link, TOKEN, StepLimits(memory_hard=5))

    assert (played.told, played.group.limits, played.timers.calls) == ([], [], [])


def test_a_worker_that_dies_is_watched_no_more(played):
    played.sampler.begin(played.link, TOKEN, StepLimits(cpu_time=1.0))
    played.link.dead = True
    played.used = (9.0, MIB)

    played.timers.pass_by()

    assert (played.told, played.timers.calls) == ([], [])
