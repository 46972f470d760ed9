"""Which classes a procedure's type hints reach, however they are written."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Generic, Literal, NewType, TypeVar

import pytest

from actorproc import Procedure, Status
from actorproc.errors import StateNotEncodable
from actorproc.procedure.runtime.engine_side import TypeRuntime

T = TypeVar("T")


class Mode(Enum):
    FAST = 1
    SAFE = 2


@dataclass
class Point:
    x: int
    y: int


Corner = NewType("Corner", Point)


class Ends(Procedure):
    def execute(self, ctx):
        return Status.done()


@dataclass
class OfLiteral(Ends):
    value: Literal[Mode.FAST, "x"]


@dataclass
class OfNewType(Ends):
    value: list[Corner] | None


@dataclass
class OfAnnotated(Ends):
    value: dict[str, Annotated[Point, "where it stands"]]


@dataclass
class OfAnything(Ends, Generic[T]):
    value: T


class OfPoints(OfAnything[Point]):
    pass


@dataclass
class Pair(Generic[T]):
    one: T
    two: T


class Corners(Pair[Point]):
    pass


@dataclass
class OfCorners(Ends):
    value: Corners


def there_and_back(procedure: Any) -> Any:
    runtime = TypeRuntime.of_class(type(procedure))
    stored = runtime.describe(procedure)
    return runtime.load(stored.state, stored.codec, stored.version, stored.id)


@pytest.mark.parametrize(
    "procedure",
    [
        OfLiteral(Mode.FAST),
        OfNewType([Corner(Point(1, 2))]),
        OfAnnotated({"a": Point(1, 2)}),
        OfPoints(Point(1, 2)),
        OfCorners(Corners(Point(1, 2), Point(3, 4))),
    ],
    ids=lambda procedure: type(procedure).__name__,
)
def test_a_class_that_a_hint_names_in_a_roundabout_way_is_kept(procedure):
    assert there_and_back(procedure).value == procedure.value


@pytest.mark.skipif(sys.version_info < (3, 12), reason="names of types came with Python 3.12")
def test_names_of_types_are_looked_through_also_those_with_themselves_in_them():
    scope: dict[str, Any] = {"__name__": __name__, "Point": Point, "Mode": Mode, "Ends": Ends, "dataclass": dataclass}
    text = """
type Shape = Point | Mode
type Nested = list[Nested] | Point
type Box[T] = list[T] | dict[str, Box[T]]
type Later = list[NotThereYet]

@dataclass
class OfNames(Ends):
    value: Shape
    nested: Nested
    box: Box[Mode]
    later: Later
"""
    exec(compile(text, "names", "exec", dont_inherit=True), scope)
    made = scope["OfNames"](Mode.SAFE, [[Point(1, 2)]], {"a": [Mode.FAST]}, [1])

    assert vars(there_and_back(made)) == vars(made)


def test_a_class_of_a_function_that_a_hint_as_text_does_not_find_is_refused_with_what_to_do():
    class Kind(Enum):
        ONE = 1

    @dataclass
    class Local(Ends):
        kind: Kind = Kind.ONE

    @dataclass
    class Named(Local):
        uses = (Kind,)

    with pytest.raises(StateNotEncodable, match=r"does not find a class of a function: name that one in `uses`"):
        there_and_back(Local())
    assert there_and_back(Named()) == Named()
