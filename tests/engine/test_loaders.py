"""Types that are known by a loader instead of a class, through real workers and over a restart."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from actorproc import DuplicateType, Procedure, Status
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
