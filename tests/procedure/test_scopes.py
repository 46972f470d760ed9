"""Globals of programs in a worker: few are kept, and marks tell what changed."""

import functools

import pytest

from actorproc.procedure.shipping import script_globals
from actorproc.procedure.shipping.by_value import _Sending
from actorproc.procedure.shipping.value_marks import marks_of


def mark_of(value):
    return marks_of({"value": value}, _Sending.dispatch_table)["value"]


def made(start):
    total = [start]
    return lambda: total


class Plain:
    def __init__(self, value):
        self.value = value


def test_a_worker_keeps_the_globals_of_the_modules_used_last():
    first = script_globals.globals_of(("program", "first"), {"__name__": "first"})
    for number in range(script_globals._MOST):
        script_globals.globals_of(("program", f"module {number}"), {})
        assert script_globals.globals_of(("program", "first"), {}) is first
    second = script_globals.globals_of(("program", "module 0"), {"fresh": True})

    assert second == {"fresh": True}
    assert len(script_globals._here._scopes) == len(script_globals._here._by_place) == script_globals._MOST


@pytest.mark.parametrize(
    "make",
    [
        lambda: 5,
        lambda: "x" * 1000,
        lambda: {"a": [1, {2, 3}], "b": (None, 1.5)},
        lambda: Plain({"a": 1}),
        lambda: bytearray(b"x" * 100_000),
        lambda: {Plain: made, "module": functools},
    ],
)
def test_what_would_be_sent_alike_has_the_same_mark(make):
    assert mark_of(make()) == mark_of(make()) is not None
    assert len(mark_of(make())) <= 17


FIRST = made(1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        ("1", b"1"),
        ({"a": 1}, {"a": 2}),
        (Plain(1), Plain(2)),
        (made(1), made(2)),
        (lambda a=1: a, lambda a=2: a),
        (lambda: 1, lambda: 1),
        (FIRST, functools.wraps(FIRST)(made(1))),
        (type("Plain", (), {}), type("Plain", (), {})),
        ([type("Plain", (), {})], [type("Plain", (), {})]),
        (bytearray(b"x" * 100_000), bytearray(b"x" * 99_999 + b"y")),
        (functools.lru_cache(FIRST), functools.lru_cache(made(2))),
    ],
)
def test_what_would_be_sent_otherwise_has_another_mark(one, other):
    assert mark_of(one) != mark_of(other)


def test_what_cannot_be_marked_counts_as_changed():
    generator = (number for number in range(3))
    marks = marks_of({"generator": generator}, _Sending.dispatch_table)
    known = {}

    assert marks == {"generator": None}
    for _ in range(2):
        assert script_globals.news(known, {"generator": generator}, marks) == {"generator": generator}
