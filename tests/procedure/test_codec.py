"""The data codec gives back what it was given, or refuses with a place."""

from __future__ import annotations

import contextlib
import functools
import math
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta, timezone, tzinfo
from decimal import Decimal
from enum import Enum, IntEnum, IntFlag, StrEnum
from fractions import Fraction
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any, NamedTuple
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given, strategies as st

from actorproc.errors import StateNotEncodable, StateTooLarge, ValueNotDecodable
from actorproc.procedure.values.codec import MAX_DEPTH, MAX_STATE, PLAIN, DataCodec
from actorproc.procedure.values.fields import declared_fields


class Color(Enum):
    RED = 1
    BLUE = (2, "blue")


class Name(StrEnum):
    A = "a"


class Level(IntEnum):
    LOW = 1


class Rights(IntFlag):
    READ = 1
    WRITE = 2


@dataclass(frozen=True)
class Item:
    price: Any
    tags: list[str] = field(default_factory=list)


@dataclass(slots=True)
class Slotted:
    value: Any


class Row(msgspec.Struct, frozen=True):
    key: str
    value: Any = None


class Point(NamedTuple):
    x: int
    y: int


CLASSES = (Color, Name, Level, Rights, Item, Slotted, Row, Point)
CODEC = DataCodec("Order", CLASSES)


def exactly_equal(one: Any, two: Any) -> bool:
    """Equal, of the same types all the way down, and with NaN equal to NaN."""
    if type(one) is not type(two):
        return False
    if isinstance(one, float):
        return math.copysign(1, one) == math.copysign(1, two) and (one == two or (math.isnan(one) and math.isnan(two)))
    if isinstance(one, complex):
        return exactly_equal(one.real, two.real) and exactly_equal(one.imag, two.imag)
    if isinstance(one, Decimal):
        return one.as_tuple() == two.as_tuple()
    if isinstance(one, dict):
        pairs = zip(one.items(), two.items(), strict=True)
        return len(one) == len(two) and all(exactly_equal(a, b) and exactly_equal(c, d) for (a, c), (b, d) in pairs)
    if isinstance(one, list | tuple | deque):
        return len(one) == len(two) and all(exactly_equal(a, b) for a, b in zip(one, two, strict=True))
    if isinstance(one, datetime | time):
        return (
            one.replace(tzinfo=None) == two.replace(tzinfo=None) and one.fold == two.fold and one.tzinfo == two.tzinfo
        )
    if isinstance(one, Item | Slotted | Row):
        names = declared_fields(type(one))
        return all(exactly_equal(getattr(one, name), getattr(two, name)) for name in names)
    return bool(one == two)


# Text may hold lone surrogates: os.fsdecode makes them.
TEXT = st.text(st.characters(exclude_categories=()), max_size=8)
ZONES = st.none() | st.just(UTC) | st.just(ZoneInfo("Europe/Berlin")) | st.just(timezone(timedelta(hours=-3), "x"))
HASHABLE = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(min_value=-(2**200), max_value=2**200)
    | st.floats(allow_nan=False)
    | TEXT
    | st.binary(max_size=8)
    | st.complex_numbers(allow_nan=False)
    | st.dates()
    | st.datetimes(timezones=ZONES)
    | st.times()
    | st.timedeltas()
    | st.uuids()
    | st.decimals(allow_nan=False)
    | st.fractions()
    | st.sampled_from([*Color, *Name, *Level, Rights.READ | Rights.WRITE, Path("a/b"), PureWindowsPath("c:/d")]),
    lambda inner: st.tuples(inner, inner) | st.frozensets(inner, max_size=3) | st.builds(Row, TEXT, inner),
    max_leaves=6,
)
VALUES = st.recursive(
    HASHABLE | st.floats() | st.complex_numbers() | st.binary(max_size=4).map(bytearray),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(HASHABLE, inner, max_size=4)
        | st.dictionaries(TEXT, inner, max_size=4)
        | st.sets(HASHABLE, max_size=4)
        | st.builds(Item, inner)
        | st.builds(Slotted, inner)
        | st.lists(inner, max_size=3).map(tuple)
        | st.lists(inner, max_size=3).map(deque)
    ),
    max_leaves=12,
)


