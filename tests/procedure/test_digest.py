"""Equal initial states are the same submit, whatever order their mappings were filled in."""

from __future__ import annotations

import sys
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given, strategies as st

from actorproc import Procedure, Saga, StateMachineProcedure, procedure, step
from actorproc.procedure.runtime.engine_side import TypeRuntime
from tests.procedure.test_procedure_classes import Grade


@dataclass(frozen=True)
class Point:
    where: Any


@dataclass
class Job(Procedure):
    what: Any
    point: Point | None = None

    def execute(self, ctx): ...


class Order(Saga):
    what: Any

    @step
    def only(self, ctx): ...


@dataclass
class Machine(StateMachineProcedure):
    what: Any
    initial_state = Grade.GOOD

    def execute_from_state(self, ctx, state): ...


class Plain(Procedure):
    def __init__(self, **attributes: Any) -> None:
        for name, value in attributes.items():
            setattr(self, name, value)

    def execute(self, ctx): ...


@procedure
def send(address: str, **more: Any) -> None: ...


def digest(subject: Procedure) -> bytes:
    return TypeRuntime.of_class(type(subject)).describe(subject).digest


@pytest.mark.parametrize("make", [Job, Order, Machine, lambda what: Job(1, Point(what)), lambda what: Plain(what=what)])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ([{"a": 1, "b": {"c": 1, "d": 2}}], [{"b": {"d": 2, "c": 1}, "a": 1}]),
        ({1: "x", (2,): "y"}, {(2,): "y", 1: "x"}),
        (({"a": 1, 2: {"x": 0, "y": 0}},), ({2: {"y": 0, "x": 0}, "a": 1},)),
    ],
)
def test_equal_mappings_make_the_same_submit(make, one, other):
    assert make(one) == make(other) or make is not Job
    assert digest(make(one)) == digest(make(other))


def test_attributes_and_arguments_may_come_in_any_order():
    assert digest(Plain(one=1, two=2)) == digest(Plain(two=2, one=1))
    assert digest(send("x", one=1, two=2)) == digest(send("x", two=2, one=1))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"a": 1, "b": 2}, {"a": 2, "b": 1}),
        ({"a": 1, "b": [1, 2]}, {"a": 1, "b": [2, 1]}),
        ({1: "x", 2: "y"}, {1: "y", 2: "x"}),
        (OrderedDict(a=1, b=2), OrderedDict(b=2, a=1)),
        ({"a": 1, "b": 2}, OrderedDict(a=1, b=2)),
    ],
)
@pytest.mark.parametrize("make", [Job, Order, lambda what: Plain(what=what, more=1)])
def test_other_values_make_another_submit(make, one, other):
    assert digest(make(one)) != digest(make(other))


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(0, 300) | st.text(max_size=3) | st.binary(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(max_size=2) | st.integers(0, 3), inner, max_size=4)
        | st.tuples(inner, inner)
    ),
    max_leaves=12,
)


def turned_round(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: turned_round(item) for key, item in reversed(value.items())}
    if isinstance(value, list | tuple):
        return type(value)(map(turned_round, value))
    return value


@given(_VALUES)
def test_any_state_is_the_same_with_its_mappings_turned_round(value):
    one, other = Job(value), Job(turned_round(value))
    runtime = TypeRuntime.of_class(Job)

    assert digest(one) == digest(other)
    # What is stored keeps the order that it was given in.
    back = runtime.load(runtime.describe(other).state, "data", 1)
    assert repr(back) == repr(other)


@pytest.mark.parametrize("value", [None, True, 3, -(2**63), 2**64 - 1, 1.5, "text", b"bytes", "ä" * 300])
def test_a_state_of_plain_values_has_the_digest_that_it_has_with_its_mappings_sorted(value, monkeypatch):
    at_once = digest(Job(value))
    monkeypatch.setattr(sys.modules["actorproc.procedure.encoding.digest"], "SCALARS", frozenset())

    assert digest(Job(value)) == at_once
