"""Attributes that are no declared fields: they would not be stored, so they are refused."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field

import pytest

from actorproc import Procedure, Status
from actorproc.errors import StateNotEncodable
from actorproc.procedure.encoding.state import StateFormat


@dataclass
class Counted(Procedure):
    number: int
    fixed: int = field(default=7, init=False)

    def execute(self, ctx):
        return Status.done()

    @functools.cached_property
    def doubled(self):
        return 2 * self.number


def dumped(procedure):
    return StateFormat(Counted).values(procedure)


@pytest.mark.parametrize("is_set", [True, False], ids=["with all fields", "with only a default"])
def test_an_undeclared_attribute_is_refused_also_beside_a_field_with_only_a_default(is_set):
    procedure = Counted(1)
    if is_set:
        procedure.fixed = 7
    assert dumped(procedure) == {"number": 1, "fixed": 7}

    procedure.extra = 5
    with pytest.raises(StateNotEncodable, match=r"Counted\.extra was set but is not a declared field"):
        dumped(procedure)


@pytest.mark.parametrize("is_set", [True, False], ids=["with all fields", "with only a default"])
def test_private_attributes_and_cached_properties_are_left_out(is_set):
    procedure = Counted(1)
    if is_set:
        procedure.fixed = 7
    procedure._key = b"key"
    assert procedure.doubled == 2

    assert dumped(procedure) == {"number": 1, "fixed": 7}
