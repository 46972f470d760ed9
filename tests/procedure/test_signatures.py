"""Signatures are checked when the class is made, with the name and the right form; a mismatch is never retried."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from enum import Enum

import pytest

from actorproc import Limits, LockKey, Procedure, RetryPolicy, Saga, StateMachineProcedure, UsageError, procedure, step
from actorproc.model.ids import Mode
from actorproc.procedure.declaring.signatures import HOOKS
from actorproc.procedure.runtime.engine_side import TypeRuntime

EVERYTHING = RetryPolicy(retry_on=(Exception,))


def logged(function):
    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        return function(*args, **kwargs)

    return wrapper


def with_client(function):
    @functools.wraps(function)
    def wrapper(self, ctx):
        return function(self, ctx, "client")

    return wrapper


def no_ctx(self): ...
def no_self(ctx): ...
def too_many(self, ctx, amount): ...
def by_name_only(self, *, ctx): ...
def more_by_name(self, ctx, *, amount): ...
def nothing(): ...
def plain(self, ctx): ...
def positional(self, ctx, /): ...
def anything(*args): ...
def anything_more(self, *args, **kwargs): ...
def with_default(self, ctx, amount=1): ...
def optional(self, ctx=None): ...
def by_name_with_default(self, ctx, *, amount=1): ...


WRONG = [no_ctx, too_many, by_name_only, more_by_name, nothing]
RIGHT = [plain, positional, anything, anything_more, with_default, optional, by_name_with_default, logged(plain)]
WITH_CTX = [name for name, form in HOOKS.items() if form == "self, ctx"]


@pytest.mark.parametrize("function", [*WRONG, no_self], ids=lambda function: function.__name__)
def test_a_step_or_an_undo_that_cannot_be_called_is_refused_where_it_is_decorated(function):
    with pytest.raises(TypeError, match=rf"step {function.__name__} is called as .*\(self, ctx\), .* write 'def"):
        step(function)
    with pytest.raises(TypeError, match=rf"the undo of step 'pay' {function.__name__} is called as"):
        step(_pay()).undo(function)


def _pay():
    def pay(self, ctx): ...

    return pay


@pytest.mark.parametrize("function", RIGHT, ids=lambda function: function.__name__)
def test_a_step_an_undo_or_a_hook_that_can_be_called_is_taken(function):
    if function.__name__ != "plain":
        step(_pay()).undo(function)
    made = step(function)
    for name in WITH_CTX:
        assert name in vars(type("Order", (Procedure,), {name: function}))
    assert made.function is function


def test_a_decorator_that_gives_more_arguments_is_taken_at_its_word(context):
    class Order(Saga):
        @step
        @with_client
        def pay(self, ctx, client):
            return client

    outcome, _ = TypeRuntime.of_class(Order).run(Order(), context(), Mode.EXECUTE, None, None)

    assert TypeRuntime.of_class(Order).decode_output(outcome.output) == "client"


@pytest.mark.parametrize("function", WRONG, ids=lambda function: function.__name__)
@pytest.mark.parametrize("name", WITH_CTX)
@pytest.mark.parametrize("base", [Procedure, Saga, StateMachineProcedure])
def test_a_hook_that_cannot_be_called_is_refused_when_the_class_is_made(base, name, function):
    with pytest.raises(
        TypeError, match=rf"Order\.{name} is called as {name}\(self, ctx\).*write 'def {name}\(self, ctx\)'"
    ):
        type("Order", (base,), {name: function})


@pytest.mark.parametrize(
    ("name", "found", "form"),
    [
        ("lock_keys", lambda self, ctx: (), r"lock_keys\(self\)"),
        ("poison_keys", lambda: (), r"poison_keys\(self\)"),
        ("limit_keys", lambda self, other: (), r"limit_keys\(self\)"),
        ("dump", lambda self, ctx: b"", r"dump\(self\)"),
        ("load", classmethod(lambda cls: None), r"load\(cls, data\)"),
        ("load", lambda cls, data: None, "write @classmethod above 'def load'"),
        ("migrate", classmethod(lambda cls, data: None), r"migrate\(cls, data, from_version\)"),
        ("migrate", staticmethod(lambda data: None), r"migrate\(data, from_version\)"),
        ("execute", staticmethod(lambda self, ctx: None), r"execute\(ctx\)"),
        ("execute", classmethod(lambda cls: None), r"execute\(self, ctx\)"),
        ("execute", functools.partialmethod(lambda self, kind: None, "x"), r"execute\(self, ctx\)"),
    ],
)
def test_other_hooks_and_methods_of_other_kinds_are_checked_too(name, found, form):
    with pytest.raises(TypeError, match=form):
        type("Order", (Procedure,), {name: found})


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("load", classmethod(lambda cls, data: None)),
        ("load", staticmethod(lambda data: None)),
        ("migrate", staticmethod(lambda data, from_version: None)),
        ("execute", staticmethod(lambda ctx: None)),
        ("execute", functools.partialmethod(lambda self, kind, ctx: None, "x")),
        ("execute", print),
        ("lock_keys", lambda self: ()),
    ],
)
def test_methods_of_other_kinds_that_can_be_called_are_taken(name, found):
    type("Order", (Procedure,), {name: found})


class Phase(Enum):
    ONE = 1


@pytest.mark.parametrize(
    ("name", "form"),
    [
        ("execute_from_state", "self, ctx, state"),
        ("rollback_state", "self, ctx, state"),
        ("is_rollback_supported", "self, state"),
        ("is_no_return", "self, state"),
    ],
)
def test_the_hooks_of_a_state_machine_are_checked(name, form):
    with pytest.raises(TypeError, match=rf"Build\.{name} is called as {name}\({form}\)"):
        type("Build", (StateMachineProcedure,), {"initial_state": Phase.ONE, name: lambda self: None})


def test_a_step_outside_of_a_saga_is_refused():
    class Order(Procedure):
        def execute(self, ctx): ...

        @step
        def pay(self, ctx): ...

    with pytest.raises(UsageError, match="has the step 'pay', which nothing would run; derive the class from Saga"):
        TypeRuntime.of_class(Order)


@pytest.mark.parametrize("found", [staticmethod(plain), classmethod(plain), functools.partialmethod(plain), 5, print])
def test_a_step_is_a_function_of_the_class(found):
    with pytest.raises(TypeError, match=r"step is a method \(self, ctx\), not .*write a 'def"):
        step(found)


# ---------------------------------------------------------------- never retried
@pytest.mark.parametrize("mode", [Mode.EXECUTE, Mode.ROLLBACK])
@pytest.mark.parametrize("depth", ["hidden by a decorator", "called by a step"])
def test_a_type_error_about_a_signature_of_the_class_is_not_retried(context, mode, depth):
    class Order(Saga):
        retry = rollback_retry = EVERYTHING

        @logged
        def _send(self):
            pass

        @step
        @logged
        def pay(self, ctx):
            self._send(1)

        @pay.undo
        def refund(self, ctx):
            self._send(1)

    if depth == "hidden by a decorator":
        hidden = logged(_of_order(Order))
        Order._Saga__bound_steps[0].run = Order._Saga__bound_steps[0].undo = hidden

    outcome, _ = TypeRuntime.of_class(Order).run(Order(), context(mode=mode), mode, "pay", None)

    assert "takes 1 positional argument" in outcome.error.message
    assert not outcome.retryable


def _of_order(cls):
    def pay(self): ...

    pay.__qualname__ = f"{cls.__qualname__}.pay"
    pay.__code__ = pay.__code__.replace(co_qualname=pay.__qualname__)
    return pay


def test_the_engines_own_call_that_does_not_fit_is_not_retried(context):
    class Order(Procedure):
        retry = EVERYTHING

        def execute(self, ctx): ...

    Order.execute = lambda self: None  # behind the back of the check
    outcome, _ = TypeRuntime.of_class(Order).run(Order(), context(), Mode.EXECUTE, None, None)

    assert (outcome.error.type_name, outcome.retryable) == ("TypeError", False)


@pytest.mark.parametrize(
    "raises",
    [
        lambda: int([]),
        lambda: len(1, 2),
        lambda: sorted(5),
        lambda: (_ for _ in ()).throw(TypeError("pay() missing 1")),
    ],
)
def test_any_other_type_error_is_the_policys_to_judge(context, raises):
    class Order(Procedure):
        retry = EVERYTHING

        def execute(self, ctx):
            raises()

    outcome, _ = TypeRuntime.of_class(Order).run(Order(), context(), Mode.EXECUTE, None, None)

    assert outcome.retryable


# ---------------------------------------------------------------- other mistakes of authors
def test_a_forgotten_dataclass_is_told_when_the_class_is_called():
    class Order(Procedure):
        item: str
        seen: list[str]
        count: int = 1

        def execute(self, ctx): ...

    class Below(Order): ...

    for cls in (Order, Below):
        for call in (lambda cls=cls: cls("book"), lambda cls=cls: cls(item="book")):
            with pytest.raises(
                TypeError,
                match=rf"{cls.__name__} takes no arguments: it annotates item, seen, count, but is no dataclass; write '@dataclass'",
            ):
                call()
    assert Order().count == 1
    assert dataclass(Order)("book", []).item == "book"


def test_a_class_without_annotations_says_what_python_says():
    class Order(Procedure):
        def execute(self, ctx): ...

    with pytest.raises(TypeError, match=r"Order\(\) takes no arguments"):
        Order("book")


def test_a_dataclass_forgotten_below_a_dataclass_is_told_at_registration():
    @dataclass
    class Order(Procedure):
        item: str

        def execute(self, ctx): ...

    class Gift(Order):
        note: str

    class Plain(Order):
        colour: str = "red"
        _cache: dict

    with pytest.raises(
        UsageError, match=r"annotates 'note', which is no field of it.*write '@dataclass' above 'class Gift'"
    ):
        TypeRuntime.of_class(Gift)
    TypeRuntime.of_class(Plain)


def test_a_procedure_function_is_no_method_and_takes_its_context_first():
    with pytest.raises(TypeError, match=r"not the method .*Shop\.charge; .*write 'def charge\(amount\)'"):

        class Shop:
            @procedure
            def charge(self, amount): ...

    for function in (
        lambda amount, ctx: None,
        lambda amount, *, ctx: None,
        lambda *, ctx: None,
    ):
        function.__name__ = "charge"
        with pytest.raises(TypeError, match=r"first parameter of the name ctx; write 'def charge\(ctx"):
            procedure(function)
    with pytest.raises(TypeError, match="first parameter of the name ctx"):

        @procedure
        def send(context: Context, path): ...  # noqa: F821 - as a type checker reads it


def test_a_procedure_function_may_stand_in_a_class_as_in_a_module():
    class Images:
        @procedure
        def resize(path, width=3): ...  # noqa: N805

        @staticmethod
        @procedure
        def crop(path): ...

    assert repr(Images.resize("p")) == repr(Images().resize("p"))
    assert Images().crop("p").path == "p"


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: LockKey("a"), r"write LockKey\.read\('a/b'\) or LockKey\.write\('a/b'\)"),
        (lambda: LockKey(path="a"), r"write LockKey\.read\('a/b'\)"),
        (
            lambda: RetryPolicy(max_retries=3),
            r"RetryPolicy has no option 'max_retries'; write RetryPolicy\(max_attempts=4\)",
        ),
        (lambda: RetryPolicy(retries=0), r"write RetryPolicy\(max_attempts=1\)"),
        (lambda: RetryPolicy(attempts=5), r"write RetryPolicy\(max_attempts=5\)"),
        (lambda: RetryPolicy(max_attempt=5), r"write RetryPolicy\(max_attempts=5\)"),
        (lambda: RetryPolicy(delay=5), r"write RetryPolicy\(base=…\)"),
        (lambda: RetryPolicy(backoff=5), r"write RetryPolicy\(factor=…\)"),
        (lambda: RetryPolicy(exceptions=(OSError,)), r"write RetryPolicy\(retry_on=…\)"),
        (lambda: RetryPolicy(colour=5), r"RetryPolicy has no option 'colour'; its options are max_attempts, base"),
        (lambda: RetryPolicy(1, 2, 3, 4, 5, 6, (), (), 9), "its options are max_attempts"),
        (lambda: Limits(timeout=5), r"Limits has no option 'timeout'; write Limits\(wall_time=…\)"),
        (lambda: Limits(max_memory=5), r"write Limits\(memory=…\)"),
        (lambda: Limits(wall_tim=5), r"write Limits\(wall_time=…\)"),
    ],
)
def test_a_wrong_call_says_what_to_write(make, said):
    with pytest.raises(TypeError, match=said):
        make()
