"""Names in hints that are text travel along, as far as they can, and never keep a call from being made."""

import builtins
import threading

import pytest

from actorproc.procedure.shipping.by_value import dumped
from actorproc.procedure.shipping.origins import loads

DEFINITIONS = """
import datetime, typing
Alias = typing.Optional[int]
class Item: pass
class Lock: lock = __import__("threading").Lock()
class Liar:
    @property
    def __class__(self): raise RuntimeError("no context")
proxy, number = Liar(), 5
"""


def made(hint, name="argument"):
    space = {"__name__": "__main__", "__builtins__": builtins}
    exec(f"{DEFINITIONS}\ndef function({name}: {hint!r}): pass", space)
    return space["function"]


@pytest.mark.parametrize(
    ("hint", "names"),
    [
        ("Item", {"Item"}),
        ("list[Item] | Alias", {"Item", "Alias"}),
        ("datetime.date", {"datetime"}),
        ("typing.Optional['Item']", {"typing", "Item"}),
        ("dict[str, 'list[\"Item\"]']", {"Item"}),
        ("NoSuchThing", set()),
        ("Lock", set()),
        ("list[Lock] | Item", {"Item"}),
        ("proxy", set()),
        ("number", set()),
        ("not an expression", set()),
        ("a\0b", set()),
        ("", set()),
    ],
)
def test_a_function_brings_what_its_hints_name_as_far_as_that_can_be_pickled(hint, names):
    came = loads(dumped(made(hint)))

    assert set(came.__globals__) & {"Item", "Alias", "datetime", "typing", "Lock", "proxy", "number"} == names


def test_a_name_that_becomes_something_else_is_looked_at_again():
    function = made("Item")
    dumped(function)

    function.__globals__["Item"] = type("Item", (), {"lock": threading.Lock()})

    assert "Item" not in loads(dumped(function)).__globals__


def test_hints_that_are_no_hints_do_no_harm():
    function = made("Item")
    function.__annotations__ = {"argument": 5, "other": b"Item", 3: "Item"}

    assert "Item" in loads(dumped(function)).__globals__


def test_hints_that_lead_back_to_each_other_end():
    space = {"__name__": "__main__", "__builtins__": builtins}
    exec(
        "def first(a: 'second'): pass\ndef second(a: 'First'): pass\nclass First:\n def f(self, a: 'First'): pass",
        space,
    )

    assert loads(dumped(space["second"])).__globals__["First"].__name__ == "First"
