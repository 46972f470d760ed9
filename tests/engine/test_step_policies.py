"""Retries and limits of single steps, on real workers and on both kinds of stores."""

from __future__ import annotations

import time
from dataclasses import dataclass
from enum import Enum

import pytest

from actorproc import Limits, RetryPolicy, Saga, StateMachineProcedure, step
from actorproc.errors import ProcedureFailed, RetryLater, StepTimeout

pytestmark = pytest.mark.processes

QUICK = RetryPolicy(max_attempts=4, base=0.01)


class Order(Saga, retry=RetryPolicy(max_attempts=1), limits=Limits(wall_time=60)):
    way: str = ""

    @step(
        retry=RetryPolicy(max_attempts=4, base=0.01, retry_on=(OSError, StepTimeout)),
        limits=Limits(wall_time=0.2, grace=0.1),
    )
    def pay(self, ctx):
        if ctx.attempt < 3:
            if self.way == "slow":
                time.sleep(30)
            raise OSError("not yet")

    @step(limits=Limits(memory=200 * 2**20))
    def count(self, ctx):
        return len(bytearray(400 * 2**20)) if self.way == "large" else 0

    @step
    def ship(self, ctx):
        bytearray(300 * 2**20)
        if self.way == "busy":
            raise RetryLater(after=0)
        return f"shipped at step {ctx.step}"


class Phase(Enum):
    COPY = 1
    SWITCH = 2


@dataclass
class Move(StateMachineProcedure, state_retry={Phase.COPY: QUICK}, state_limits={Phase.SWITCH: Limits(wall_time=0.2)}):
    is_slow: bool = False
    initial_state = Phase.COPY
    retry = RetryPolicy(max_attempts=1)

    def execute_from_state(self, ctx, state):
        if state is Phase.COPY:
            if ctx.attempt < 4:
                raise ConnectionError("not yet")
            return Phase.SWITCH
        if self.is_slow:
            time.sleep(30)
        return None


@pytest.mark.parametrize("way", ["", "slow"])
def test_a_step_is_tried_and_limited_as_it_says(open_manager, way):
    assert open_manager(workers=1).run(Order(way), timeout=60) == "shipped at step 3"


@pytest.mark.parametrize("way, cause, name", [("large", "MemoryError", "count"), ("busy", "RetryLater", "ship")])  # noqa: PT006
def test_the_policies_of_one_step_are_not_those_of_another(open_manager, way, cause, name):
    with pytest.raises(ProcedureFailed) as caught:
        open_manager(workers=1).run(Order(way), timeout=60)
    assert caught.value.cause.type_name.endswith(cause)
    assert caught.value.step_name == name


def test_states_have_their_own(open_manager):
    manager = open_manager(workers=1)
    manager.run(Move(), timeout=60, limits=Limits(wall_time=50))
    with pytest.raises(ProcedureFailed) as caught:
        manager.run(Move(is_slow=True), timeout=60)
    assert isinstance(caught.value.cause, StepTimeout)


def test_a_field_of_the_submit_goes_before_both_and_the_others_stay(open_manager):
    manager = open_manager(workers=1)
    with pytest.raises(ProcedureFailed) as caught:
        manager.run(Order("large"), timeout=60, limits=Limits(wall_time=50))
    assert caught.value.cause.type_name == "MemoryError"
    assert manager.run(Order("large"), timeout=60, limits=Limits(memory=None)) == "shipped at step 3"
