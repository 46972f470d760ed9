"""Steps that need no record of their own (`persist=False`) and so follow one another at once in a worker."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from actorproc import Limits, Procedure, RetryPolicy, Status
from actorproc.testing import InlineManager

AT_ONCE = RetryPolicy(base=0.0)
seen: list[tuple[object, ...]] = []
running: list[InlineManager] = []


@pytest.fixture(autouse=True)
def _nothing_seen():
    seen.clear()
    running.clear()


@dataclass
class Remembers(Procedure):
    retry = AT_ONCE
    at: int = 0

    def execute(self, ctx):
        seen.append((ctx.step, ctx.remember("old", lambda: f"step {ctx.step}")))
        self.at += 1
        if self.at == 3 and ctx.attempt == 1:
            raise ConnectionError("once more, from the last record")
        return Status.executing(persist=False) if self.at < 3 else Status.done(self.at)


@dataclass
class Late(Procedure):
    asked: bool = False
    late: int = 0

    def execute(self, ctx):
        if not self.asked:
            self.asked = True
            return Status.wait("never", timeout=1)
        return Status.done(self.late)

    def on_timeout(self, ctx):
        self.late += 1
        return Status.executing(persist=False)


@dataclass
class Risky(Procedure):
    at: int = 0

    def execute(self, ctx):
        seen.append((self.at, *[found.path for found in running[0].poisons()]))
        self.at += 1
        return Status.executing(persist=False) if self.at < 3 else Status.done()

    def poison_keys(self):
        return ["disk"] if self.at == 2 else []


@dataclass
class Timed(Procedure):
    limits = Limits(wall_time=60)
    at: int = 0

    def execute(self, ctx):
        self.at += 1
        return Status.executing(persist=False) if self.at < 4 else Status.done()


def test_each_of_them_remembers_its_own_also_when_all_are_repeated():
    with InlineManager([Remembers]) as manager:
        manager.finish(manager.submit(Remembers()))

    assert seen == [(step, f"step {step}") for step in (1, 2, 3)] * 2


def test_after_a_wait_that_was_too_long_comes_a_step_and_not_on_timeout_again():
    with InlineManager([Late]) as manager:
        assert manager.finish(manager.submit(Late())).result() == 1


def test_a_key_is_poisoned_before_the_step_that_it_is_named_for():
    with InlineManager([Risky]) as manager:
        running.append(manager)
        manager.finish(manager.submit(Risky()))
        assert manager.poisons() == []

    assert seen == [(0,), (1,), (2, "disk")]


def test_a_limit_of_time_is_for_each_of_them():
    with InlineManager([Timed]) as manager:
        handle = manager.finish(manager.submit(Timed()))

        assert [row.number for row in manager.steps(handle.id)] == [1, 2, 3, 4, 5]
