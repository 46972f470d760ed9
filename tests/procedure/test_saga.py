"""Sagas: order, position, undo."""

from __future__ import annotations

from typing import Any

import pytest

from actorproc import Procedure, Saga, Status, UsageError, step
from actorproc.model.ids import Mode
from actorproc.model.messages.outcomes import Advanced, Failed, Finished, Refused, Slept, Suspended, Waited
from actorproc.procedure.runtime.engine_side import TypeRuntime
from tests.kit.procedures import Order


class Leaf(Procedure):
    def execute(self, ctx):
        return Status.done()


def play(saga: Saga, context, steps: int = 10) -> list[Any]:
    """Run it step by step, each from the stored bytes, as after a crash at every point."""
    runtime = TypeRuntime.of_class(type(saga))
    new = runtime.describe(saga)
    state, outcomes = new.state, []
    for number in range(1, steps + 1):
        live = runtime.load(state, new.codec, new.version)
        outcome, _ = runtime.run(live, context(step=number), Mode.EXECUTE, None, None)
        outcomes.append(outcome)
        if isinstance(outcome, Finished | Failed | Refused):
            break
        state = outcome.state
    return outcomes


def test_a_saga_is_a_dataclass():
    assert Order("book") == Order(item="book", paid=False)


def test_steps_run_in_order_and_the_last_value_is_the_output(context):
    first, last = play(Order("book"), context)

    assert isinstance(first, Advanced)
    assert isinstance(last, Finished)
    assert TypeRuntime.of_class(Order).decode_output(last.output) == "tracking-book-True-p-1.ship"


def test_the_unit_of_a_step_is_its_name_when_it_has_an_undo(context):
    new = TypeRuntime.of_class(Order).describe(Order("book"))
    first, _ = play(Order("book"), context)

    assert (new.unit, first.unit) == ("pay", None)
    assert TypeRuntime.of_class(Order).meta.rollback_supported


def test_a_saga_without_fields_and_without_undos_works(context):
    class Bare(Saga):
        @step
        def only(self, ctx):
            return 1

    runtime = TypeRuntime.of_class(Bare)

    assert isinstance(play(Bare(), context)[-1], Finished)
    assert (runtime.describe(Bare()).unit, runtime.meta.rollback_supported) == (None, False)


def test_suspended_sleep_and_wait_go_on_at_the_next_step_and_executing_repeats(context):
    class Winding(Saga):
        rounds: int = 0
        seen: str = ""

        @step
        def spread(self, ctx):
            self.seen += "a"
            return Status.suspended([Leaf()])

        @step
        def rest(self, ctx):
            self.seen += "b"
            return Status.sleep(1)

        @step
        def hear(self, ctx):
            self.seen += "c"
            return Status.wait("x")

        @step
        def twice(self, ctx):
            self.seen += "d"
            self.rounds += 1
            return Status.executing() if self.rounds < 2 else self.seen

    outcomes = play(Winding(), context)

    assert [type(outcome) for outcome in outcomes] == [Suspended, Slept, Waited, Advanced, Finished]
    assert TypeRuntime.of_class(Winding).decode_output(outcomes[-1].output) == "abcdd"


def test_a_last_step_that_waits_ends_without_output(context):
    class Waiting(Saga):
        @step
        def hear(self, ctx):
            return Status.wait("x")

    outcomes = play(Waiting(), context)

    assert [type(outcome) for outcome in outcomes] == [Waited, Finished]
    assert TypeRuntime.of_class(Waiting).decode_output(outcomes[-1].output) is None


def test_done_ends_a_saga_early(context):
    class Early(Saga):
        @step
        def first(self, ctx):
            return Status.done("early")

        @step
        def second(self, ctx):
            raise AssertionError

    outcomes = play(Early(), context)

    assert len(outcomes) == 1
    assert TypeRuntime.of_class(Early).decode_output(outcomes[0].output) == "early"


def test_the_step_after_a_point_of_no_return_declaration_is_announced(context):
    class Final(Saga):
        @step
        def prepare(self, ctx): ...
        @step(no_return=True)
        def commit(self, ctx): ...
        @step
        def after(self, ctx): ...

    outcomes = play(Final(), context)

    assert [outcome.no_return for outcome in outcomes] == [True, False, False]


def test_a_saga_that_begins_with_its_point_of_no_return_says_so_at_submit():
    class AtOnce(Saga):
        @step(no_return=True)
        def commit(self, ctx): ...

    assert TypeRuntime.of_class(AtOnce).describe(AtOnce()).no_return


