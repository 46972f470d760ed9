"""Texts and numbers of classes derived from `str`, `int` and `float`: they are texts and numbers, and stay so."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

import pytest

from actorproc import Limits, LockKey, Procedure, ProcedureClient, ProcedureExecutor, RetryLater, RetryPolicy, Status
from tests.kit.waiting import BOUND

pytestmark = pytest.mark.processes


class Markup(str):
    """As libraries have them for text that needs no quoting, with a `__str__` that gives itself."""

    __slots__ = ()

    def __str__(self) -> str:
        return self


class Number(float):
    """As libraries of arrays have them."""


class Whole(int):
    """As above."""


class Topic(StrEnum):
    PAID = "paid"


class Urgency(IntEnum):
    HIGH = 5


class Keyed(Procedure):
    type_name = Markup("keyed")
    work_class = Topic.PAID
    limits = Limits(wall_time=Number(30), grace=Number(1), cpus={0})

    def lock_keys(self):
        return (LockKey.write(Markup(path)) for path in ("a/b", "a/c"))

    def limit_keys(self):
        return {Markup("mail")}

    def poison_keys(self):
        return [Topic.PAID]

    def execute(self, ctx):
        if ctx.step == 1:
            return Status.executing(acquire=(LockKey(Markup(path), LockKey.read("x").mode) for path in ("d",)))
        return Status.done(ctx.type_name)


@dataclass
class Child(Procedure):
    number: int

    def execute(self, ctx):
        return Status.done(self.number)


class Parent(Procedure):
    def execute(self, ctx):
        if ctx.step == 1:
            ctx.heartbeat(Number(0.5), Markup("half"))
            children = [(Markup("child"), Child(1)), (Topic.PAID, Child(2))]
            return Status.suspended(children, wait=Markup("all"), on_parent_end=Markup("abort"))
        kept = ctx.remember(Markup("kept"), lambda: 7)
        return Status.done(
            [kept, ctx.query(Markup("child"))["state"], {child: ctx.children[child].output for child in ctx.children}]
        )


class Waiter(Procedure):
    def execute(self, ctx):
        return Status.wait(Markup("event")) if ctx.event is None else Status.done(ctx.event)


class Later(Procedure):
    retry = RetryPolicy(base=Number(60))

    def execute(self, ctx):
        if ctx.attempt == 1:
            raise RetryLater(Markup("not yet"), after=Number(0.001))
        return Status.done(ctx.attempt)


def test_what_a_submit_is_given_is_stored_as_the_text_or_number_that_it_is(open_manager):
    manager = open_manager(workers=1)

    handle = manager.submit(
        Child(3),
        Markup("one"),
        Topic.PAID,
        Urgency.HIGH,
        Number(0.001),
        tags={Markup("tag")},
        limits=Limits(wall_time=Number(30), cpus=range(1)),
        limit_keys=[Markup("mail")],
    )
    other = manager.submit(Child(4), Topic.PAID, priority=Whole(2))

    assert handle.result(BOUND) == 3
    assert other.result(BOUND) == 4
    assert manager.submit(Child(3), "one").result(Number(BOUND)) == 3
    info = manager.info(Markup("one"))
    assert [type(text) for text in (handle.id, other.id, info.id, manager.get(Topic.PAID).id)] == [str] * 4
    assert (info.owner, info.tags, info.priority) == ("paid", ("tag",), 5)
    assert [found.id for found in manager.list(tag=Markup("tag"), owner=Topic.PAID)] == ["one"]
    assert manager.health().status == "running"


def test_what_a_procedure_says_of_itself_may_be_of_a_derived_class(open_manager):
    manager = open_manager(workers=1)

    assert manager.run(Keyed(), timeout=BOUND) == "keyed"
    assert manager.run(Parent(), timeout=BOUND) == [7, "SUCCESS", {"child": 1, "paid": 2}]
    assert manager.run(Later(), timeout=BOUND) == 2


def test_verbs_take_texts_of_a_derived_class(open_manager):
    manager = open_manager(workers=1)
    waiter = manager.submit(Waiter(), "waiter")

    assert manager.pause(Markup("waiter"), Markup("a reason"))
    assert manager.resume(Markup("waiter"), reason=Topic.PAID)
    manager.publish(Markup("event"), 5, Markup("once"))
    manager.publish(Markup("event"), 6, "once")  # the same one once more
    assert waiter.result(BOUND) == 5
    assert [row.reason for row in manager.audit(Markup("waiter"))] == ["a reason", "paid"]
    with manager.watch(Markup("waiter")) as changes:
        assert [change.id for change in changes][-1] == "waiter"
    assert not manager.abort(Markup("waiter"), reason=Markup("too late"))
    assert manager.delete(Markup("waiter"), Markup("no longer needed"))


def test_a_client_and_an_executor_take_ids_of_a_derived_class(open_manager, tmp_path):
    manager = open_manager(workers=1)

    with ProcedureClient(tmp_path / "state") as client:
        assert client.run(Child(1), Markup("by-client"), owner=Topic.PAID, timeout=BOUND) == 1
        assert client.get(Markup("by-client")).result(BOUND) == 1
        client.publish(Markup("news"), 1, reason=Markup("a reason"))
        assert client.logs(Markup("by-client")) == []
    with ProcedureExecutor(manager) as executor:
        assert executor.submit_as(Markup("call"), sum, [1, 2]).result(BOUND) == 3
        assert executor.get(Markup("call")).result(BOUND) == 3


@pytest.mark.parametrize(
    ("verb", "arguments", "words"),
    [
        ("abort", {"force": "the reason"}, "force is True or False"),
        ("bypass", {"children": "the reason"}, "children is True or False"),
        ("bypass", {"ancestors": 1}, "ancestors is True or False"),
        ("delete", {"force": None}, "force is True or False"),
    ],
)
def test_a_reason_in_the_place_of_a_flag_is_refused_before_it_does_harm(
    open_manager, verb: str, arguments: dict[str, Any], words: str
):
    manager = open_manager(workers=1)
    waiter = manager.submit(Waiter(), "waiter")

    with pytest.raises(TypeError, match=words):
        getattr(manager, verb)("waiter", **arguments)

    assert manager.signal("waiter", 1)
    assert waiter.result(BOUND) == 1
