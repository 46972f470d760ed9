"""A step that suspends without children twice in a row, and changes nothing, fails; whatever else goes on."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import pytest

from actorproc import Procedure, ProcedureFailed, Saga, StateMachineProcedure, Status, step
from actorproc.testing import InlineManager


@dataclass
class Part(Procedure):
    number: int = 0

    def execute(self, ctx):
        return Status.done(self.number)


@dataclass
class FanOut(Procedure):
    parts: list[int] = field(default_factory=list)

    def execute(self, ctx):
        if not ctx.children:
            return Status.suspended([Part(number) for number in self.parts])
        return Status.done([child.output for child in ctx.children.values()])


@dataclass
class AnyOne(FanOut):
    def execute(self, ctx):
        if not ctx.children:
            return Status.suspended([], wait="any")
        raise AssertionError


class Texts(FanOut):
    def dump(self):
        return ",".join(map(str, self.parts))

    @classmethod
    def load(cls, data):
        return cls([int(part) for part in data.split(",") if part])


@dataclass
class Late(FanOut):
    """Has parts, and has none the second time."""

    def execute(self, ctx):
        if ctx.step < 4:
            return Status.suspended([Part(1)] if ctx.step == 1 else [])
        raise AssertionError


@dataclass
class ByStep(FanOut):
    def execute(self, ctx):
        if ctx.step == 1:
            return Status.suspended([Part(number) for number in self.parts])
        return Status.done([child.output for child in ctx.children.values()])


@dataclass
class Counts(FanOut):
    seen: int = 0

    def execute(self, ctx):
        self.seen += 1
        return Status.suspended([]) if self.seen < 5 else Status.done(self.seen)


@dataclass
class Sleeps(FanOut):
    def execute(self, ctx):
        return [Status.suspended([]), Status.sleep(1), Status.suspended([]), Status.executing(), Status.done("slept")][
            ctx.step - 1
        ]


@dataclass
class Twice(FanOut):
    """Two rounds, the first of them without parts."""

    def execute(self, ctx):
        if ctx.step == 3:
            return Status.done([child.output for child in ctx.children.values()])
        return Status.suspended([Part(2)] if ctx.step == 2 else [])


@dataclass
class Each(FanOut):
    def execute(self, ctx):
        if ctx.step == 1:
            return Status.suspended([Part(1), Part(2), Part(3)], wait="each")
        done = [child for child in ctx.children.values() if child.output]
        return Status.done(len(done)) if len(done) == 3 else Status.suspended([], wait="each")


class Rounds(Saga):
    @step
    def one(self, ctx):
        return Status.suspended([])

    @step
    def two(self, ctx):
        return Status.suspended([])

    @step
    def three(self, ctx):
        return "through"


class Phase(Enum):
    ONE = 1


@dataclass
class Machine(StateMachineProcedure):
    initial_state = Phase.ONE

    def execute_from_state(self, ctx, state):
        return Status.suspended([]) if self.cycles < 3 else Status.done(self.cycles)


@pytest.mark.parametrize("made", [FanOut(), AnyOne(), Texts(), Late()], ids=lambda made: type(made).__name__)
def test_an_empty_fan_out_that_would_be_repeated_for_ever_fails_and_says_how_to_write_it(made):
    with InlineManager() as manager:
        handle = manager.finish(manager.submit(made))

        with pytest.raises(ProcedureFailed, match=r"no children twice in a row.*test ctx\.step") as failed:
            handle.result()
        assert failed.value.state == "FAILED"
        assert handle.info().step <= 4


@pytest.mark.parametrize(
    ("made", "output"),
    [
        (FanOut([1, 2]), [1, 2]),
        (ByStep(), []),
        (Counts(), 5),
        (Sleeps(), "slept"),
        (Twice(), [2]),
        (Each(), 3),
        (Rounds(), "through"),
        (Machine(), 3),
    ],
    ids=lambda made: type(made).__name__,
)
def test_what_goes_on_goes_on(made, output):
    with InlineManager() as manager:
        assert manager.finish(manager.submit(made)).result() == output
