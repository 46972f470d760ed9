"""Steps of sagas under other decorators, and with names of the base class: run as written, or refused in words."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from actorproc import Saga, Status, procedure, step
from actorproc.model.ids import Mode
from actorproc.procedure.runtime.engine_side import TypeRuntime


def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def unnamed(function):
    def wrapper(self, ctx):
        return function(self, ctx)

    return wrapper


def run(made, context, mode: Mode = Mode.EXECUTE, unit: str | None = None) -> Any:
    return TypeRuntime.of_class(type(made)).run(made, context(mode=mode), mode, unit, None)[0]


def test_a_decorator_below_step_is_run_with_it(context):
    class Order(Saga):
        paid: bool = False

        @step
        @logged
        def pay(self, ctx):
            self.paid = True
            return Status.done(self.paid)

    assert run(Order(), context).output == TypeRuntime.of_class(Order).encode_value(True)


def test_a_step_that_returned_a_coroutine_or_a_generator_has_not_run_and_fails(context):
    class Order(Saga):
        lazy: bool

        @step
        def pay(self, ctx):
            return self.one_by_one() if self.lazy else self.later(ctx)

        @logged
        async def later(self, ctx):
            pass

        def one_by_one(self):
            yield 1

        @step
        def ship(self, ctx):
            pass

    for lazy, kind in ((False, "coroutine"), (True, "generator")):
        failed = run(Order(lazy), context)

        assert f"the step 'pay' returned a {kind}, so nothing of it has run" in failed.error.message
        assert not failed.retryable


def test_an_undo_that_returned_a_coroutine_has_not_run_and_does_not_count_as_done(context):
    class Order(Saga):
        @step
        def pay(self, ctx):
            pass

        @pay.undo
        @logged
        async def refund(self, ctx):
            pass

    failed = run(Order(), context, Mode.ROLLBACK, "pay")

    assert "the undo of step 'pay' returned a coroutine" in failed.error.message


def test_a_function_that_returned_a_coroutine_fails_in_words(context):
    async def later():
        pass

    @procedure
    def pay():
        return later()

    assert "returned a coroutine, so nothing of it has run" in run(pay(), context).error.message


@pytest.mark.parametrize("above", [logged, unnamed, staticmethod, lambda wrapped: logged(unnamed(wrapped))])
def test_a_decorator_above_step_would_hide_the_step_and_is_refused(above):
    with pytest.raises(TypeError, match=r"hides the step 'pay' of .*Order"):

        class Order(Saga):
            @above
            @step
            def pay(self, ctx):
                pass

            @step
            def ship(self, ctx):
                pass


def test_a_method_may_refer_to_steps_of_other_classes(context):
    class Order(Saga):
        @step
        def pay(self, ctx):
            return "paid"

    name = Order.pay

    class Named(Saga):
        @step
        def tell(self, ctx):
            return self.said()

        def said(self):
            return name.name

    assert run(Named(), context).output == TypeRuntime.of_class(Named).encode_value("pay")
