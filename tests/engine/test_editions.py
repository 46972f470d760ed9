"""Classes of scripts and notebooks: cells that are run again, and classes that no worker can be sent."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from actorproc import Procedure, Status, UsageError
from actorproc.testing import InlineManager


def cell(edition):
    """A cell of a notebook as it was when it was run for the so-manieth time."""

    @dataclass
    class Child(Procedure):
        at: int = 0

        def execute(self, ctx):
            return Status.done(edition)

    @dataclass
    class Parent(Procedure):
        at: int = 0

        def execute(self, ctx):
            if not ctx.children:
                return Status.suspended([Child()])
            return Status.done([child.output for child in ctx.children.values()])

    return Parent


def unsendable(number=0):
    held = threading.Lock()

    @dataclass
    class Unsendable(Procedure):
        def execute(self, ctx):
            with held:
                return Status.done(number)

    return Unsendable


@dataclass
class Sound(Procedure):
    def execute(self, ctx):
        return Status.done("sound")


@dataclass
class Uses(Procedure):
    uses = (unsendable(),)

    def execute(self, ctx):
        return Status.done()


@pytest.mark.processes
def test_a_child_is_of_the_edition_of_its_parent_though_nobody_registered_it(open_manager):
    manager = open_manager(workers=2)

    outputs = [manager.run(cell(edition)(), timeout=30) for edition in (1, 2, 3)]

    assert outputs == [[1], [2], [3]]


def test_a_class_that_cannot_be_sent_to_a_worker_keeps_no_other_from_being_used():
    wrong = unsendable()
    with InlineManager() as manager:
        with pytest.raises(UsageError, match="Unsendable cannot be sent"):
            manager.submit(wrong())

        assert manager.finish(manager.submit(Sound())).result() == "sound"
        with pytest.raises(UsageError, match="Unsendable cannot be sent"):
            manager.submit(wrong())


def test_a_class_that_uses_one_that_cannot_be_sent_is_told_so_when_it_is_registered():
    with InlineManager() as manager:
        with pytest.raises(UsageError, match="Unsendable cannot be sent"):
            manager.register(Uses)
        manager.register(Sound)
    with manager:
        assert manager.finish(manager.submit(Sound())).result() == "sound"
