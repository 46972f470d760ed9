"""Tags: keys with values that steps change, and lists that find procedures by them."""

from __future__ import annotations

import os
import signal
from dataclasses import dataclass
from pathlib import Path

import pytest

import actorproc
from actorproc import Procedure, ProcedureFailed, ProcedureManager, RetryPolicy, Saga, Status, step
from actorproc.procedure.declaring.submit_options import checked_tags
from tests.kit.managers import LIGHT
from tests.kit.waiting import BOUND, wait_until

pytestmark = pytest.mark.processes

KEPT = []


class Order(Saga):
    """Says by its tags how far it is."""

    folder: str
    how: str = ""
    retry = RetryPolicy(max_attempts=3, base=0.01, retry_on=(ConnectionError,))

    @step
    def pay(self, ctx):
        ctx.set_tag("stage", "lost")
        ctx.set_tag("stage", "paid")
        ctx.remove_tag("new")
        first = not Path(self.folder, "tried").exists()
        Path(self.folder, "tried").touch()
        if first and self.how == "crash":
            os.kill(os.getpid(), signal.SIGKILL)
        if first and self.how == "error":
            raise ConnectionError("once more")
        KEPT.append(ctx)

    @pay.undo
    def refund(self, ctx):
        ctx.set_tag("stage", "refunded")

    @step
    def wait(self, ctx):
        if self.how != "undo":
            return Status.wait("go")
        ctx.set_tag("stage", "never")
        raise ValueError("no")

    @step
    def ship(self, ctx):
        if self.how == "late":
            KEPT[-1].set_tag("stage", "late")
        ctx.set_tag("stage", "shipped")


class Asynchronous(Saga):
    @step
    async def only(self, ctx):
        ctx.set_tag("how", "async")


@dataclass
class Turns(Procedure):
    """Begins anew twice."""

    turn: int = 0

    def execute(self, ctx):
        ctx.set_tag("turn", str(self.turn))
        return Status.done() if self.turn == 2 else Status.again(Turns(self.turn + 1))


@dataclass
class Wrong(Procedure):
    how: str

    def execute(self, ctx):
        match self.how:
            case "number":
                ctx.set_tag("n", 42)
            case "equals":
                ctx.set_tag("a=b", "c")
            case "long":
                ctx.set_tag("k", "x" * 255)
            case "many":
                for number in range(101):
                    ctx.set_tag(f"k{number}", "")
            case "very many":
                for number in range(201):
                    ctx.remove_tag(f"k{number}")
        return Status.done()


@pytest.fixture
def manager(tmp_path):
    with ProcedureManager(tmp_path / "s", workers=2, **LIGHT) as made:
        yield made


def found(place, **filters) -> list[str]:
    return [info.id for info in place.list(**filters)]


def until_it_waits(manager, id):
    """The wait is stored: `info` tells it a moment before."""
    wait_until(lambda: id in [info.id for info in manager.list(state="WAITING")])


def waiting(manager, tmp_path, how="", **options):
    """An order that has paid, and waits."""
    manager.submit(Order(str(tmp_path), how), id="o", tags={"customer": "42", "new": "yes"}, **options)
    until_it_waits(manager, "o")


@pytest.mark.parametrize("how", ["", "crash", "error"])
def test_a_tag_has_its_new_value_with_the_step_however_often_that_is_tried(manager, tmp_path, how):
    waiting(manager, tmp_path, how)

    assert manager.info("o").tags == ("customer=42", "stage=paid")
    assert manager.info("o").tag_values == {"customer": "42", "stage": "paid"}
    assert found(manager, tag="stage=paid") == found(manager, tag={"customer": "42", "stage": "paid"}) == ["o"]
    assert (
        found(manager, tag="new=yes") == found(manager, tag="stage=lost") == found(manager, tag="stage=shipped") == []
    )

    manager.publish("go")
    manager.get("o").result(BOUND)
    assert found(manager, tag=["stage=shipped", "customer=42"], state="SUCCESS") == ["o"]
    assert found(manager, tag="stage=paid") == []
    manager.delete("o")
    assert found(manager, tag="customer=42") == []


def test_a_step_that_fails_changes_no_tag_and_an_undo_may(manager, tmp_path):
    with pytest.raises(ProcedureFailed):
        manager.run(Order(str(tmp_path), "undo"), id="o", timeout=BOUND)

    assert manager.info("o").tags == ("stage=refunded",)
    assert found(manager, tag="stage=never") == found(manager, tag="stage=paid") == []


