"""Types that are known by a loader instead of a class, through real workers and over a restart."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from actorproc import DuplicateProcedure, DuplicateType, Procedure, Status
from actorproc.model.states import Phase

pytestmark = pytest.mark.processes


@dataclass
class Wish(Procedure):
    text: str
    type_name = "tests.wish"

    def dump(self):
        return self.text

    @classmethod
    def load(cls, data):
        return cls(data)

    def execute(self, ctx):
        return Status.wait("granted") if ctx.event is None else Status.done(f"{self.text} {ctx.event}")


def shouting(data):
    return Wish(data.upper())


def whispering(data):
    return Wish(data.lower())


@dataclass
class Third(Procedure):
    """The third version of its class."""

    text: str
    version = 3
    type_name = "tests.third"

    def execute(self, ctx):
        if ctx.event is not None:
            return Status.done(f"{self.text} {ctx.event}")
        return Status.wait("granted") if ctx.step > 1 else Status.executing()


def third(data):
    return Third.load(data)


def test_after_a_restart_a_loader_takes_up_what_its_class_began_and_a_second_one_is_refused(open_manager, until):
    first = open_manager(workers=1)
    handle = first.submit(Wish("a horse"), "wish")
    until(lambda: handle.info().phase is Phase.WAITING)
    first.stop()

    second = open_manager(workers=1)
    assert second.info("wish").phase is Phase.PARKED
    second.register_loader("tests.wish", shouting)
    second.register_loader("tests.wish", shouting)
    with pytest.raises(DuplicateType, match=r"tests\.wish"):
        second.register_loader("tests.wish", whispering)

    second.signal("wish", "tomorrow")
    assert second.get("wish").result(30) == "A HORSE tomorrow"


def test_what_objects_of_a_loader_dump_is_of_the_version_of_their_class(open_manager, until):
    """So a submit again is compared, and the class itself takes it up without a `migrate`."""
    first = open_manager(workers=1)
    first.register_loader("tests.third", third)
    handle = first.submit(Third("a horse"), "wish")
    until(lambda: handle.info().phase is Phase.WAITING)

    assert first.info("wish").version == 3
    assert first.submit(Third("a horse"), "wish").id == "wish"
    with pytest.raises(DuplicateProcedure):
        first.submit(Third("a cow"), "wish")
    first.stop()

    second = open_manager(workers=1, procedures=[Third])
    second.signal("wish", "tomorrow")
    assert second.get("wish").result(30) == "a horse tomorrow"
