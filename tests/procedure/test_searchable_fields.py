"""The option `searchable`: which fields a class may name, and which it may not."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from datetime import date, datetime
from typing import Annotated, Any, Literal, NewType
from uuid import UUID

import pytest

from actorproc import Procedure, Saga, Secret, StateMachineProcedure, StateNotEncodable, Status, UsageError, step
from actorproc.procedure.declaring.searchable import texts_of
from actorproc.procedure.runtime.type_runtime import TypeRuntime

CustomerId = NewType("CustomerId", int)


class Level(enum.StrEnum):
    HIGH = "high"


class Odd(enum.Enum):
    HALF = 0.5


class Order(Saga, searchable=("customer", "level", "day", "key", "kind", "paid", "note", "mail")):
    customer: CustomerId
    level: Level = Level.HIGH
    day: date = date(2026, 1, 31)
    key: UUID = UUID(int=0)
    kind: Literal["a", 7] = "a"
    paid: bool = False
    note: Annotated[str, "a mark"] | None = None
    mail: str | None = None
    rest: float = 0.5

    @step
    def only(self, ctx):
        pass


def test_a_submit_has_the_texts_of_the_first_state():
    described = TypeRuntime.of_class(Order).describe(Order(CustomerId(42), mail="a@b"))

    assert described.searchable == (
        "customer=42",
        "level=high",
        "day=2026-01-31",
        "key=00000000-0000-0000-0000-000000000000",
        "kind=a",
        "paid=false",
        "note",
        "mail=a@b",
    )


def test_a_class_without_the_option_has_none():
    class Plain(Saga):
        customer: int

        @step
        def only(self, ctx):
            pass

    assert TypeRuntime.of_class(Plain).describe(Plain(1)).searchable == ()


def test_a_subclass_says_its_own_and_a_field_may_have_the_name_of_the_option():
    class More(Order, searchable=("customer",)):
        pass

    class Named(Saga, searchable=("searchable",)):
        searchable: str

        @step
        def only(self, ctx):
            pass

    assert TypeRuntime.of_class(More).describe(More(1)).searchable == ("customer=1",)
    assert TypeRuntime.of_class(Named).describe(Named("yes")).searchable == ("searchable=yes",)


def test_a_machine_and_a_plain_procedure_have_searchable_fields():
    @dataclass
    class Machine(StateMachineProcedure, searchable=("count",)):
        count: int = 3
        initial = "begin"

        def execute_state(self, ctx, state):
            return Status.done()

        class States(enum.Enum):
            BEGIN = "begin"

    @dataclass
    class Plain(Procedure):
        searchable = ("count",)
        count: int = 4

        def execute(self, ctx):
            return Status.done()

    assert texts_of(Machine(), ("count",)) == ("count=3",)
    assert TypeRuntime.of_class(Plain).describe(Plain()).searchable == ("count=4",)


@dataclass
class _Base(Procedure):
    text: str = ""
    number: float = 0.5
    at: datetime = datetime(2026, 1, 1)  # noqa: DTZ001 - it is only declared
    items: list[str] = field(default_factory=list)
    either: int | list[int] = 0
    odd: Odd = Odd.HALF
    anything: Any = None
    word: Annotated[str, Secret] = ""
    hidden: Secret[str] = field(default_factory=lambda: Secret(""))

    def execute(self, ctx):
        return Status.done()


@pytest.mark.parametrize(
    ("names", "says"),
    [
        ("text", "must be a tuple of names of fields, such as"),
        (["text"], "must be a tuple of names of fields, such as"),
        ((1,), "must be a tuple of names of fields, such as"),
        (("text", "text"), "it may have 16, each named once"),
        (tuple(f"f{n}" for n in range(17)), "has 17 searchable fields; it may have 16"),
        (("none",), "has the searchable field 'none', which it does not declare; its fields are text, number"),
        (("number",), "'number', which may hold float; one that is searched for is text"),
        (("at",), "'at', which may hold datetime"),
        (("items",), "'items', which may hold list"),
        (("either",), "'either', which may hold list"),
        (("odd",), "'odd', which may hold Odd"),
        (("anything",), "'anything', which may hold Any"),
        (("word",), "'word', which is secret: a search for its value would tell it"),
        (("hidden",), "'hidden', which is secret"),
    ],
)
def test_what_cannot_be_searched_for_is_refused_with_the_class(names, says):
    wrong = type("Wrong", (_Base,), {"searchable": names})

    with pytest.raises(UsageError, match=says):
        TypeRuntime.of_class(wrong)


def test_a_state_without_fields_cannot_be_searched():
    class Dumps(Procedure):
        searchable = ("a",)

        def dump(self):
            return b""

        def execute(self, ctx):
            return Status.done()

    class Undeclared(Procedure):
        searchable = ("a",)

        def execute(self, ctx):
            return Status.done()

    with pytest.raises(UsageError, match=r"overrides dump\(\), so its state has no fields"):
        TypeRuntime.of_class(Dumps)
    with pytest.raises(UsageError, match="declares no fields; write '@dataclass' above it"):
        TypeRuntime.of_class(Undeclared)


def test_a_value_that_its_hint_does_not_allow_is_refused_by_the_name_of_the_field():
    for value, kind in ((1.5, "float"), (b"hunter2", "bytes")):
        with pytest.raises(StateNotEncodable, match=r"Order\.customer is searchable, and a ") as caught:
            TypeRuntime.of_class(Order).describe(Order(value))
        assert f"a {kind} is nothing that a list is searched for: that is text" in str(caught.value)
        assert "hunter2" not in str(caught.value)
