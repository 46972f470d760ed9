"""Lists by fields that a class declares searchable: found by the state as it is stored, and by nothing else."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pytest

import actorproc
from actorproc import Procedure, ProcedureFailed, ProcedureManager, RetryPolicy, Saga, StateNotEncodable, Status, step
from actorproc.store.rows.tables import Table
from tests.kit.managers import LIGHT
from tests.kit.waiting import BOUND, wait_until

pytestmark = pytest.mark.processes


class Stage(StrEnum):
    NEW = "new"
    PAID = "paid"
    SHIPPED = "shipped"
    REFUNDED = "refunded"


class Order(Saga, searchable=("customer", "stage", "parcel")):
    folder: str
    customer: int
    how: str = ""
    stage: Stage = Stage.NEW
    parcel: str | None = None
    retry = RetryPolicy(max_attempts=3, base=0.01, retry_on=(ConnectionError,))

    @step
    def pay(self, ctx):
        self.stage = Stage.PAID
        first = not Path(self.folder, "tried").exists()
        Path(self.folder, "tried").touch()
        if first and self.how == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if first and self.how == "error":
            raise ConnectionError("once more")

    @pay.undo
    def refund(self, ctx):
        self.stage = Stage.REFUNDED

    @step
    def wait(self, ctx):
        if self.how != "undo":
            return Status.wait("go")
        self.stage = Stage.SHIPPED
        raise ValueError("no")

    @step
    def ship(self, ctx):
        self.stage, self.parcel = Stage.SHIPPED, f"parcel of {self.customer}"
        if self.how == "number":
            self.parcel = 1.5

    def on_completed(self, ctx):
        if self.how == "cleaned":
            self.parcel = "cleaned"


class Named(Saga, searchable=("name",)):
    name: str
    then: str = ""

    @step
    def only(self, ctx):
        self.name = self.then or self.name


class Waits(Saga, searchable=("many",)):
    many: int

    @step
    async def only(self, ctx):
        self.many += 1


@dataclass
class Turns(Procedure):
    """Begins anew twice; a child of each turn is found as well."""

    searchable = ("turn",)
    turn: int = 0
    asked: bool = False

    def execute(self, ctx):
        if not self.asked:
            self.asked = True
            return Status.suspended([Leaf(self.turn)])
        return Status.done() if self.turn == 2 else Status.again(Turns(self.turn + 1))


@dataclass
class Leaf(Procedure):
    searchable = ("of",)
    of: int = 0

    def execute(self, ctx):
        return Status.done()


@dataclass
class Unsaved(Procedure):
    """Procedure whose first steps need no record: what they left is not found."""

    searchable = ("count",)
    count: int = 0

    def execute(self, ctx):
        self.count += 1
        if self.count == 4:
            return Status.wait("go")
        return Status.done() if self.count > 4 else Status.executing(persist=self.count == 3)


@pytest.fixture
def manager(tmp_path):
    with ProcedureManager(tmp_path / "s", workers=2, **LIGHT) as made:
        yield made


def found(place, **where) -> list[str]:
    return [info.id for info in place.list(where=where)]


def until_it_waits(manager, id):
    """The wait is stored: `info` tells it a moment before."""
    wait_until(lambda: id in [info.id for info in manager.list(state="WAITING")])


def waiting(manager, tmp_path, how="", id="o"):
    """An order that has paid, and waits."""
    manager.submit(Order(str(tmp_path), 42, how), id=id)
    until_it_waits(manager, id)


def rows_of_fields(path) -> list[bytes]:
    with actorproc.StoreReader(path) as reader, reader._store._view() as rows:
        return [key for key, _ in rows.scan(Table.BY_TAG, b"\xfe")]


@pytest.mark.parametrize("how", ["", "crash", "error"])
def test_a_procedure_is_found_by_its_state_from_the_commit_of_that_on(manager, tmp_path, how):
    waiting(manager, tmp_path, how)

    assert found(manager, customer=42) == found(manager, customer="42", stage=Stage.PAID, parcel=None) == ["o"]
    assert found(manager, stage="new") == found(manager, stage="shipped") == found(manager, customer=43) == []

    manager.publish("go")
    manager.get("o").result(BOUND)
    assert found(manager, stage=Stage.SHIPPED, parcel="parcel of 42") == ["o"]
    assert found(manager, stage="paid") == found(manager, parcel=None) == []
    manager.delete("o")
    assert found(manager, customer=42) == []


def test_the_rows_of_a_removed_procedure_go(tmp_path):
    with ProcedureManager(tmp_path / "s", workers=1, **LIGHT) as manager:
        waiting(manager, tmp_path)
        manager.publish("go")
        manager.get("o").result(BOUND)
        assert len(rows_of_fields(tmp_path / "s")) == 3
        manager.delete("o")
    assert rows_of_fields(tmp_path / "s") == []


def test_a_step_that_fails_is_not_found_and_an_undo_is(manager, tmp_path):
    with pytest.raises(ProcedureFailed):
        manager.run(Order(str(tmp_path), 42, "undo"), id="o", timeout=BOUND)

    assert found(manager, stage="refunded") == ["o"]
    assert found(manager, stage="shipped") == found(manager, stage="paid") == []


def test_what_is_kept_after_the_end_is_found(manager, tmp_path):
    waiting(manager, tmp_path, "cleaned")
    manager.publish("go")
    manager.get("o").result(BOUND)
    assert found(manager, parcel="cleaned") == ["o"]
    manager.run(Waits(6), id="w", timeout=BOUND)
    assert found(manager, many=7) == ["w"]
    assert found(manager, many=6) == []


def test_generations_and_children_are_found_by_their_own(manager):
    manager.run(Turns(), id="t", timeout=BOUND)

    assert found(manager, turn=2) == ["t"]
    assert found(manager, turn=0) == found(manager, turn=1) == []
    (leaf,) = manager.list(where={"of": 2})
    assert leaf.parent_id == "t"


def test_of_steps_that_need_no_record_the_last_ones_count(manager):
    manager.submit(Unsaved(), id="u")
    until_it_waits(manager, "u")
    assert found(manager, count=4) == ["u"]
    manager.publish("go")
    manager.get("u").result(BOUND)
    assert found(manager, count=5) == ["u"]


def test_a_restart_and_a_fork_are_found_by_the_state_that_they_begin_with(manager, tmp_path):
    waiting(manager, tmp_path)
    fork = manager.fork("o", "wait")
    assert found(manager, stage="paid") == ["o", fork.id]
    manager.publish("go")
    manager.get("o").result(BOUND)
    assert found(manager, stage="shipped") == ["o"]
    assert found(manager, stage="paid") == [fork.id]

    manager.pause()
    manager.restart("o")
    assert found(manager, stage="new") == ["o"]
    manager.resume()
    until_it_waits(manager, "o")
    assert found(manager, stage="paid") == ["o", fork.id]


def test_a_value_that_cannot_be_found_fails_its_step_and_a_submit_in_words(manager, tmp_path):
    with pytest.raises(StateNotEncodable, match=r"Order.customer is searchable, and a float is nothing that a list"):
        manager.submit(Order(str(tmp_path), 1.5))
    waiting(manager, tmp_path, "number")
    manager.publish("go")
    with pytest.raises(ProcedureFailed, match=r"Order.parcel is searchable, and a float is nothing that a list"):
        manager.get("o").result(BOUND)


@pytest.mark.parametrize("text", ["\ud800", "\udce9 of a file name", "a\0b", "x" * 300])
def test_a_text_that_is_no_key_of_a_row_is_found_and_stops_no_manager(tmp_path, text):
    with ProcedureManager(tmp_path / "s", workers=1, **LIGHT) as manager:
        manager.run(Named(text), id="given", timeout=BOUND)
        manager.run(Named("later", then=text), id="later", timeout=BOUND)

        assert found(manager, name=text) == ["given", "later"]
        assert found(manager, name="later") == found(manager, name=text[:-1]) == found(manager, name="?") == []


def test_every_place_that_lists_finds_the_same(tmp_path):
    with ProcedureManager(tmp_path / "s", workers=1, **LIGHT) as manager:
        waiting(manager, tmp_path)
        waiting(manager, tmp_path, id="p")
        with actorproc.ProcedureClient(tmp_path / "s") as client, actorproc.StoreReader(tmp_path / "s") as reader:
            for place in (manager, client, reader):
                assert found(place, stage="paid") == ["o", "p"]
                newest = {"where": {"customer": 42}, "newest_first": True}
                assert [info.id for info in place.list(**newest, limit=1)] == ["p"]
                assert [info.id for info in place.list(**newest, after="p", phase="waiting")] == ["o"]
                assert place.list(where={"stage": "paid"}, tag="none") == []
            client.submit(Order(str(tmp_path), 7, "undo"), id="q")
            wait_until(lambda: found(client, customer=7, stage="refunded"))
    with ProcedureManager(tmp_path / "s", workers=1, **LIGHT) as manager:  # as a start reads them
        assert found(manager, stage="paid") == ["o", "p"]


@pytest.mark.parametrize(
    ("where", "error", "says"),
    [
        ("a=1", TypeError, "is a dict of fields and their values, or None, not 'a=1'"),
        ({"a": 1.5}, TypeError, "a float is nothing that a list is searched for"),
        ({"a b": 1}, ValueError, "names fields as they are declared"),
    ],
)
def test_a_search_that_makes_no_sense_is_refused(manager, where, error, says):
    with pytest.raises(error, match=says):
        manager.list(where=where)
