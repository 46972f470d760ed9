"""Exceptions that come back as objects: of classes that a procedure names in `uses`, rebuilt from data."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import ClassVar

import pytest

from actorproc import Procedure, ProcedureClient, ProcedureManager, RemoteError, Status
from actorproc.store.memory import MemoryStore
from actorproc.testing.inline import InlineManager
from tests.kit.managers import LIGHT
from tests.kit.waiting import BOUND


class Plain(Exception):
    """With what the base class has."""


class Declined(Exception):
    """With a constructor of its own, and attributes."""

    def __init__(self, card, *, amount):
        super().__init__(f"{card} was declined")
        self.card = card
        self.amount = amount


class Gone(OSError):
    """Of a built-in class with fields of its own."""


class Reduced(Exception):
    """It says itself what it is made of."""

    def __init__(self, code):
        super().__init__(f"code {code}")
        self.code = code

    def __reduce__(self):
        return (type(self), (self.code,))


@dataclass
class Detail:
    line: int


class Holding(Exception):
    """With a value of a class that the procedure uses too."""


class Unkept(Exception):
    """With what no store can keep."""


class Other(Exception):
    """Not named by the procedure."""


class NoReduce(Exception):
    def __reduce__(self):
        raise RuntimeError("it gives nothing away")


ERRORS = {
    "plain": Plain("a", 1, (2,)),
    "declined": Declined("visa", amount=Decimal("1.50")),
    "gone": Gone(2, "no such file", "a.txt"),
    "reduced": Reduced(7),
    "holding": Holding([Detail(3)]),
    "builtin": KeyError("k"),
}
TEXT_ONLY = {"unkept": Unkept(object()), "other": Other("x"), "no reduce": NoReduce("x"), "long": Plain("x" * 100_000)}


@dataclass
class Raises(Procedure):
    name: str

    uses: ClassVar[tuple[type, ...]] = (Plain, Declined, Gone, Reduced, Holding, KeyError, Unkept, NoReduce, Detail)

    def execute(self, ctx):
        raise (ERRORS | TEXT_ONLY)[self.name]


@dataclass
class Holds(Procedure):
    name: str

    def execute(self, ctx):
        return Status.suspended([("child", Raises(self.name))])


@pytest.mark.parametrize("name", ERRORS)
def test_an_exception_of_a_class_in_uses_comes_back_as_it_was(name):
    error = ERRORS[name]
    with InlineManager([Raises]) as manager:
        failure = manager.submit(Raises(name), "p").exception(BOUND)
    original = failure.cause.original
    assert original is not error
    assert type(original) is type(error)
    assert (original.args, vars(original), str(original)) == (error.args, vars(error), str(error))
    assert (getattr(original, "errno", 0), getattr(original, "filename", "")) == (
        getattr(error, "errno", 0),
        getattr(error, "filename", ""),
    )
    assert type(failure.cause) is RemoteError  # the text stays


@pytest.mark.parametrize("name", TEXT_ONLY)
def test_any_other_exception_is_text(name):
    with InlineManager([Raises]) as manager:
        failure = manager.submit(Raises(name), "p").exception(BOUND)
    assert failure.cause.original is None
    assert type(TEXT_ONLY[name]).__name__ in str(failure.cause)


def test_a_root_a_client_and_a_later_life_have_it_too(tmp_path):
    with ProcedureManager(tmp_path / "s", procedures=[Holds, Raises], workers=1, **LIGHT) as manager:
        assert manager.submit(Holds("declined"), "root").exception(BOUND).cause.original.card == "visa"
        with ProcedureClient(tmp_path / "s", procedures=[Raises]) as client:
            assert client.get("root").exception(BOUND).cause.original.amount == Decimal("1.50")
    with ProcedureManager(tmp_path / "s", workers=1, **LIGHT) as manager:
        assert manager.get("root").exception(BOUND).cause.original is None  # its class is not known
        manager.register(Raises)
        assert isinstance(manager.get("root").exception(BOUND).cause.original, Declined)


def test_a_class_that_no_longer_fits_is_text():
    class Declined(Exception):
        __module__, __qualname__ = __name__, "Declined"

        def __setattr__(self, name, value):
            raise TypeError("it is closed")

    Declined.__new__ = lambda cls, *args: 1 / 0
    store = MemoryStore()
    with InlineManager([Raises], store=store) as manager:
        manager.submit(Raises("declined"), "p").exception(BOUND)

    class Changed(Raises):
        uses = (Declined,)
        type_name = Raises.type_name

    with InlineManager([Changed], store=store) as manager:
        assert "visa was declined" in str(manager.get("p").exception(BOUND).cause)
