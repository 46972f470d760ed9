"""What cannot be read now is read later: neither parked nor counted, nor undone."""

from __future__ import annotations

import importlib
import pickle
from dataclasses import dataclass
from pathlib import Path

import pytest

from actorproc import Limits, Procedure, Saga, Status, step
from actorproc.testing import InlineManager
from tests.kit.waiting import wait_until

pytestmark = pytest.mark.processes


@dataclass
class Reads(Procedure):
    """Its `load` reads a file that is missing for a while."""

    path: str
    limits = Limits()

    def execute(self, ctx):
        return Status.wait("on") if ctx.event is None else Status.done((ctx.attempt, Path(self.path).read_text()))

    @classmethod
    def load(cls, data):
        made = super().load(data)
        Path(made.path).read_text()
        return made


class Undoes(Saga):
    path: str

    @step
    def first(self, ctx):
        pass

    @first.undo
    def back(self, ctx):
        Path(self.path).with_suffix(".undone").touch()

    @step
    def second(self, ctx):
        Path(self.path).unlink()
        return Status.sleep(0.01)

    @step
    def third(self, ctx):
        raise ValueError("no")

    @classmethod
    def load(cls, data):
        made = super().load(data)
        Path(made.path).read_text()
        return made


def test_an_io_error_while_a_state_is_read_is_no_park_and_no_error(open_manager, tmp_path):
    place = tmp_path / "there"
    with open_manager(workers=1) as manager:
        handle = manager.submit(Reads(str(place)), id="reads")
        wait_until(lambda: "cannot be read now, and is tried again" in (handle.info().reason or ""))
        info = handle.info()
        assert (info.phase, info.errors, info.crashes) == ("retrying", 0, 0)
        assert "No such file" in info.reason
        place.write_text("here")
        manager.signal("reads", 1)
        attempt, text = handle.result(timeout=30)
        assert (attempt >= 1, text) == (True, "here")


def test_an_undo_waits_for_what_cannot_be_read_now(open_manager, tmp_path):
    place = tmp_path / "there"
    place.touch()
    with open_manager(workers=1) as manager:
        handle = manager.submit(Undoes(str(place)))
        wait_until(lambda: "cannot be read now" in (handle.info().reason or ""))
        assert not place.with_suffix(".undone").exists()
        place.touch()
        assert handle.exception(timeout=30) is not None
        assert place.with_suffix(".undone").exists()


@pytest.mark.parametrize("half", ["", "import actorproc\nclass Order(", "from shop_helpers import nowhere\n"])
def test_a_half_copied_deploy_is_waited_for(open_manager, tmp_path, monkeypatch, half):
    whole = (
        "from dataclasses import dataclass\n"
        "from actorproc import Procedure, Status\n"
        "from shop_helpers import answer\n"
        "@dataclass\n"
        "class Order(Procedure):\n"
        "    item: str\n"
        "    def execute(self, ctx):\n"
        "        return Status.done(answer(self.item))\n"
    )
    (tmp_path / "shop_helpers.py").write_text("def answer(item):\n    return f'{item} is here'\n")
    name = f"shop_copied_{len(half)}"
    module = tmp_path / f"{name}.py"
    module.write_text(whole)
    monkeypatch.syspath_prepend(str(tmp_path))
    order = importlib.import_module(name).Order
    module.write_text(half)
    with open_manager(workers=1, procedures=[order]) as manager:
        handle = manager.submit(order("book"))
        wait_until(lambda: "cannot be read now" in (handle.info().reason or ""))
        module.write_text(whole)
        assert handle.result(timeout=30) == "book is here"


@dataclass
class Never(Procedure):
    number: int = 1

    def execute(self, ctx):
        return Status.done()

    @classmethod
    def load(cls, data):
        raise ConnectionError("the directory does not answer")


def test_what_lasts_is_parked_with_the_reason_in_the_end():
    with InlineManager([Never]) as manager:
        handle = manager.submit(Never())

        def parked():
            manager.skip()
            return handle.info().phase == "parked"

        wait_until(parked)
        assert "the directory does not answer" in handle.info().reason
        assert handle.info().errors == 0


def test_what_can_never_be_read_is_parked_at_once(open_manager):
    @dataclass
    class Other(Procedure):
        number: int

        def execute(self, ctx):
            return Status.done()

        @classmethod
        def load(cls, data):
            raise pickle.UnpicklingError("these bytes are no state")

    with open_manager(workers=1, procedures=[Other]) as manager:
        handle = manager.submit(Other(1))
        wait_until(lambda: handle.info().phase == "parked")
