"""A value of a step that is work which nothing would run fails the step, and says what to write."""

from __future__ import annotations

import asyncio
import collections
import functools
import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from actorproc import Context, Procedure, RetryLater, Saga, Status, procedure, step
from actorproc.model.ids import Mode
from actorproc.model.messages.outcomes import Failed, Finished
from actorproc.procedure.runtime.engine_side import TypeRuntime


@dataclass
class Child(Procedure):
    number: int = 0

    def execute(self, ctx):
        return Status.done(self.number)


@procedure
def charge(amount): ...


async def later(): ...


class Loose(Child):
    def __repr__(self):
        raise RuntimeError


DROPPED: list[tuple[str, Any, str]] = [
    (
        "a procedure",
        lambda ctx: Child(1),
        r"returned the procedure Child\(number=1\).*'return Status\.suspended\(\[Child",
    ),
    ("one without a repr", lambda ctx: Loose(1), r"Status\.suspended\(\[Loose\(…\)\]\)"),
    ("a call of a procedure function", lambda ctx: charge(5), r"the procedure charge\(amount=5\)"),
    ("a procedure function", lambda ctx: charge, r"returned charge, which was not called"),
    ("a procedure class", lambda ctx: Child, r"returned the class Child"),
    ("a list", lambda ctx: [Child(1), Child(2)], r"procedures in a list.*Status\.suspended\(\[…\]\)"),
    ("pairs", lambda ctx: [("a", Child(1))], "procedures in a list"),
    ("a tuple", lambda ctx: (Child(1), Child(2)), "procedures in a tuple"),
    ("a mapping", lambda ctx: {"a": Child(1)}, "procedures in a dict"),
    ("a deque", lambda ctx: collections.deque([Child(1)]), "procedures in a deque"),
    ("chunks", lambda ctx: [[Child(1)], [Child(2), Child(3), Child(4)]], "procedures in a list"),
    ("a list behind others", lambda ctx: [None, 1, Child(1)], "procedures in a list"),
    ("calls of a procedure function", lambda ctx: [charge(1), charge(2)], "procedures in a list"),
    ("a generator", lambda ctx: (Child(n) for n in range(3)), "returned a generator, so nothing of it has run"),
    ("a map", lambda ctx: map(Child, range(3)), r"returned a map object.*list\(…\)"),
    ("a zip", lambda ctx: zip("ab", (Child(), Child()), strict=True), "returned a zip object"),
    (
        "Status.sleep",
        lambda ctx: Status.sleep,
        r"returned Status\.sleep, which was not called; write 'return Status\.sleep\(…\)'",
    ),
    ("Status.wait", lambda ctx: Status.wait, r"Status\.wait\(…\)"),
    ("Status.done", lambda ctx: Status.done, r"Status\.done\(…\)"),
    ("Status.executing", lambda ctx: Status.executing, r"Status\.executing\(…\)"),
    ("Status.suspended", lambda ctx: Status.suspended, r"Status\.suspended\(…\)"),
    ("Status.poisoned", lambda ctx: Status.poisoned, r"Status\.poisoned\(…\)"),
    ("Status", lambda ctx: Status, "the class Status"),
    ("a partial", lambda ctx: functools.partial(Status.sleep, 5), r"Status\.sleep\(…\)"),
    ("a Status in a tuple", lambda ctx: (Status.sleep(5),), "a comma behind it"),
    ("a Status with a value", lambda ctx: (Status.sleep(5), "x"), "return the Status alone"),
    ("a coroutine", lambda ctx: later(), r"returned a coroutine, so nothing of it has run.*'async def'"),
    ("a list of coroutines", lambda ctx: [later()], "a list of coroutines"),
    ("a function", lambda ctx: len, "returned the function len, which was not called"),
    ("a method", lambda ctx: ctx.heartbeat, r"write 'heartbeat\(…\)'"),
    ("a lambda", lambda ctx: lambda: 5, "was not called"),
    ("an exception", lambda ctx: RetryLater(after=5), "write 'raise' in place of 'return'"),
    ("an exception of others", lambda ctx: ValueError("no stock"), "write 'raise'"),
]
KEPT = [None, 0, "x", [1, 2], {"a": [1]}, (), [], {}, {1}, b"x", 1.5, (1, ("a", 2)), [[1] * 5] * 5]


def outcome_of(cls, context, mode=Mode.EXECUTE, step=1):
    live = cls()
    outcome, _ = TypeRuntime.of_class(cls).run(live, context(step=step, mode=mode), mode, "first", None)
    return outcome, live


