"""Texts of searchable fields: equal values have the same text, different ones another, and each can be kept."""

from __future__ import annotations

import enum
import itertools
from datetime import UTC, date, datetime
from decimal import Decimal
from uuid import UUID

import pytest

from actorproc.support.search_texts import search_text, search_texts, values_in


class Colour(enum.Enum):
    RED = "red"
    ONE = 1
    DAY = date(2026, 1, 31)


class Word(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "another"


UID = UUID("12345678-1234-5678-1234-567812345678")
TEXTS = [
    (None, "f"),
    ("", "f="),
    ("a=b", "f=a=b"),
    (Word("a"), "f=a"),
    (42, "f=42"),
    (-(2**62), f"f={-(2**62)}"),
    (2**64 - 1, "f=18446744073709551615"),
    (2**70, f"f={2**70}"),
    (True, "f=true"),
    (False, "f=false"),
    (Colour.RED, "f=red"),
    (Colour.ONE, "f=1"),
    (Colour.DAY, "f=2026-01-31"),
    (enum.IntEnum("N", {"A": 7}).A, "f=7"),
    (UID, f"f={UID}"),
    (date(2026, 1, 31), "f=2026-01-31"),
    ("x" * 254, "f=" + "x" * 254),
]


@pytest.mark.parametrize(("value", "text"), TEXTS)
def test_a_value_has_one_text(value: object, text: str) -> None:
    assert search_text("f", value) == text


def test_a_long_value_has_a_hash_that_no_short_one_has() -> None:
    values = ["x" * 255, "x" * 256, "y" * 255, "é" * 128, "x" * 10_000_000, 10**5000, -(10**5000)]
    found = [search_text("f", value) for value in values]

    assert len(set(found)) == len(found)
    assert all(len(text.encode()) < 100 and text.startswith("f#") for text in found[:-2])
    assert not {text for _, text in TEXTS} & set(found)
    assert search_text("f", "x" * 255) == found[0]


@pytest.mark.parametrize("value", [2**63 - 1, 2**63, 2**64 - 1, -(2**64), 10**600, -(10**600)])
def test_a_number_of_any_size_is_found_by_its_digits_as_well(value: int) -> None:
    assert search_text("f", value) == search_text("f", str(value))


@pytest.mark.parametrize("value", ["\ud800", "a\udfff", "\udce9 of a file name", "x" * 300 + "\ud800"])
def test_a_text_that_no_row_can_hold_has_a_hash(value: str) -> None:
    text = search_text("f", value)

    assert text.encode().startswith(b"f#")
    assert text not in {search_text("f", other) for other in (value[:-1], value + "\ud800", "\ufffd", "?")}


def test_texts_of_different_fields_and_values_differ() -> None:
    values = ["", "=", "#", "a", "a=b", None, 0, 1, True, "x" * 300]
    for (one, a), (other, b) in itertools.combinations(itertools.product(["f", "ff", "f_"], values), 2):
        assert (search_text(one, a) == search_text(other, b)) == (one == other and a == b and type(a) is type(b))


@pytest.mark.parametrize(
    "value", [1.5, Decimal(1), datetime(2026, 1, 31, tzinfo=UTC), b"a", [], {}, object(), enum.Enum("E", {"A": 1.5}).A]
)
def test_what_is_not_searched_for_is_refused_in_words(value: object) -> None:
    with pytest.raises(TypeError, match="is nothing that a list is searched for: that is text, a whole number"):
        search_texts({"f": value})


@pytest.mark.parametrize("name", ["", "a b", "a=b", 7, "1a"])
def test_a_field_is_named_as_it_is_declared(name: object) -> None:
    with pytest.raises(ValueError, match="names fields as they are declared"):
        search_texts({name: 1})  # type: ignore[dict-item]


def test_a_command_line_says_values_as_texts() -> None:
    assert values_in(["a=1", "b=", "c", "d=x=y"]) == {"a": "1", "b": "", "c": None, "d": "x=y"}
    assert search_texts(values_in(["a=1", "c"])) == search_texts({"a": 1, "c": None})
    with pytest.raises(ValueError, match="names the field 'a' twice"):
        values_in(["a=1", "a=2"])
