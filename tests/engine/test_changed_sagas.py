"""The steps of a saga are edited between two starts: nothing runs twice, nothing is undone, nothing is lost."""

from __future__ import annotations

import pytest

from actorproc import ProcedureFailed, RetryLater, RetryPolicy, Saga, Status, step
from actorproc.store.memory import MemoryStore
from actorproc.testing.inline import FAST, InlineManager, VirtualClock
from tests.kit.waiting import wait_until

LOG: list[str] = []


@pytest.fixture(autouse=True)
def _empty_log():
    LOG.clear()


def note(ctx, name=""):
    LOG.append(f"{ctx.idempotency_key}{name}")


class Parts:
    """Steps of which the editions of a saga are made."""

    def pay(self, ctx):
        note(ctx)

    def refund(self, ctx):
        note(ctx)

    def ask(self, ctx):
        return Status.wait("stock")

    def reserve(self, ctx):
        note(ctx, f" {ctx.event}")
        return "reserved"

    def release(self, ctx):
        note(ctx)

    def check(self, ctx):
        note(ctx, f" {ctx.event}")

    def uncheck(self, ctx):
        note(ctx)

    def fail(self, ctx):
        note(ctx)
        raise ValueError("it fails")

    def unfail(self, ctx):
        note(ctx)


UNDOS = {"pay": "refund", "reserve": "release", "check": "uncheck", "fail": "unfail"}


def edition(*names, **line):
    """An edition of the saga with these steps."""
    body = {}
    for name in names:
        made = body[name] = step(getattr(Parts, name))
        if name in UNDOS:
            made.undo(getattr(Parts, UNDOS[name]))
    body["type_name"] = "Order"
    return type("Order", (Saga,), body, **line)


def opened(store, cls, clock):
    return InlineManager(store=store, procedures=[cls], clock=clock, config=FAST)


def waiting_at_stock(store, clock, *names):
    """A procedure of an edition of these steps that waits for the stock."""
    cls = edition(*names)
    with opened(store, cls, clock) as yesterday:
        handle = yesterday.submit(cls(), id="o1")
        wait_until(lambda: handle.info().phase == "waiting")


def parked(manager):
    wait_until(lambda: manager.info("o1").phase == "parked")
    return manager.info("o1").reason


def test_a_step_that_was_paid_for_is_not_paid_again():
    store, clock = MemoryStore(), VirtualClock()
    waiting_at_stock(store, clock, "pay", "ask", "reserve")

    with opened(store, edition("ask", "reserve", "pay"), clock) as today:
        today.signal("o1", "here")
        reason = parked(today)
        says = today.why("o1").says
    with opened(store, edition("ask", "reserve", "pay", on_change="run"), clock) as later:
        assert later.get("o1").result(timeout=30) == "reserved"

    for text in (reason, says):
        assert "ask → reserve → pay" in text
        assert "pay → ask → reserve" in text
    assert LOG == ["o1.pay", "o1.reserve here"]


def test_a_step_that_is_put_next_sees_what_the_one_behind_it_would_have_seen():
    store, clock = MemoryStore(), VirtualClock()
    waiting_at_stock(store, clock, "pay", "ask", "reserve")

    with opened(store, edition("pay", "ask", "check", "reserve"), clock) as today:
        today.signal("o1", "here")
        assert today.get("o1").result(timeout=30) == "reserved"
        assert [each.outcome for each in today.steps("o1")].count("placed") == 1

    assert LOG == ["o1.pay", "o1.check here", "o1.reserve None"]


def test_a_failure_undoes_what_ran_and_nothing_else():
    store, clock = MemoryStore(), VirtualClock()
    waiting_at_stock(store, clock, "pay", "ask", "reserve")

    with opened(store, edition("pay", "ask", "fail", "reserve"), clock) as today:
        today.signal("o1", "here")
        with pytest.raises(ProcedureFailed):
            today.get("o1").result(timeout=30)

    assert LOG == ["o1.pay", "o1.fail", "o1.fail.undo", "o1.pay.undo"]


def test_a_step_that_was_never_begun_is_not_undone_though_it_was_parked_before():
    store, clock = MemoryStore(), VirtualClock()
    waiting_at_stock(store, clock, "pay", "ask", "reserve")

    for again in (False, True):
        with opened(store, edition("check", "pay", "ask", "reserve"), clock) as today:
            if not again:
                today.signal("o1", "here")
            parked(today)
            # Each refused attempt has a number of its own, and charges nothing.
            assert (today.info("o1").errors, today.info("o1").crashes) == (0, 0)
    today = edition("fail", "pay", "ask", "reserve", on_change="run")
    with opened(store, today, clock) as later, pytest.raises(ProcedureFailed):
        later.get("o1").result(timeout=30)

    assert LOG == ["o1.pay", "o1.fail", "o1.fail.undo", "o1.pay.undo"]


def test_what_is_moved_behind_and_fails_is_undone_once():
    store, clock = MemoryStore(), VirtualClock()
    waiting_at_stock(store, clock, "check", "pay", "ask", "reserve", "fail")

    with opened(store, edition("check", "ask", "reserve", "pay", "fail", on_change="skip"), clock) as today:
        today.signal("o1", "here")
        with pytest.raises(ProcedureFailed):
            today.get("o1").result(timeout=30)

    assert LOG == ["o1.check None", "o1.pay", "o1.fail", "o1.fail.undo", "o1.pay.undo", "o1.check.undo"]


def test_a_step_that_is_being_retried_lets_a_new_one_go_before_it_and_is_undone_once():
    class Order(Saga):
        type_name = "Order"
        retry = RetryPolicy(max_attempts=100, base=5000, cap=5000)

        @step
        def reserve(self, ctx):
            note(ctx, f" {ctx.attempt}")
            raise RetryLater(after=5000)

        @reserve.undo
        def release(self, ctx):
            note(ctx)

    store, clock = MemoryStore(), VirtualClock()
    with opened(store, Order, clock) as yesterday:
        handle = yesterday.submit(Order(), id="o1")
        wait_until(lambda: handle.info().phase == "retrying")
    with opened(store, edition("check", "reserve", "fail"), clock) as today:
        clock.advance(10_000)
        with pytest.raises(ProcedureFailed):
            today.get("o1").result(timeout=30)

    ran = ["o1.reserve 1", "o1.check None", "o1.reserve None", "o1.fail"]
    ran += ["o1.fail.undo", "o1.reserve.undo", "o1.check.undo"]
    assert ran == LOG


def test_an_undo_under_way_goes_on_whatever_the_order_is_now():
    def stuck(self, ctx):
        raise RuntimeError("not yet")

    cls = edition("pay", "check", "fail", rollback_retry=RetryPolicy(100, 5000.0, cap=5000.0, retry_on=(RuntimeError,)))
    cls = type("Order", (cls,), {"recheck": cls.check.undo(stuck), "type_name": "Order"})
    store, clock = MemoryStore(), VirtualClock()
    with opened(store, cls, clock) as yesterday:
        handle = yesterday.submit(cls(), id="o1")
        wait_until(lambda: handle.info().undo_error is not None)
    with opened(store, edition("check", "ask", "fail", "pay"), clock) as today:
        clock.advance(10_000)
        with pytest.raises(ProcedureFailed):
            today.get("o1").result(timeout=30)

    assert LOG[-2:] == ["o1.check.undo", "o1.pay.undo"]
