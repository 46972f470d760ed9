"""@procedure: plain functions as one-step procedures."""

from __future__ import annotations

from enum import Enum

import pytest

from actorproc import Limits, LockKey, RetryPolicy, Status, procedure
from actorproc.model.ids import Mode
from actorproc.procedure.runtime.engine_side import TypeRegistry


class Size(Enum):
    BIG = 1


@procedure
def resize(path: str, width: int = 640) -> tuple[str, int]:
    """Makes it smaller."""
    return path, width


@procedure(
    retry=RetryPolicy(max_attempts=9), limits=Limits(crashes=1), locks=lambda path: [LockKey.write(path)], name="rm"
)
def remove(ctx, path):
    return ctx.step, path


@procedure
def everything(a, /, b, *rest, c=3, **more):
    return a, b, rest, c, more


@procedure
def grade(size: Size) -> Size:
    return size


def ran(made, context):
    runtime = TypeRegistry().for_object(made)
    new = runtime.describe(made)
    live = runtime.load(new.state, new.codec, new.version)
    assert live == made
    outcome, _ = runtime.run(live, context(step=4), Mode.EXECUTE, None, None)
    return runtime.decode_output(outcome.output), new, runtime


def test_calling_binds_the_arguments_and_the_step_calls_the_function(context):
    made = resize("a.png")

    assert (made.path, made.width) == ("a.png", 640)
    assert ran(made, context)[0] == ("a.png", 640)
    assert resize.function("x", 1) == ("x", 1)
    assert resize.__doc__ == "Makes it smaller."


def test_the_context_is_given_when_the_first_parameter_is_called_ctx(context):
    output, new, runtime = ran(remove("a/b"), context)

    assert output == (4, "a/b")
    assert new.locks == (LockKey.write("a/b"),)
    assert (new.type_name, runtime.meta.retry.max_attempts, runtime.meta.crashes) == ("rm", 9, 1)


def test_every_kind_of_parameter_is_passed_as_it_was(context):
    output, _, _ = ran(everything(1, 2, 3, 4, c=5, d=6), context)

    assert output == (1, 2, (3, 4), 5, {"d": 6})


def test_classes_of_the_functions_type_hints_are_kept(context):
    assert ran(grade(Size.BIG), context)[0] is Size.BIG


def test_a_status_is_taken_as_it_is(context):
    @procedure
    def sleepy():
        return Status.sleep(1)

    runtime = TypeRegistry().for_object(sleepy())

    assert runtime.run(sleepy(), context(), Mode.EXECUTE, None, None)[0].seconds == 1


def test_wrong_arguments_are_a_type_error_where_they_are_written():
    with pytest.raises(TypeError, match="missing a required argument"):
        resize()


def test_only_plain_functions_are_taken():
    with pytest.raises(TypeError):
        procedure(Size)
    with pytest.raises(TypeError, match="is a generator"):

        @procedure
        async def slow():
            yield


def test_the_type_is_named_after_the_function():
    assert resize("a").type_name == f"{__name__}.resize"


def test_a_parameter_may_have_any_name_that_procedure_does_not_use(context):
    @procedure
    def odd(ctx, self, *, _rest=1, _positional=2):
        return (self, _rest, _positional)

    assert odd(self=7).execute(context()) == Status.done((7, 1, 2))
