"""Stored bytes as trees for people: no classes, no secrets, no unpickling, and bounds whatever the bytes are."""

from __future__ import annotations

import collections
import datetime as dt
import decimal
import enum
import json
import os
import pickle
import random
import uuid
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from actorproc.procedure.encoding.value_codec import ValueCodec
from actorproc.procedure.values.codec import DataCodec
from actorproc.procedure.values.secrets.secret import Secret
from actorproc.procedure.values.viewing import (
    MOST_ITEMS,
    MOST_TEXT,
    differences,
    lines_of,
    viewed,
    viewed_pickle,
    viewed_state,
)


@dataclass
class Point:
    x: int
    tags: list[str]


class Colour(enum.Enum):
    RED = 1


CODEC = DataCodec("tests", (Point, Colour))


def shown(value):
    return viewed(CODEC.encode(value))


@pytest.mark.parametrize(
    ("value", "type_name", "text"),
    [
        (None, "None", "None"),
        (True, "bool", "True"),
        (2**100, "int", str(2**100)),
        (float("inf"), "float", "inf"),
        ("a\nb", "str", "'a\\nb'"),
        ("\ud800", "str", "'\\ud800'"),
        (b"ab", "bytes", "b'ab'"),
        (dt.date(2026, 11, 27), "date", "2026-11-27"),
        (dt.datetime(2026, 11, 27, 1, 2, tzinfo=dt.UTC), "datetime", "2026-11-27 01:02:00+00:00"),
        (dt.timedelta(days=3), "timedelta", "3 days, 0:00:00"),
        (decimal.Decimal("1.50"), "Decimal", "1.50"),
        (uuid.UUID(int=7), "UUID", "00000000-0000-0000-0000-000000000007"),
        (Path("/a/b"), "Path", "/a/b"),
        (1 + 2j, "complex", "(1+2j)"),
        (range(2**70), "range", f"range(0, {2**70}, 1)"),
        (Colour.RED, "tests.procedure.test_viewing:Colour", "Colour.RED"),
        (np.float32(1.5), "numpy.float32", "1.5"),
        (np.int16(-4), "numpy.int16", "-4"),
        (np.arange(12.0).reshape(3, 4), "numpy.ndarray", "array of float64, 3 × 4, 96 B"),
        (np.zeros(2, dtype=[("a", "<i4")]), "numpy.ndarray", "array of records of a, 2, 8 B"),
        (Secret("hunter2"), "secret", "**********"),
    ],
)
def test_leaves_have_a_type_and_a_text(value, type_name, text):
    found = shown(value)

    assert (found.type, found.text) == (type_name, text)
    json.dumps(found.plain(), allow_nan=False)


@pytest.mark.parametrize(
    ("value", "inline", "plain"),
    [
        ([1, "a"], "[1, 'a']", [1, "a"]),
        ((1, 2), "(1, 2)", {"$type": "tuple", "items": [1, 2]}),
        ((1,), "(1,)", {"$type": "tuple", "items": [1]}),
        ({"a": [1]}, "{a: [1]}", {"a": [1]}),
        ({(1, 2): 3}, "{(1, 2): 3}", {"$type": "dict", "(1, 2)": 3}),
        ({3}, "{3}", {"$type": "set", "items": [3]}),
        (collections.Counter("aab"), "Counter(a=2, b=1)", {"$type": "Counter", "a": 2, "b": 1}),
        (collections.deque([1]), "[1]", {"$type": "deque", "items": [1]}),
        (
            Point(1, ["a"]),
            "Point(x=1, tags=['a'])",
            {"$type": "tests.procedure.test_viewing:Point", "x": 1, "tags": ["a"]},
        ),
        ([], "[]", []),
        ({}, "{}", {}),
    ],
)
def test_containers_have_names_and_values(value, inline, plain):
    found = shown(value)

    assert found.inline() == inline
    assert found.plain() == plain or (isinstance(value, dict) and found.plain() == {"(1, 2)": 3})


def test_secrets_are_masked_wherever_they_are():
    found = shown({"a": [Secret("hunter2")], "b": (Secret({"c": "hunter2"}),), "d": {Secret("hunter2"): 1}})

    for text in (found.inline(), "".join(lines_of(found)), json.dumps(found.plain()), repr(found)):
        assert "hunter2" not in text


class Bomb:
    def __reduce__(self):
        return (os.mkdir, ("exploded",))


def test_pickles_are_told_by_size_and_names_and_never_loaded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    body = pickle.dumps({"bomb": Bomb(), "point": Point(1, [])})
    note = ValueCodec(CODEC, b"k" * 32, pickles=True).encode({"bomb": Bomb()}, "note", "note of x")

    for found in (viewed_pickle(body), viewed_pickle(b"s" * 40 + body), viewed(note)):
        assert found.type == "pickle"
        assert "mkdir" in found.text
        assert "not loaded" in found.text
    assert list(tmp_path.iterdir()) == []


def test_the_place_of_a_saga_is_told_beside_its_fields():
    position = DataCodec("x").encode([["reserve", 1], []])
    place, fields = viewed_state(b"\x92" + position + CODEC.encode({"n": 1}))

    assert place == "reserve"
    assert fields.plain() == {"n": 1}


def test_long_values_are_cut_and_say_so():
    many = shown(list(range(1000)))
    text = shown("x" * 1_000_000)
    deep: list = []
    for _ in range(90):
        deep = [deep]
    wide = shown([["y" * 5000] * 50] * 50)

    assert (len(many.items), many.omitted) == (MOST_ITEMS, 1000 - MOST_ITEMS)
    assert many.plain()[-1] == {"$omitted": 800}
    assert "1000000 characters" in text.text
    assert "…" in shown(deep).inline()
    assert len(json.dumps(wide.plain())) < 3 * MOST_TEXT


def test_two_trees_differ_where_their_values_do():
    before = shown({"n": 1, "point": Point(1, ["a"]), "gone": 1})
    after = shown({"n": 2, "point": Point(1, ["a", "b"]), "new": None})

    assert list(differences(before, after)) == [
        ("n", "1", "2"),
        ("point.tags[1]", None, "'b'"),
        ("gone", "1", None),
        ("new", None, "None"),
    ]
    assert list(differences(before, before)) == []


def test_any_bytes_are_shown_as_something():
    dice = random.Random(1)
    whole = CODEC.encode({"a": [1, (2, 3), Point(1, ["x"])], "s": Secret("hunter2"), "n": np.arange(3), "z": {1, 2}})
    samples = [dice.randbytes(dice.randrange(60)) for _ in range(2000)]
    for _ in range(2000):
        damaged = bytearray(whole)
        damaged[dice.randrange(len(damaged))] = dice.randrange(256)
        samples.append(bytes(damaged[: dice.randrange(1, len(damaged) + 1)]))
    samples += [b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"plain text"]

    for data in samples:
        for codec in ("data", "pickle", "later"):
            _, found = viewed_state(data, codec)
            json.dumps(found.plain(), allow_nan=False)
            "\n".join(lines_of(found)).encode("utf-8", "backslashreplace")