def undo(saga, unit, context):
    return TypeRuntime.of_class(type(saga)).run(saga, context(mode=Mode.ROLLBACK), Mode.ROLLBACK, unit, None)[0]


def test_undo_calls_the_undo_of_that_step(context):
    order = Order("book", paid=True)

    outcome = undo(order, "pay", context)

    assert isinstance(outcome, Finished)
    assert order.paid is False


def test_an_undo_may_ask_to_be_called_again(context):
    class Slow(Saga):
        left: int = 1

        @step
        def act(self, ctx): ...
        @act.undo
        def revert(self, ctx):
            self.left -= 1
            return Status.executing() if self.left >= 0 else None

    slow = Slow()

    assert isinstance(undo(slow, "act", context), Advanced)
    assert isinstance(undo(slow, "act", context), Finished)


def test_an_undo_that_is_gone_from_the_class_refuses_the_state(context):
    outcome = undo(Order("x"), "pack", context)

    assert isinstance(outcome, Refused)
    assert "pack" in outcome.reason


def test_a_step_that_is_gone_from_the_class_refuses_the_state(context):
    class Longer(Order):
        @step
        def thank(self, ctx): ...

    runtime = TypeRuntime.of_class(Longer)
    live = Longer("x")
    for number in (1, 2):
        outcome, _ = runtime.run(live, context(step=number), Mode.EXECUTE, None, None)

    runtime = TypeRuntime.of_class(Order)
    refused, _ = runtime.run(runtime.load(outcome.state, "data", 1), context(step=3), Mode.EXECUTE, None, None)

    assert isinstance(refused, Refused)
    assert "'thank'" in refused.reason


def test_base_steps_come_first_and_an_override_keeps_its_place_and_its_undo():
    class Bigger(Order):
        note: str = ""

        @step
        def thank(self, ctx): ...

        @step
        def pay(self, ctx):
            self.note = "bigger"

    assert [(bound.name, bound.unit) for bound in Bigger._Saga__bound_steps] == [
        ("pay", "pay"),
        ("ship", None),
        ("thank", None),
    ]
    assert Bigger._Saga__bound_steps[0].run is Bigger.pay.function


def test_a_plain_method_overrides_a_step_and_an_undo(context):
    class Quiet(Order):
        def pay(self, ctx):
            self.item = "quiet"

        def refund(self, ctx):
            self.item = "undone"

    quiet = Quiet("x")
    TypeRuntime.of_class(Quiet).run(quiet, context(), Mode.EXECUTE, None, None)
    assert quiet.item == "quiet"
    undo(quiet, "pay", context)
    assert quiet.item == "undone"


def test_undos_may_all_have_the_same_name(context):
    class Nameless(Saga):
        seen: str = ""

        @step
        def one(self, ctx): ...
        @one.undo
        def _(self, ctx):
            self.seen += "1"

        @step
        def two(self, ctx): ...
        @two.undo
        def _(self, ctx):
            self.seen += "2"

    saga = Nameless()
    undo(saga, "two", context)
    undo(saga, "one", context)

    assert saga.seen == "21"


def test_the_position_is_no_field():
    state = TypeRuntime.of_class(Order).dump_state(Order("book"))

    assert b"pay" in state
    assert "_at" not in vars(Order("book"))


def test_a_step_can_be_called_like_a_method():
    order = Order("book")
    order.pay(None)

    assert order.paid


def test_a_saga_without_steps_is_refused_at_registration():
    class Empty(Saga):
        x: int = 0

    with pytest.raises(UsageError, match="no @step"):
        TypeRuntime.of_class(Empty)


def test_mistakes_in_a_saga_are_type_errors_when_it_is_made():
    with pytest.raises(TypeError, match="both a field and a step"):
        type("Bad", (Saga,), {"__annotations__": {"pay": int}, "pay": step(lambda self, ctx: None)})
    with pytest.raises(TypeError, match="is a generator"):

        @step
        async def slow(self, ctx):
            yield


def test_an_undo_that_is_a_generator_is_refused_because_it_would_never_run():
    with pytest.raises(TypeError, match=r"undo of step 'pay' .*generator"):

        class Order(Saga):
            @step
            def pay(self, ctx):
                pass

            @pay.undo
            async def refund(self, ctx):
                yield


def test_an_undo_with_the_name_of_its_step_is_refused_because_the_step_would_be_lost():
    with pytest.raises(TypeError, match="give it a name of its own"):

        class Order(Saga):
            @step
            def pay(self, ctx):
                pass

            @pay.undo
            def pay(self, ctx):
                pass


def test_a_step_is_made_of_a_function():
    with pytest.raises(TypeError, match="step is a method"):
        step(5)
