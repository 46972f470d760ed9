"""A saga is a dataclass as soon as its class is made: options stand in the class line, a decorator comes too late."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, fields

import pytest

from actorproc import Saga, UsageError, step
from actorproc.procedure.runtime.engine_side import TypeRuntime


class Named(Saga, kw_only=True):
    discount: float = 0.0
    item: str

    @step
    def only(self, ctx):
        return self.item


class Fixed(Saga, frozen=True, order=True):
    item: str

    @step
    def only(self, ctx):
        return self.item


class Grown(Fixed):
    more: int = 1


def _stored_and_loaded(saga):
    runtime = TypeRuntime.of_class(type(saga))
    new = runtime.describe(saga)
    return runtime.load(new.state, new.codec, new.version)


def test_fields_may_be_given_by_name_only():
    assert Named(item="book") == Named(item="book", discount=0.0)
    with pytest.raises(TypeError):
        Named(0.5, "book")
    assert TypeRuntime.of_class(Named).describe(Named(item="book")).type_name.endswith("Named")


def test_a_saga_may_be_frozen_and_compared_and_what_is_derived_of_it_is_frozen_too():
    assert Fixed("a") < Fixed("b")
    for frozen in (Fixed("a"), Grown("a")):
        with pytest.raises(FrozenInstanceError):
            frozen.item = "b"
    assert _stored_and_loaded(Grown("a", 2)).more == 2


def test_what_is_no_option_of_a_dataclass_is_refused():
    with pytest.raises(TypeError, match="keyword"):

        class Wrong(Saga, colour="red"):
            pass


def test_a_decorator_that_changes_nothing_is_harmless():
    @dataclass
    class Order(Saga):
        item: str
        seen: list[str] = field(default_factory=list)

        @step
        def only(self, ctx): ...

    assert [one.name for one in fields(Order)] == ["item", "seen"]
    assert TypeRuntime.of_class(Order).describe(Order("book")).digest


@pytest.mark.parametrize("options", [{"kw_only": True}, {"frozen": True}, {"eq": False}, {"order": True}])
def test_a_decorator_that_comes_too_late_for_what_it_says_is_refused_in_words(options):
    @dataclass(**options)
    class Order(Saga):
        item: str

        @step
        def only(self, ctx): ...

    with pytest.raises(UsageError, match=r"comes too late .* class Order\(Saga, kw_only=True\)"):
        TypeRuntime.of_class(Order)


def test_a_decorator_for_which_a_field_is_an_argument_again_is_refused():
    @dataclass
    class Order(Saga):
        item: str
        total: int = field(init=False)

        @step
        def only(self, ctx): ...

    with pytest.raises(UsageError, match="comes too late"):
        TypeRuntime.of_class(Order)


def test_without_the_decorator_a_field_may_be_set_later():
    class Order(Saga):
        item: str
        total: int = field(init=False)

        @step
        def only(self, ctx): ...

    order = Order("book")
    order.total = 3

    assert _stored_and_loaded(order).total == 3
