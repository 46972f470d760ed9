"""What `submit_many` takes, and the handles that it gives."""

from __future__ import annotations

import copy
import pickle
import weakref
from dataclasses import dataclass

import pytest

from actorproc import Procedure, ProcedureManager, Status
from tests.kit.procedures import Part


@dataclass
class NotKnownYet(Procedure):
    def execute(self, ctx):
        return Status.done()


class Bar:
    """A bar of progress around an iterable: its length is that of the iterable, which may have none."""

    def __init__(self, content, length):
        self.content = content
        self.length = length

    def __iter__(self):
        return iter(self.content)

    def __len__(self):
        if isinstance(self.length, Exception):
            raise self.length
        return self.length


@pytest.fixture
def manager(tmp_path):
    with ProcedureManager(tmp_path / "store", procedures=[Part], workers=1) as made:
        yield made


@pytest.mark.parametrize("length", [None, TypeError("it has no length"), RuntimeError("nor will it ever"), 3, 10**9])
def test_it_takes_whatever_can_be_gone_through(manager, length):
    handles = manager.submit_many(Bar([Part(number) for number in range(3)], length))

    assert [handle.result(60) for handle in handles] == [0, 1, 2]


def test_it_takes_generators_sets_and_nothing(manager):
    assert [handle.result(60) for handle in manager.submit_many(Part(number) for number in range(3))] == [0, 1, 2]
    assert sorted(handle.id for handle in manager.submit_many({"a": Part(1), "b": Part(2)}.items())) == ["a", "b"]
    assert manager.submit_many(()) == []


def test_a_wrong_pair_is_found_before_anything_is_done_with_the_others(manager):
    with pytest.raises(TypeError, match="pairs, not a tuple of 3"):
        manager.submit_many([NotKnownYet(), ("a", Part(), 1)])

    assert NotKnownYet.type_name not in {definition.meta.type_name for definition in manager._types.definitions()}


def test_handles_are_in_the_order_of_the_procedures_also_of_those_that_exist(manager):
    first = manager.submit_many([("b", Part(2)), Part(7), ("a", Part(1))])
    again = manager.submit_many([("a", Part(1)), ("new", Part(3)), ("b", Part(2)), ("a", Part(1))])

    assert [handle.id for handle in again] == ["a", "new", "b", "a"]
    assert [handle.result(60) for handle in (*first, *again)] == [2, 7, 1, 1, 3, 2, 1]


def test_a_handle_is_no_value_but_may_be_referred_to_and_marked(manager):
    handle = manager.submit(Part(5))
    handle.note = "mine"

    assert weakref.ref(handle)() is handle
    assert handle.note == "mine"
    for take in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match=rf"pass on its id, '{handle.id}'"):
            take(handle)
    assert handle.result(60) == 5
