"""What an `InlineManager` has of the real one: classes, environments and deaths."""

from __future__ import annotations

import pytest

from actorproc import Procedure, Saga, Status, WorkerBootFailed, step
from actorproc.testing import InlineManager, crash_point, crashing_at


class Asking(Procedure):
    def execute(self, ctx):
        return Status.done(ctx.env)


def test_each_worker_has_an_environment_of_its_own():
    class Dying(Procedure):
        def execute(self, ctx):
            crash_point("once")
            return Status.done(ctx.env)

    made = []

    def environment():
        made.append(f"client {len(made) + 1}")
        return made[-1]

    with InlineManager([Asking, Dying], environment=environment) as manager:
        assert manager.run(Asking()) == "client 1"
        assert manager.run(Asking()) == "client 1"
        with crashing_at("once"):
            assert manager.finish(manager.submit(Dying())).result() == "client 2"


def test_an_environment_that_cannot_be_made_fails_the_start():
    def environment():
        raise OSError("no route to the bank")

    with pytest.raises(WorkerBootFailed, match="the environment factory failed: OSError: no route to the bank"):
        InlineManager([Asking], environment=environment).start()


def test_children_nobody_registered_are_of_the_classes_of_the_test():
    seen = []

    class Grandchild(Procedure):
        def execute(self, ctx):
            seen.append("grandchild")
            return Status.done(2)

    class Child(Saga):
        @step
        def bear(self, ctx):
            seen.append("child")
            return Status.suspended([Grandchild()])

        @step
        def count(self, ctx):
            return 1 + sum(outcome.output for outcome in ctx.children.values())

    class Parent(Saga):
        @step
        def bear(self, ctx):
            return Status.suspended([Child()])

        @step
        def count(self, ctx):
            return sum(outcome.output for outcome in ctx.children.values())

    with InlineManager([Parent], workers=2) as manager:
        assert manager.run(Parent()) == 3

    assert seen == ["child", "grandchild"]


def test_no_worker_dies_before_the_start():
    manager = InlineManager([Asking])

    assert not manager.crash_worker()
