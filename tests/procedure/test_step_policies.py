"""Retries and limits of single steps and states: what the engine learns of them, and what is refused in words."""

from __future__ import annotations

import pickle
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import cloudpickle
import msgspec
import pytest

from actorproc import Limits, RetryPolicy, Saga, StateMachineProcedure, StepTimeout, UsageError, step
from actorproc.procedure.declaring.policies import given_by
from actorproc.procedure.runtime.engine_side import TypeRuntime
from actorproc.testing import InlineManager


class Phase(Enum):
    COPY = 1
    SWITCH = 2
    OLD_SWITCH = SWITCH


class Order(Saga, retry=RetryPolicy(max_attempts=5, base=2.0), limits=Limits(wall_time=60, crashes=2)):
    @step(limits=Limits(wall_time=5), retry=RetryPolicy(max_attempts=1))
    def pay(self, ctx): ...

    @pay.undo
    def refund(self, ctx): ...

    @step(name="send", was=("ship",), limits=Limits(wall_time=None, on=("depot",), resources={"van": 1}))
    def deliver(self, ctx): ...

    @step
    def close(self, ctx): ...


@dataclass
class Move(StateMachineProcedure, state_retry={Phase.COPY: RetryPolicy(retry_on=StepTimeout)}, limits=Limits(nice=3)):
    initial_state = Phase.COPY
    state_limits: ClassVar = {Phase.SWITCH: Limits(memory=10**6, heartbeat=2)}

    def execute_from_state(self, ctx, state): ...


def steps_of(cls):
    return TypeRuntime.of_class(cls).meta.steps


def test_each_field_that_a_step_gives_goes_before_the_one_of_the_class():
    found = steps_of(Order)

    assert found.keys() == {"pay", "send", "ship"}
    assert (found["pay"].limits.wall_time, found["pay"].limits.crashes) == (5, 2)
    assert (found["pay"].retry.max_attempts, found["pay"].retry.base) == (1, 2.0)
    assert found["send"] == found["ship"]  # by its former name too
    assert (found["send"].limits.wall_time, found["send"].limits.on) == (None, ("depot",))
    assert found["send"].retry == TypeRuntime.of_class(Order).meta.retry
    assert TypeRuntime.of_class(Order).meta.is_placed


def test_states_have_them_by_name_and_by_alias():
    found = steps_of(Move)

    assert found.keys() == {"COPY", "SWITCH", "OLD_SWITCH"}
    assert found["COPY"].retries_overtime
    assert not found["SWITCH"].retries_overtime
    assert found["SWITCH"] == found["OLD_SWITCH"]
    assert (found["SWITCH"].limits.memory, found["SWITCH"].limits.nice) == (10**6, 3)


def test_a_class_without_any_has_none():
    class Plain(Saga, limits=Limits(wall_time=1)):
        @step
        def only(self, ctx): ...

    assert steps_of(Plain) == {}


def test_an_override_keeps_what_it_does_not_bring():
    class Replaced(Order):
        def pay(self, ctx): ...

    class Slower(Order, limits=Limits(crashes=9)):
        @step(limits=Limits(wall_time=50))
        def pay(self, ctx): ...

    assert steps_of(Replaced)["pay"] == steps_of(Order)["pay"]
    assert (steps_of(Slower)["pay"].limits.wall_time, steps_of(Slower)["pay"].limits.crashes) == (50, 9)
    assert steps_of(Slower)["pay"].retry.max_attempts == 1


@pytest.mark.parametrize(
    "options, words",  # noqa: PT006
    [
        ({"limits": Limits(dedicated=True)}, "dedicated.*limits of the class"),
        ({"limits": Limits(dedicated=False)}, "dedicated.*limits of the class"),
        ({"limits": Limits(threads=4)}, "threads.*limits of the class"),
        ({"limits": 5}, r"limits=5; it must be a Limits"),
        ({"limits": RetryPolicy()}, "it must be a Limits"),
        ({"retry": Limits()}, "it must be a RetryPolicy"),
        ({"retry": 3}, "retry=3; it must be a RetryPolicy"),
        ({"timeout": 3}, "timeout"),
    ],
)
def test_what_is_no_policy_of_a_step_is_refused_when_the_class_is_made(options, words):
    with pytest.raises(TypeError, match=words):

        class Wrong(Saga):
            @step(**options)
            def pay(self, ctx): ...