@given(VALUES)
def test_every_value_comes_back_as_exactly_what_it_was(value):
    encoded = CODEC.encode(value)

    assert exactly_equal(CODEC.decode(encoded), value)


@given(VALUES)
def test_what_came_back_has_the_same_bytes(value):
    encoded = CODEC.encode(value)

    assert CODEC.encode(CODEC.decode(encoded)) == encoded


@given(st.lists(HASHABLE, max_size=6, unique=True), st.randoms())
def test_equal_sets_have_equal_bytes_however_they_were_built(members, chance):
    shuffled = list(members)
    chance.shuffle(shuffled)
    other = set()
    for member in [*shuffled, *range(50)]:
        other.add(member)
    other -= set(range(50)) - set(members)

    one, two = set(members), other

    if one == two and {(type(m), m) for m in one} == {(type(m), m) for m in two}:
        assert CODEC.encode(one) == CODEC.encode(two) or any(repr(a) != repr(b) for a in one for b in two if a == b), (
            "only members that are equal and yet different (0.0 and -0.0) may differ"
        )


@pytest.mark.parametrize(
    "value",
    [
        2**63,
        2**64,
        -(2**63) - 1,
        10**300,
        float("inf"),
        -0.0,
        "\ud800 lone",
        {"\udcff": 1},
        (1, (2, [3, (4,)])),
        {1: "a", (2, 3): "b", None: "c", b"k": 1.5},
        OrderedDict([("b", 1), ("a", 2)]),
        deque([1, 2], maxlen=3),
        datetime(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Berlin"), fold=1),
        datetime(2024, 1, 1, tzinfo=timezone(timedelta(seconds=3601, microseconds=5))),
        time(1, 2, 3, 4, tzinfo=UTC),
        date(1, 1, 1),
        timedelta(days=-1, microseconds=1),
        Decimal("1.10"),
        Decimal("sNaN12"),
        Fraction(10**30, 7),
        UUID(int=5),
        Path("/tmp/\udcff"),
        PurePosixPath("a"),
        Color.BLUE,
        Rights(0),
        Item(Decimal(1), ["x"]),
        [Point(1, 2), Row("k", {1, 2})],
        bytearray(b"xy"),
    ],
)
def test_awkward_values_come_back_as_they_were(value):
    assert exactly_equal(CODEC.decode(CODEC.encode(value)), value)


def test_an_undecorated_object_is_refused_with_class_field_and_index():
    class Money:
        pass

    with pytest.raises(StateNotEncodable, match=r"Order\.items\[3\]\.price: .*Money"):
        CODEC.encode([1, 2, 3, Item(Money())], "Order.items")


class SubInt(int):
    pass


class OddZone(tzinfo):
    def utcoffset(self, when):
        return timedelta(0)


@pytest.mark.parametrize("value", [SubInt(3), object(), lambda: 1, OddZone, datetime(2024, 1, 1, tzinfo=OddZone())])
def test_what_would_come_back_as_something_else_is_refused(value):
    with pytest.raises(StateNotEncodable):
        CODEC.encode({"x": value})


def test_a_class_beyond_the_type_hints_is_refused_when_written_and_when_read():
    encoded = CODEC.encode(Color.RED)

    with pytest.raises(StateNotEncodable, match="uses"):
        PLAIN.encode(Color.RED)
    with pytest.raises(ValueNotDecodable, match="Color"):
        PLAIN.decode(encoded)


def test_two_classes_of_one_name_are_refused_instead_of_mixed_up():
    def made():
        class Same(Enum):
            A = 1

        return Same

    one, two = made(), made()

    with pytest.raises(StateNotEncodable, match="two classes"):
        DataCodec("P", [one, two]).encode(one.A)


@pytest.mark.parametrize("wrap", [list, tuple])
def test_a_value_that_contains_itself_is_refused(wrap):
    loop: list[Any] = []
    loop.append(wrap([loop]))

    with pytest.raises(StateNotEncodable):
        CODEC.encode(loop)


@pytest.mark.parametrize("key", ["a", 1])
def test_a_dict_that_contains_itself_is_refused_in_words(key):
    loop: dict[Any, Any] = {}
    loop[key] = loop

    with pytest.raises(StateNotEncodable, match="the value contains itself"):
        CODEC.encode(loop, "Order")


def test_an_attribute_of_a_value_that_is_no_field_is_refused_because_it_would_be_lost():
    @dataclass
    class Box:
        width: int

        @functools.cached_property
        def area(self):
            return self.width**2

    codec, box = DataCodec("Order", [Box]), Box(3)
    box._seen = box.area > 0

    assert codec.decode(codec.encode([box])) == [box]
    box.weight = 5
    with pytest.raises(StateNotEncodable, match=r"items\[0\]\.weight: it is no declared field of .*Box"):
        codec.encode([box], "items")


@pytest.mark.parametrize("held", [dict, list, str, int, tuple])
def test_a_value_that_is_a_container_with_fields_is_refused_because_its_contents_would_be_lost(held):
    cls = dataclass(type("Held", (held,), {"__annotations__": {"name": str}, "name": "x"}))

    with pytest.raises(StateNotEncodable, match=f"what it holds as a {held.__name__} would be lost"):
        DataCodec("Order", [cls]).encode(cls())


def test_a_named_tuple_comes_back_whatever_its_constructor_makes_of_what_it_is_given():
    class Span(NamedTuple("Span", [("first", int), ("last", int)])):
        __slots__ = ()

        def __new__(cls, text):
            return super().__new__(cls, *map(int, text.split("-")))

    codec = DataCodec("Order", [Span])

    assert exactly_equal(codec.decode(codec.encode(Span("3-5"))), Span("3-5"))


@pytest.mark.parametrize("wrap", [lambda v: [v], lambda v: {"a": v}, lambda v: (v,), Slotted])
def test_nesting_is_kept_to_the_limit_and_refused_beyond_it(wrap):
    def nested(levels):
        value = 1
        for _ in range(levels):
            value = wrap(value)
        return value

    kept = nested(MAX_DEPTH)

    assert exactly_equal(CODEC.decode(CODEC.encode(kept)), kept)
    with pytest.raises(StateNotEncodable, match=f"{MAX_DEPTH} levels"):
        CODEC.encode(nested(MAX_DEPTH + 1))


def test_the_same_object_in_two_places_is_no_cycle():
    shared = (1, 2)

    assert CODEC.decode(CODEC.encode([shared, shared])) == [shared, shared]


def test_a_value_longer_than_the_limit_is_refused_with_its_size():
    with pytest.raises(StateTooLarge, match=str(MAX_STATE)):
        CODEC.encode({"blob": b"x" * MAX_STATE}, "Order")


@given(st.binary(max_size=60))
def test_damaged_bytes_are_undecodable_and_nothing_else(data):
    with contextlib.suppress(ValueNotDecodable):
        CODEC.decode(data)


@pytest.mark.parametrize("slots", [False, True])
def test_a_field_that_was_added_with_a_default_has_it_in_older_values(slots):
    @dataclass
    class Older:
        price: Any

    @dataclass(slots=slots)
    class Newer:
        price: Any
        tags: list[str] = field(default_factory=list)
        count: int = 1

    for cls in (Older, Newer):
        cls.__module__, cls.__qualname__ = Item.__module__, Item.__qualname__
    written = DataCodec("Order", [Older]).encode([Older(5), Older(6)])

    first, second = DataCodec("Order", [Newer]).decode(written)

    assert (first, second) == (Newer(5), Newer(6))
    assert first.tags is not second.tags


def test_a_stored_object_with_an_unknown_field_is_refused():
    @dataclass
    class Older:
        price: Any
        gone: int = 1

    Older.__module__, Older.__qualname__ = Item.__module__, Item.__qualname__
    written = DataCodec("Order", [Older]).encode(Older(1))

    with pytest.raises(ValueNotDecodable, match="gone"):
        CODEC.decode(written)
