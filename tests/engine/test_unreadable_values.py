"""A deploy that cannot read a stored value parks the reader, whole: nothing fails, nothing is undone, nothing is lost."""

from __future__ import annotations

import time
from dataclasses import dataclass, make_dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from actorproc import Procedure, RetryPolicy, Saga, Status, step
from actorproc.store.memory import MemoryStore
from actorproc.testing.inline import InlineManager

done: list[Any] = []
"""What steps and undos did, in order."""


@pytest.fixture(autouse=True)
def _nothing_done():
    done.clear()


def deploy(*names, **options):  # noqa: C901 - five small classes
    """The classes of one edition of the program; the fields of its `Receipt` have these names."""
    Receipt = make_dataclass("Receipt", [("total", int), *((name, str, "") for name in names)])  # noqa: N806
    Receipt.__module__ = "shop"

    @dataclass
    class Buy(Procedure):
        n: int
        type_name = "shop.Buy"
        uses = (Receipt,)

        def execute(self, ctx):
            if self.n and ctx.event is None:
                return Status.wait("go")
            return Status.done(Receipt(5))

        def rollback(self, ctx):
            done.append(("undone", self.n))

    class Shop(Procedure):
        type_name = "shop.Shop"
        on_child_failure = "fail"

        def execute(self, ctx):
            done.append(("shop", ctx.step, ctx.replayed))
            if ctx.step == 1:
                return Status.suspended([("b0", Buy(0)), ("b1", Buy(1))])
            try:
                total = sum(outcome.output.total for outcome in ctx.children.values())
            except options.get("catches", ()):
                done.append("caught")
                total = -1
            return Status.done(total)

        def rollback(self, ctx):
            done.append("shop undone")

    class Noting(Procedure):
        type_name = "shop.Noting"
        uses = (Receipt,)
        retry = RetryPolicy(base=3600, max_attempts=9, jitter=0)

        def execute(self, ctx):
            note = ctx.remember("receipt", lambda: Receipt(7))
            done.append(("noted", note.total, ctx.replayed))
            if options.get("interrupts"):
                raise ConnectionError
            return Status.done(note.total)

    class Undoing(Saga):
        type_name = "shop.Undoing"
        uses = (Receipt,)

        @step
        def pay(self, ctx):
            return None

        @pay.undo
        def give_back(self, ctx):
            note = ctx.remember("receipt", lambda: Receipt(8))
            done.append(("gave back", note.total))
            if options.get("interrupts"):
                raise ConnectionError

        @step
        def ship(self, ctx):
            raise ValueError

    Undoing.rollback_retry = RetryPolicy(base=3600, max_attempts=9, retry_on=(Exception,), jitter=0)

    class Hearing(Procedure):
        type_name = "shop.Hearing"
        uses = (Receipt,)

        def execute(self, ctx):
            if ctx.event is None:
                return Status.wait("go")
            return Status.done(ctx.event.total)

    return SimpleNamespace(
        all=[Buy, Shop, Noting, Undoing, Hearing],
        **{cls.__name__: cls for cls in (Receipt, Buy, Shop, Noting, Undoing, Hearing)},
    )


def until(condition, seconds=20.0):
    limit = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < limit, "it did not happen in time"
        time.sleep(0.01)
    return found


def parked(manager, name):
    return until(lambda: (info := manager.info(name)).phase == "parked" and info)


def test_an_unreadable_output_of_a_child_parks_the_parent_and_undoes_nothing():
    store = MemoryStore()
    with InlineManager(deploy("memo").all, store=store) as manager:
        manager.submit(deploy("memo").Shop(), id="s")
        until(lambda: {"b0": "done", "b1": "waiting"}.items() <= {p.id: p.phase for p in manager.list()}.items())
    with InlineManager(deploy("note").all, store=store) as manager:
        manager.signal("b1", 1)
        info = parked(manager, "s")
    with InlineManager(deploy("memo", "note").all, store=store) as manager:
        assert manager.get("s").result(timeout=20) == 10
        assert manager.info("s").errors == 0

    assert "the output of b0 (shop.Buy) cannot be read: the stored 'shop:Receipt' has a field 'memo'" in info.reason
    assert (info.state, info.errors, info.crashes, info.step) == ("RUNNABLE", 0, 0, 2)
    assert done == [("shop", 1, False), ("shop", 2, False), ("shop", 2, True)]


