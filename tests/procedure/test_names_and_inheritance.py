"""What users call their own attributes, and what subclasses inherit, is theirs to say."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import msgspec
import pytest

from actorproc import LockKey, Procedure, Saga, StateMachineProcedure, Status, UsageError, procedure, step
from actorproc.model.ids import Mode
from actorproc.model.messages.outcomes import Failed, Finished
from actorproc.procedure.runtime.engine_side import TypeRuntime
from tests.procedure.test_saga import Order, play


class Phase(Enum):
    ONE = 1
    TWO = 2


class Done(Procedure):
    def execute(self, ctx):
        return Status.done()


class Undoable(Done):
    def rollback(self, ctx): ...


class NotUndone(Undoable):
    rollback_supported = False


def supports_rollback(cls: type[Procedure]) -> bool:
    return TypeRuntime.of_class(cls).meta.rollback_supported


def stored_and_loaded(made: Procedure) -> Any:
    runtime = TypeRuntime.of_class(type(made))
    new = runtime.describe(made)
    return runtime.load(new.state, new.codec, new.version)


# ---------------------------------------------------------------- whether there is something to undo
def test_a_subclass_inherits_that_there_is_nothing_to_undo():
    class Below(NotUndone): ...

    class Own(NotUndone):
        def rollback(self, ctx): ...

    class Again(NotUndone):
        rollback_supported = True

    class BelowAgain(Again): ...

    assert [supports_rollback(cls) for cls in (Undoable, NotUndone, Below, Own, Again, BelowAgain)] == [
        *(True, False, False, True, True, True)
    ]


def test_a_saga_below_one_that_is_not_undone_is_not_undone_unless_it_brings_an_undo():
    class Kept(Order):
        rollback_supported = False

    class Below(Kept):
        note: str = ""

    class Own(Kept):
        @step
        def wrap(self, ctx): ...
        @wrap.undo
        def unwrap(self, ctx): ...

    assert [supports_rollback(cls) for cls in (Order, Kept, Below, Own)] == [True, False, False, True]
    assert TypeRuntime.of_class(Below).describe(Below("x")).unit is None


def test_a_state_machine_below_one_that_is_not_undone_is_not_undone():
    class Base(StateMachineProcedure):
        initial_state = Phase.ONE

        def execute_from_state(self, ctx, state): ...
        def rollback_state(self, ctx, state): ...

    class Kept(Base):
        rollback_supported = False

    class Below(Kept): ...

    assert [supports_rollback(cls) for cls in (Base, Kept, Below)] == [True, False, False]


def test_a_slotted_dataclass_keeps_what_was_found_out_and_what_was_said():
    @dataclass(slots=True)
    class Found(Done):
        x: int = 0

    @dataclass(slots=True)
    class Below(Found):
        def rollback(self, ctx): ...

    @dataclass(slots=True)
    class Said(Below):
        rollback_supported = False

    class BelowSaid(Said): ...

    assert [supports_rollback(cls) for cls in (Found, Below, Said, BelowSaid)] == [False, True, False, False]


def test_a_rollback_that_nothing_would_call_is_refused():
    class Bought(Order):
        def rollback(self, ctx): ...

    class Built(StateMachineProcedure):
        initial_state = Phase.ONE

        def execute_from_state(self, ctx, state): ...
        def rollback(self, ctx): ...

    with pytest.raises(UsageError, match=r"Bought defines rollback\(\), which nothing calls in a Saga; give its steps"):
        TypeRuntime.of_class(Bought)
    with pytest.raises(UsageError, match=r"Built defines rollback\(\), .* override rollback_state\(\)"):
        TypeRuntime.of_class(Built)


def test_an_undo_for_an_inherited_step_is_the_subclass_own(context):
    class Paid(Order):
        seen: str = ""

        @Order.ship.undo
        def call_back(self, ctx):
            self.seen += "called back "

        @Order.pay.undo
        def refund_with_a_note(self, ctx):
            self.seen += "refunded"

    class Other(Order): ...

    paid, runtime = Paid("x"), TypeRuntime.of_class(Paid)
    for unit in ("ship", "pay"):
        runtime.run(paid, context(), Mode.ROLLBACK, unit, None)
    assert paid.seen == "called back refunded"
    live = TypeRuntime.of_class(Other).load(*stored_after_a_step(Other("x"), context))
    assert live._engine_next_unit() is None  # of ship, which has no undo here
    assert TypeRuntime.of_class(Order).describe(Order("x")).unit == "pay"


def stored_after_a_step(saga: Saga, context) -> tuple[bytes, str, int]:
    runtime = TypeRuntime.of_class(type(saga))
    outcome, _ = runtime.run(saga, context(), Mode.EXECUTE, None, None)
    return outcome.state, "data", 1


# ---------------------------------------------------------------- dataclasses
def test_a_saga_may_be_decorated_as_the_dataclass_it_is(context):
    @dataclass
    class Decorated(Saga):
        name: str
        number: int = 3
        items: list[int] = field(default_factory=list)

        @step
        def add(self, ctx):
            self.items.append(self.number)

        @step
        def end(self, ctx):
            return self.items

    @dataclass(slots=True)
    class Slotted(Saga):
        name: str
        number: int = 3

        @step
        def end(self, ctx): ...

    runtime = TypeRuntime.of_class(Decorated)
    outcome = play(Decorated("x"), context)[-1]
    assert isinstance(outcome, Finished)
    assert runtime.decode_output(outcome.output) == [3]
    assert Decorated("x").items is not Decorated("y").items
    # Stored before the fields with defaults were added.
    assert stored_and_loaded(Slotted("x")).number == 3
    assert TypeRuntime.of_class(Slotted).load(b"\x92\x92\xa3end\x91\xa3end\x81\xa4name\xa1x", "data", 1) == Slotted("x")
    assert runtime.load(b"\x92\x92\xa3end\x92\xa3add\xa3end\x81\xa4name\xa1x", "data", 1) == Decorated("x")


def test_a_frozen_state_machine_goes_through_its_states(context):
    @dataclass(frozen=True)
    class Fixed(StateMachineProcedure):
        name: str
        initial_state = Phase.ONE

        def execute_from_state(self, ctx, state):
            self.add_child(Done())
            return Phase.TWO if state is Phase.ONE else None

    assert len(play_machine(Fixed("x"), context)) == 3


@pytest.mark.parametrize("options", [{}, {"frozen": True}])
def test_a_state_machine_may_be_a_struct(context, options):
    class Packed(StateMachineProcedure, msgspec.Struct, **options):
        name: str
        initial_state = Phase.ONE

        def execute_from_state(self, ctx, state):
            self.add_child(Done())
            return Phase.TWO if state is Phase.ONE else None

    assert len(play_machine(Packed("x"), context)) == 3
    assert Packed("x").current_state is Phase.ONE


@pytest.mark.parametrize("bases", [(Saga, msgspec.Struct), (msgspec.Struct, Saga)])
def test_a_saga_that_is_a_struct_is_refused_before_it_is_made_a_dataclass(bases):
    with pytest.raises(TypeError, match="cannot be a msgspec"):
        type("Packed", bases, {"__annotations__": {"name": str}, "only": step(lambda self, ctx: None)})


def play_machine(machine: StateMachineProcedure, context) -> list[Any]:
    runtime = TypeRuntime.of_class(type(machine))
    state, outcomes = runtime.describe(machine).state, []
    for number in range(1, 6):
        outcome, _ = runtime.run(runtime.load(state, "data", 1), context(step=number), Mode.EXECUTE, None, None)
        outcomes.append(outcome)
        if isinstance(outcome, Finished | Failed):
            break
        state = outcome.state
    assert isinstance(outcomes[-1], Finished)
    return outcomes


def test_attributes_in_slots_of_a_plain_class_are_its_state():
    class Base(Done):
        __slots__ = ("_cache", "size")

    class Slotted(Base):
        __slots__ = ("unset", "when")

        def __init__(self, size: int) -> None:
            self.size, self.when, self._cache, self.more = size, {1, 2}, object(), "text"

    live = stored_and_loaded(Slotted(7))

    assert (live.size, live.when, live.more) == (7, {1, 2}, "text")
    assert not hasattr(live, "unset")
    assert not hasattr(live, "_cache")


# ---------------------------------------------------------------- names
def test_helpers_and_attributes_of_a_procedure_may_have_any_name_with_an_underscore(context):
    class Own(Procedure):
        _reserved = _secrets = "mine"

        def execute(self, ctx):
            raise RuntimeError

        def rollback(self, ctx):
            self._undo()

        def _undo(self): ...
        def _position(self): ...
        def _restore(self): ...
        def _next_unit(self): ...
        def _take_key(self): ...

    assert isinstance(
        TypeRuntime.of_class(Own).run(stored_and_loaded(Own()), context(), Mode.ROLLBACK, "", None)[0], Finished
    )


def test_attributes_of_a_saga_may_have_any_name_with_an_underscore(context):
    class Own(Saga):
        @step
        def begin(self, ctx):
            self._at = self._stages = self._index = self._stage = self._position = 17.5

        @step
        def end(self, ctx):
            return "done"

    assert isinstance(play(Own(), context)[1], Finished)


def test_attributes_of_a_state_machine_may_have_any_name_with_an_underscore(context):
    class Own(StateMachineProcedure):
        initial_state = Phase.ONE

        def execute_from_state(self, ctx, state):
            self._reached = self._cycles = self._added = self._member = self._children_added = "mine"
            return Phase.TWO if state is Phase.ONE else None

    assert len(play_machine(Own(), context)) == 2


def test_parameters_of_a_function_may_have_any_name_with_an_underscore(context):
    @procedure(locks=lambda _call, *_: [LockKey.write(_call)])
    def send(_call, _take_key=2, _secret_names=3):
        return _call, _take_key, _secret_names

    runtime = TypeRuntime.of_class(send.procedure_class)
    new = runtime.describe(send("a", 5))
    outcome, _ = runtime.run(runtime.load(new.state, "data", 1), context(), Mode.EXECUTE, None, None)

    assert new.locks == (LockKey.write("a"),)
    assert runtime.decode_output(outcome.output) == ("a", 5, 3)
    assert "_call='a'" in repr(send("a"))


def test_a_parameter_with_a_default_may_be_added_to_a_function():
    @procedure(name="collect")
    def old(what): ...

    @procedure(name="collect")
    def new(what, into=[], *, times=1): ...  # noqa: B006 - a default that can be changed

    stored = TypeRuntime.of_class(old.procedure_class).describe(old("x"))
    runtime = TypeRuntime.of_class(new.procedure_class)
    first, second = (runtime.load(stored.state, "data", 1) for _ in range(2))

    assert first == new("x")
    assert first.into is not second.into


# ---------------------------------------------------------------- what a suspend cannot do
@pytest.mark.parametrize("options", [{"after": 5}, {"acquire": [LockKey.write("a")]}, {"no_return": True}])
def test_what_a_step_asks_for_its_next_one_is_not_dropped_for_its_children(context, options):
    class Own(StateMachineProcedure):
        initial_state = Phase.ONE

        def execute_from_state(self, ctx, state):
            self.add_child(Done())
            return Status.executing(**options)

    outcome, _ = TypeRuntime.of_class(Own).run(Own(), context(), Mode.EXECUTE, None, None)

    assert isinstance(outcome, Failed)
    assert "return them from a step that adds no children" in outcome.error.message
