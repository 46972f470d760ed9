"""A call of a procedure function that a step makes and drops is warned of, with the line that made it."""

from __future__ import annotations

import gc
import inspect
import warnings
from dataclasses import dataclass, field

import pytest

from actorproc import Procedure, RetryLater, RetryPolicy, Saga, Status, procedure, step
from actorproc.procedure.declaring import unsubmitted
from actorproc.testing import InlineManager


@procedure
def charge(amount):
    return amount


class Order(Saga):
    kind: str
    kept: list[int] = field(default_factory=list)
    retry = RetryPolicy(base=0.001)

    @step
    def pay(self, ctx):
        getattr(self, self.kind)(ctx)
        return getattr(self, f"and_{self.kind}", lambda ctx: None)(ctx)

    def drops(self, ctx):
        charge(5)

    def drops_a_variable(self, ctx):
        made = charge(5)
        del made

    def drops_a_list(self, ctx):
        [charge(number) for number in range(3)]

    def drops_a_status(self, ctx):
        Status.suspended([charge(5)])

    def returns(self, ctx): ...

    def and_returns(self, ctx):
        return Status.suspended([charge(1), ("named", charge(2))])

    def calls_the_function(self, ctx):
        charge.function(5)

    def runs(self, ctx):
        charge(5).execute(ctx)

    def fails_first(self, ctx): ...

    def and_fails_first(self, ctx):
        made = charge(1)
        if ctx.attempt == 1:
            raise RetryLater
        return Status.suspended([made])


def play(made):
    unsubmitted._told.clear()
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with InlineManager() as manager:
            manager.finish(manager.submit(made)).result()
        gc.collect()
    return seen


@pytest.mark.parametrize("kind", ["drops", "drops_a_variable", "drops_a_list", "drops_a_status"])
def test_a_call_that_is_dropped_is_warned_of_at_its_line(kind):
    (seen,) = {(str(each.message), each.lineno): each for each in play(Order(kind))}.values()

    lines, first = inspect.getsourcelines(getattr(Order, kind))
    assert seen.category is RuntimeWarning
    assert "charge(…) was called in a step and dropped" in str(seen.message)
    assert "return Status.suspended([charge(…)])" in str(seen.message)
    assert (seen.filename, seen.lineno) == (__file__, first + 1)
    assert "charge(" in lines[1]


@pytest.mark.parametrize("kind", ["returns", "calls_the_function", "runs", "fails_first"])
def test_a_call_of_which_something_becomes_is_not_warned_of(kind):
    assert play(Order(kind)) == []


@dataclass
class Keeper(Procedure):
    plan: list = field(default_factory=list)
    uses = (charge,)

    def execute(self, ctx):
        if ctx.step == 1:
            self._plan = {"all": [charge(1)]}
            return Status.executing()
        return Status.done()


def test_one_that_the_object_still_holds_when_its_state_is_stored_is_not_warned_of():
    assert play(Keeper()) == []


def test_a_call_outside_of_a_step_is_not_watched():
    with InlineManager():
        charge(5)
    assert not unsubmitted.watched
