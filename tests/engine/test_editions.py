"""Classes of scripts and notebooks: cells that are run again, and classes that no worker can be sent."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import pytest

from actorproc import Config, Procedure, ProcedureManager, Status, UsageError
from actorproc.store.memory import MemoryStore
from actorproc.testing import InlineManager
from actorproc.testing.fake_pool import FakePool
from actorproc.testing.inline import FAST
from actorproc.workers.protocol.frames import Define, FrameError
from tests.kit.waiting import wait_until


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


def large():
    data = bytes(100_000)

    @dataclass
    class Large(Procedure):
        def execute(self, ctx):
            return Status.done(len(data))

    return Large


def test_a_class_that_brings_too_much_along_is_refused_and_the_engine_goes_on():
    config = Config(max_frame=65536, max_state=1024, spares=0)
    with InlineManager(config=config) as manager:
        with pytest.raises(UsageError, match=r"Large takes 10\d+ bytes .*max_frame=65536"):
            manager.submit(large()())

        assert manager.finish(manager.submit(Sound())).result() == "sound"


class NarrowPool(FakePool):
    """A class is too long for its channel."""

    def send(self, worker, messages):
        for message in messages:
            if isinstance(message, Define) and message.definition.meta.type_name.endswith(".Large"):
                raise FrameError("too long")
        super().send(worker, messages)


class Narrow(ProcedureManager):
    def _make_pool(self, epoch):
        del epoch
        return NarrowPool()


def test_a_class_that_is_too_long_all_the_same_parks_its_procedures_and_nobody_else():
    with Narrow("narrow", workers=1, store=MemoryStore(), config=FAST) as manager:
        handle = manager.submit(large()())
        wait_until(lambda: handle.info().phase == "parked")

        assert "cannot be sent to a worker: too long" in handle.info().reason
        assert manager.run(Sound(), timeout=20) == "sound"
