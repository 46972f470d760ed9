"""Odd requests: ids that cannot be, many polls, outputs wider than a frame, classes registered again."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from actorproc import Procedure, Status
from actorproc.config import Config
from actorproc.errors import ProcedureFailed, UsageError

pytestmark = pytest.mark.processes


@dataclass
class Quick(Procedure):
    answer: int = 1

    def execute(self, ctx):
        return Status.done(self.answer)


@dataclass
class TwoWaits(Procedure):
    seen: list = field(default_factory=list)

    def execute(self, ctx):
        if ctx.event is not None:
            self.seen.append(ctx.event)
        if len(self.seen) == 2:
            return Status.done(self.seen)
        return Status.wait("go")


@dataclass
class Asks(Procedure):
    name: str = ""

    def execute(self, ctx):
        return Status.done(ctx.query(self.name))


@dataclass
class Picky(Procedure):
    gate: str = ""

    @classmethod
    def load(cls, data):
        loaded = super().load(data)
        if not Path(loaded.gate).exists():
            raise ValueError("not yet")
        return loaded

    def execute(self, ctx):
        return Status.done("loaded")


@dataclass
class Wide(Procedure):
    size: int

    def execute(self, ctx):
        return Status.done(b"x" * self.size)


@dataclass
class Gathers(Procedure):
    width: int
    size: int
    uses = (Wide,)

    def execute(self, ctx):
        if ctx.children:
            return Status.done([len(child.output) for child in ctx.children.values()])
        return Status.suspended(Wide(self.size) for _ in range(self.width))


@pytest.mark.parametrize(
    "name", ["", "x" * 5000, "a\0b", "é" * 300, "../../etc"], ids=["empty", "long", "nul", "wide", "path"]
)
def test_an_odd_name_is_refused_or_unknown_for_steps_and_callers_alike(open_manager, name):
    manager = open_manager(workers=1)

    with pytest.raises(ProcedureFailed, match="not valid"):
        manager.run(Asks(name))
    for ask in (manager.get, manager.info, manager.steps, manager.abort):
        with pytest.raises(UsageError):
            ask(name)
    assert manager.run(Quick()) == 1


def test_polling_with_new_handles_does_not_pile_up_futures(open_manager):
    manager = open_manager(workers=1)
    manager.submit(TwoWaits(), "waits")

    for _ in range(200):
        assert manager.get("waits").wait(0.001) is False

    assert len(manager._tree._replies._waiting) < 10


def test_outputs_that_fill_more_than_a_frame_together_are_fetched_one_by_one(open_manager):
    manager = open_manager(config=Config(max_frame=256 * 1024, max_state=64 * 1024))

    assert manager.run(Gathers(40, 20_000)) == [20_000] * 40


def test_registering_a_class_again_tries_what_it_refused_before(open_manager, until, tmp_path):
    gate = tmp_path / "gate"
    manager = open_manager(workers=1)
    handle = manager.submit(Picky(str(gate)))
    until(lambda: handle.info().phase == "parked")

    gate.touch()
    manager.register(Picky)

    assert handle.result(20) == "loaded"