@pytest.mark.parametrize("catches", [Exception, BaseException])
def test_the_attempt_is_given_up_also_when_the_step_catches_the_error(catches):
    store = MemoryStore()
    with InlineManager(deploy("memo").all, store=store) as manager:
        manager.submit(deploy("memo").Shop(), id="s")
        until(lambda: {"b0": "done", "b1": "waiting"}.items() <= {p.id: p.phase for p in manager.list()}.items())
    with InlineManager(deploy("note", catches=catches).all, store=store) as manager:
        manager.signal("b1", 1)
        parked(manager, "s")
    with InlineManager(deploy("memo", "note").all, store=store) as manager:
        assert manager.get("s").result(timeout=20) == 10

    assert ("caught" in done) is (catches is BaseException)
    assert "shop undone" not in done


def test_the_parent_goes_on_when_the_class_of_the_child_is_registered_anew():
    store = MemoryStore()
    old, new = deploy("memo"), deploy("note")
    with InlineManager(old.all, store=store) as manager:
        manager.submit(old.Shop(), id="s")
        until(lambda: {"b0": "done", "b1": "waiting"}.items() <= {p.id: p.phase for p in manager.list()}.items())
    with InlineManager(new.all, store=store) as manager:
        manager.signal("b1", 1)
        parked(manager, "s")
        manager.register(deploy("memo", "note").Buy)
        assert manager.get("s").result(timeout=20) == 10
    assert "shop undone" not in done


def test_an_unreadable_note_parks_the_step_that_asks_for_it_again():
    store = MemoryStore()
    with InlineManager(deploy("memo", interrupts=True).all, store=store) as manager:
        manager.submit(deploy("memo", interrupts=True).Noting(), id="n")
        until(lambda: manager.info("n").errors == 1)
        clock = manager.clock
        clock.advance(4000)
        until(lambda: manager.info("n").errors == 2)
    with InlineManager(deploy("note").all, store=store, clock=clock) as manager:
        clock.advance(20_000)
        info = parked(manager, "n")
    with InlineManager(deploy("memo").all, store=store, clock=clock) as manager:
        assert manager.get("n").result(timeout=20) == 7

    assert info.reason.startswith("what remember('receipt') kept cannot be read: the stored 'shop:Receipt'")
    assert info.errors == 2
    assert done == [("noted", 7, False), ("noted", 7, True), ("noted", 7, True)]


def test_an_unreadable_note_parks_an_undo_likewise():
    store = MemoryStore()
    with InlineManager(deploy("memo", interrupts=True).all, store=store) as manager:
        manager.submit(deploy("memo", interrupts=True).Undoing(), id="u")
        until(lambda: ("gave back", 8) in done)
        until(lambda: manager.info("u").errors == 1)
        clock = manager.clock
    with InlineManager(deploy("note").all, store=store, clock=clock) as manager:
        clock.advance(20_000)
        info = parked(manager, "u")
    with InlineManager(deploy("memo").all, store=store, clock=clock) as manager:
        manager.get("u").wait(20)
        ended = manager.info("u")

    assert "what remember('receipt') kept cannot be read" in info.reason
    assert info.errors == 1
    assert (ended.state, done) == ("ROLLEDBACK", [("gave back", 8), ("gave back", 8)])


def test_an_unreadable_payload_parks_the_procedure_that_takes_it():
    store = MemoryStore()
    old = deploy("memo")
    with InlineManager(old.all, store=store) as manager:
        manager.submit(old.Hearing(), id="h")
        until(lambda: manager.info("h").phase == "waiting")
        tree = manager._running()
        data = manager._types.runtime_of(old.Hearing()).encode_value(old.Receipt(3), "h")
        manager.pause()
        from actorproc.model.messages.events import Signalled

        assert tree.request(lambda reply: Signalled("h", data, reply))
    with InlineManager(deploy("note").all, store=store) as manager:
        manager.resume()
        info = parked(manager, "h")
    with InlineManager(deploy("memo").all, store=store) as manager:
        assert manager.get("h").result(timeout=20) == 3

    assert info.reason.startswith(
        "the payload of the event cannot be read: the stored 'shop:Receipt' has a field 'memo'"
    )