@pytest.mark.parametrize(("make", "said"), [case[1:] for case in DROPPED], ids=[case[0] for case in DROPPED])
@pytest.mark.parametrize("place", ["a step between", "the last step", "an undo", "a function", "an execute"])
def test_work_that_would_be_dropped_fails_the_step(context, place, make, said):
    class Order(Saga):
        @step
        def first(self, ctx):
            return make(ctx)

        @first.undo
        def undo_first(self, ctx):
            return make(ctx)

        if place == "a step between":

            @step
            def second(self, ctx):
                raise AssertionError

    @procedure
    def call(ctx):
        return make(ctx)

    class Plain(Procedure):
        def execute(self, ctx):
            return make(ctx)

    if place == "an execute":
        outcome, _ = outcome_of(Plain, context)
    elif place == "a function":
        runtime = TypeRuntime.of_class(call.procedure_class)
        outcome, _ = runtime.run(call(), context(), Mode.EXECUTE, None, None)
    else:
        outcome, _ = outcome_of(Order, context, Mode.ROLLBACK if place == "an undo" else Mode.EXECUTE)

    assert isinstance(outcome, Failed)
    assert (outcome.error.kind, outcome.retryable) == ("invalid-status", False)
    assert re.search(said, outcome.error.message), outcome.error.message
    assert outcome.error.message.startswith(
        {
            "an undo": "the undo of step 'first' ",
            "a function": call.procedure_class.__qualname__,
            "an execute": Plain.__qualname__,
        }.get(place, "the step 'first' ")
    )


@pytest.mark.parametrize("value", KEPT, ids=repr)
def test_values_are_values(context, value):
    class Order(Saga):
        @step
        def first(self, ctx):
            return value

    outcome, _ = outcome_of(Order, context)

    assert TypeRuntime.of_class(Order).decode_output(outcome.output) == value


def test_a_future_that_nothing_awaits_is_work(context):
    loop = asyncio.new_event_loop()

    class Order(Saga):
        @step
        def first(self, ctx):
            return loop.create_future()

    outcome, _ = outcome_of(Order, context)
    loop.close()

    assert "which nothing would await" in outcome.error.message


def test_the_event_of_a_last_step_that_waits_is_the_output(context):
    class Approval(Saga):
        @step
        def ask(self, ctx):
            return Status.wait("reviewed")

    runtime, live = TypeRuntime.of_class(Approval), Approval()
    runtime.run(live, context(), Mode.EXECUTE, None, None)
    outcome, _ = runtime.run(live, context(step=2), Mode.EXECUTE, None, runtime.encode_value({"by": "Ann"}))

    assert isinstance(outcome, Finished)
    assert runtime.decode_output(outcome.output) == {"by": "Ann"}


# ---------------------------------------------------------------- methods that nothing calls
def test_a_public_method_that_nothing_calls_is_warned_of_at_its_line():
    with pytest.warns(UserWarning, match=r"Order\.ship\(self, ctx\) is no step.*write @step above it") as seen:

        class Order(Saga):
            @step
            def pay(self, ctx): ...

            def ship(self, ctx): ...

    assert seen[0].filename == __file__
    assert seen[0].lineno == Order.ship.__code__.co_firstlineno


def test_methods_that_are_called_in_some_way_are_not_warned_of():  # noqa: C901 - one class has them all
    class Order(Saga):
        table: dict = field(default_factory=dict)

        @step
        def pay(self, ctx):
            self.called(ctx)
            [self.in_a_loop(ctx) for _ in range(3)]
            return self.as_property

        @pay.undo
        def refund(self, ctx):
            self.by_an_undo(ctx)

        def called(self, ctx):
            def inner():
                self.by_another(ctx)

            inner()

        def by_another(self, ctx): ...
        def in_a_loop(self, ctx): ...
        def by_an_undo(self, ctx): ...
        def by_a_property(self, ctx): ...
        def in_a_table(self, ctx): ...
        def of_a_partial(self, ctx): ...
        def _private(self, ctx): ...
        def other(self): ...
        def with_more(self, ctx, more): ...
        def on_completed(self, ctx): ...

        HANDLERS = {"x": in_a_table}  # noqa: RUF012
        made = functools.partialmethod(of_a_partial)

        @property
        def as_property(self):
            return self.by_a_property(None)

        @staticmethod
        def static(ctx): ...

    assert Order().called(None) is None


def test_a_saga_that_looks_its_methods_up_is_not_warned_of():
    class Order(Saga):
        kind: str = "card"

        @step
        def pay(self, ctx):
            return getattr(self, f"pay_{self.kind}")(ctx)

        def pay_card(self, ctx): ...


def test_overrides_and_classes_without_steps_are_not_warned_of():
    class Base(Saga):
        def helper(self, ctx): ...

    class Order(Base):
        @step
        def pay(self, ctx):
            self.helper(ctx)

    class Own(Order):
        def helper(self, ctx): ...

        def pay(self, ctx): ...

        @step
        def ship(self, ctx: Context): ...

    assert Own().helper(None) is None