@pytest.mark.parametrize(
    "of_class, of_step, words",  # noqa: PT006
    [
        (Limits(threads=4), Limits(memory=1), "'pay' of .*Wrong.* do not go with .*threads=4.*memory"),
        (Limits(threads=2), Limits(cpus=(0,)), "threads=2.*cpus"),
        (Limits(dedicated=True), Limits(on=("gpu",)), "'pay' of .*dedicated=True"),
        (Limits(dedicated=True), Limits(resources={"gpu": 1}), "dedicated=True"),
    ],
)
@pytest.mark.parametrize("comes_later", [False, True], ids=["with the step", "in a subclass"])
def test_limits_that_do_not_go_with_those_of_the_class_are_refused_when_it_is_made(
    of_class, of_step, words, comes_later
):
    def make():
        class Wrong(Saga, limits=Limits() if comes_later else of_class):
            @step(limits=of_step)
            def pay(self, ctx): ...

        class WrongToo(Wrong, limits=of_class): ...

    with pytest.raises(TypeError, match=words):
        make()


@pytest.mark.parametrize(
    "options, words",  # noqa: PT006
    [
        ({"state_limits": Limits()}, "must be a mapping of states"),
        ({"state_limits": {"COPY": Limits()}}, "'COPY' in state_limits, which is none of its states: COPY, SWITCH"),
        ({"state_retry": {Phase.COPY: None}}, "None in state_retry of the state COPY"),
        ({"state_retry": {Phase.COPY: Limits()}}, "the state COPY of .*RetryPolicy"),
        ({"state_limits": {Phase.COPY: Limits(threads=2)}}, "the state COPY of .*threads"),
        ({"limits": Limits(threads=2), "state_limits": {Phase.COPY: Limits(memory=2)}}, "'COPY' of .*memory"),
    ],
)
def test_wrong_policies_of_states_are_refused_when_the_class_is_made(options, words):
    with pytest.raises(TypeError, match=words):

        class Wrong(StateMachineProcedure, **options):
            initial_state = Phase.COPY

            def execute_from_state(self, ctx, state): ...


@pytest.mark.parametrize(
    "copy", [lambda made: pickle.loads(pickle.dumps(made)), lambda made: cloudpickle.loads(cloudpickle.dumps(made))]
)
@pytest.mark.parametrize(
    "made",
    [Limits(), Limits(wall_time=None), Limits(3, crashes=3), RetryPolicy(), RetryPolicy(4, retry_on=OSError)],
    ids=repr,
)
def test_what_was_given_is_known_of_a_copy_too(made, copy):
    assert copy(made) == made
    assert sorted(given_by(copy(made))) == sorted(given_by(made))


def test_options_that_were_replaced_are_given():
    assert given_by(msgspec.structs.replace(Limits(), wall_time=3.0)) == ("wall_time",)
    assert Limits(wall_time=None) == Limits()
    assert (given_by(Limits(wall_time=None)), given_by(Limits(2.5, 7))) == (("wall_time",), ("wall_time", "cpu_time"))


def test_a_machine_may_have_fields_of_these_names():
    @dataclass
    class Odd(StateMachineProcedure):
        state_limits: int = 0
        state_retry: str = "no"
        initial_state = Phase.COPY

        def execute_from_state(self, ctx, state): ...

    assert steps_of(Odd) == {}
    assert Odd(3, "x").state_limits == 3


def test_limits_of_a_submit_that_do_not_go_with_those_of_a_step_are_refused():
    class Threaded(Saga):
        @step(limits=Limits(memory=10**6))
        def pay(self, ctx): ...

    with InlineManager() as manager, pytest.raises(UsageError, match=r"limits of the submit.*step 'pay'.*threads=2"):
        manager.submit(Threaded(), limits=Limits(threads=2))