def test_an_async_step_and_a_generation_change_tags(manager):
    manager.run(Asynchronous(), id="a", timeout=BOUND)
    manager.run(Turns(), id="t", timeout=BOUND)

    assert [info.tags for info in manager.list()] == [("how=async",), ("turn=2",)]
    assert found(manager, tag="turn=1") == []


def test_a_restart_and_a_fork_keep_the_tags_and_a_new_submit_brings_its_own(manager, tmp_path):
    waiting(manager, tmp_path)
    fork = manager.fork("o", "wait")
    assert manager.info(fork.id).tags == ("customer=42", "stage=paid")
    for id in ("o", fork.id):  # an event wakes the one that has waited longest
        manager.publish("go")
        manager.get(id).result(BOUND)
        assert manager.info(id).tags == ("customer=42", "stage=shipped")

    manager.restart("o")
    until_it_waits(manager, "o")
    assert manager.info("o").tags == ("customer=42", "stage=paid")
    manager.publish("go")
    manager.get("o").result(BOUND)
    manager.submit(Order(str(tmp_path)), id="o", tags=["word"], on_existing="restart")
    until_it_waits(manager, "o")
    assert manager.info("o").tags == ("word", "stage=paid")


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ("number", "the value of the tag 'n' is a string, not 42"),
        ("equals", "the key of a tag has no '=' in it, as 'a=b' has"),
        ("long", "the tag 'k' with its value has 257 bytes in UTF-8; 1 to 256 are allowed"),
        ("many", "set_tag: w would have 101 tags, of 100 at most"),
        ("very many", "a step changes 200 tags at most"),
    ],
)
def test_a_tag_that_cannot_be_fails_its_step_in_words(manager, how, says):
    with pytest.raises(ProcedureFailed, match=says):
        manager.run(Wrong(how), id="w", timeout=BOUND)
    assert manager.info("w").tags == ()


def test_a_context_whose_step_is_over_changes_no_tag(tmp_path):
    with ProcedureManager(tmp_path / "s", workers=1, **LIGHT) as manager:
        waiting(manager, tmp_path, "late")
        manager.publish("go")
        with pytest.raises(ProcedureFailed, match="set_tag is for steps that run: step 1 of o is over"):
            manager.get("o").result(BOUND)


def test_every_place_that_lists_finds_by_what_a_step_has_said(tmp_path):
    with ProcedureManager(tmp_path / "s", workers=1, **LIGHT) as manager:
        waiting(manager, tmp_path)
        manager.submit(Turns(), id="other", tags=["stage=paid"])
        with actorproc.ProcedureClient(tmp_path / "s") as client, actorproc.StoreReader(tmp_path / "s") as reader:
            for place in (manager, client, reader):
                assert found(place, tag="stage=paid") == ["o", "other"]
                assert found(place, tag="stage=paid", newest_first=True, limit=1) == ["other"]
                assert found(place, tag="stage=paid", newest_first=True, after="other") == ["o"]
                assert found(place, tag={"stage": "paid", "customer": "42"}) == ["o"]
                assert found(place, tag={"stage": "paid", "customer": "43"}) == []
    with ProcedureManager(tmp_path / "s", workers=1, **LIGHT) as manager:  # as a start reads them
        assert found(manager, tag="stage=paid") == ["o", "other"]


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        ({"a": "1", "b": ""}, ("a=1", "b=")),
        ({"a": "x=y"}, ("a=x=y",)),
        (["a=1", "word", "a=1"], ("a=1", "word")),
        (None, ()),
        ({}, ()),
    ],
)
def test_tags_are_a_dict_or_a_list(given, stored):
    assert checked_tags(given) == stored


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("a=1", "is one string; give a list of strings, or a dict of keys and values"),
        (7, "is no list of strings, and no dict of keys and values"),
        ({"a": 1}, "the value of the tag 'a' is a string, not 1"),
        ({1: "a"}, "the key of a tag is a string, not 1"),
        ({"": "a"}, "the key of a tag has 0 bytes"),
        ({"a=b": "a"}, "the key of a tag has no '=' in it"),
        (["=a"], "the tag '=a' has no key before its '='"),
        (["a=1", "a=2"], "the tags give the key 'a' two values, 'a=1' and 'a=2'; give it one"),
        (["a", "a=2"], "the tags give the key 'a' two values, 'a' and 'a=2'; give it one"),
        ({"a": "x" * 255}, "has 257 bytes in UTF-8"),
        ({str(n): "" for n in range(101)}, "101 tags are given; a procedure may have 100"),
        ({"a": "\ud800"}, "holds a lone surrogate"),
    ],
)
def test_tags_that_cannot_be_are_refused_by_name(given, says):
    with pytest.raises((TypeError, ValueError), match=says):
        checked_tags(given)
