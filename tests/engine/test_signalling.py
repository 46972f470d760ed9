"""Signals to procedures and events by name: receivers, payloads, lists, age, and who may withdraw them."""

from __future__ import annotations

import time
from collections import Counter, OrderedDict, deque
from dataclasses import dataclass, field, replace
from decimal import Decimal
from enum import Enum, Flag, StrEnum
from typing import Annotated, NamedTuple

import attrs
import msgspec
import pytest

from actorproc import Config, Procedure, ProcedureClient, Secret, Status
from actorproc.api.stopped import StoppedStore
from actorproc.errors import InvalidId, NotAllowed, StateNotEncodable, StateTooLarge, UnknownProcedure, UsageError
from actorproc.procedure.encoding.value_codec import PAYLOAD
from actorproc.procedure.runtime.engine_side import TypeRuntime, encode_payload
from actorproc.store.memory import MemoryStore
from actorproc.testing import InlineManager
from actorproc.testing.inline import FAST
from tests.kit.waiting import wait_until

BOUND = 30.0


class Colour(Enum):
    RED = "red"


class Topic(StrEnum):
    PAID = "paid"


class Right(Flag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    y: int


@dataclass(frozen=True)
class Approval:
    by: str
    marks: tuple[Colour, ...] = ()


@attrs.define
class Parcel:
    weight: Decimal


class Line(msgspec.Struct):
    amount: int
    note: Approval | None = None


@dataclass
class Pass:
    word: Annotated[str, Secret]


@dataclass
class Stranger:
    by: str


KNOWN = (Approval, Colour, Topic, Right, Point, Parcel, Line, Pass)
PAYLOADS = [
    Approval("Ann", (Colour.RED,)),
    Colour.RED,
    Topic.PAID,
    Right.READ | Right.WRITE,
    Point(1, 2),
    Parcel(Decimal("1.10")),
    Line(3, Approval("Bob")),
    {"of": [Colour.RED, {Point(1, 2)}, (Approval("Ann"),)]},
    {Colour.RED: Point(3, 4)},
    OrderedDict(a=Colour.RED),
    deque([Point(1, 2)], maxlen=3),
    Pass("word"),
    None,
    2**80,
    "\ud800",
]


@dataclass
class Waits(Procedure):
    event: str = "go"
    got: list = field(default_factory=list)
    uses = KNOWN

    def execute(self, ctx):
        if ctx.event is None and ctx.step == 1:
            return Status.wait(self.event)
        return Status.done(ctx.event)


@dataclass
class Parent(Procedure):
    def execute(self, ctx):
        return Status.suspended([("child", Waits())]) if ctx.step == 1 else Status.done(ctx.children["child"].output)


# ---------------------------------------------------------------- receivers
@pytest.mark.parametrize("restart", [False, True])
def test_a_signal_to_a_procedure_that_never_was_or_has_gone_is_refused(restart):
    store = MemoryStore()
    with InlineManager([Waits], store=store) as manager:
        manager.submit(Waits(), "gone")
        assert manager.signal("gone", 1, "bank-1")
        assert manager.get("gone").result(BOUND) == 1
        assert manager.signal("gone", 1, "bank-1") is False
        assert manager.delete("gone")
    with InlineManager([Waits], store=store.clone() if restart else MemoryStore()) as manager:
        for name in ("gone", "never"):
            with pytest.raises(UnknownProcedure, match=f"no procedure has the id '{name}'.*publish"):
                manager.signal(name, 1, "bank-1")
        assert manager.signals() == []
        handle = manager.submit(Waits(), "gone")
        wait_until(lambda: handle.info().phase == "waiting")
        assert manager.signal("gone", 2, "bank-1")
        assert handle.result(BOUND) == 2


def test_a_signal_to_one_that_retention_removed_is_refused_and_not_kept_for_the_next_of_its_id():
    with InlineManager([Waits], config=replace(FAST, retain_for=1)) as manager:
        manager.submit(Waits(), "invoice-7")
        manager.signal("invoice-7", "paid 10")
        assert manager.get("invoice-7").result(BOUND) == "paid 10"

        def is_gone():
            manager.clock.advance(60)
            return not manager.list()

        wait_until(is_gone)
        with pytest.raises(UnknownProcedure):
            manager.signal("invoice-7", "paid 10")
        again = manager.submit(Waits(), "invoice-7")
        wait_until(lambda: again.info().phase == "waiting")
        assert again.done() is False


def test_a_child_gets_signals_once_it_is_there():
    with InlineManager([Parent, Waits]) as manager:
        with pytest.raises(UnknownProcedure):
            manager.signal("child", 1)
        handle = manager.submit(Parent(), "root")
        wait_until(lambda: handle.info().phase == "suspended")
        assert manager.signal("child", 1)
        assert handle.result(BOUND) == 1
        assert manager.signal("child", 2) is False


def test_what_is_no_id_is_refused_with_the_call_that_takes_names():
    with InlineManager([Waits]) as manager, pytest.raises(InvalidId, match=r"publish\(\) sends an event by name"):
        manager.signal("end of the day")


@pytest.mark.parametrize("name", ["", "x" * 256, 7, None, "\ud800"])
def test_what_is_no_name_of_an_event_is_refused(name):
    with InlineManager([Waits]) as manager:
        with pytest.raises((TypeError, ValueError), match="the name of an event"):
            manager.publish(name)
        assert manager.signals() == []


# ---------------------------------------------------------------- names
@pytest.mark.parametrize("name", ["go", "with a space", "event", "event go", "x" * 255, "ä/ö\n"])
def test_an_event_of_any_name_waits_for_whichever_procedure_waits_for_it_also_over_a_restart(name):
    store = MemoryStore()
    with InlineManager([Waits], store=store) as manager:
        manager.publish(name, "early", "k")
        manager.publish(name, "early", "k")
        assert [(kept.event, kept.id, kept.number, kept.dedup) for kept in manager.signals()] == [(name, None, 1, "k")]
    with InlineManager([Waits], store=store.clone()) as manager:
        assert manager.submit(Waits(name)).result(BOUND) == "early"
        assert manager.signals() == []
        manager.publish(name, "again", "k")  # it was taken: the same one once more
        assert manager.signals() == []


def test_an_event_wakes_the_one_that_has_waited_longest_and_no_procedure_by_its_id():
    with InlineManager([Waits]) as manager:
        handles = [manager.submit(Waits(), name) for name in ("go", "b")]
        wait_until(lambda: all(handle.info().phase == "waiting" for handle in handles))
        manager.publish("b", "for nobody")
        manager.publish("go", 1)
        assert handles[0].result(BOUND) == 1
        assert handles[1].done() is False
        assert [kept.event for kept in manager.signals()] == ["b"]


def test_events_are_removed_when_they_were_kept_too_long_and_signals_are_not():
    with InlineManager([Waits], config=replace(FAST, retain_signals=50.0)) as manager:
        manager.pause()
        manager.submit(Waits(), "kept")
        manager.signal("kept", 1)
        for number in range(3):
            manager.publish("news", number)
        assert len(manager.signals()) == 4

        def has_one():
            manager.clock.advance(30)
            return [kept.id for kept in manager.signals()] == ["kept"]

        wait_until(has_one)
        manager.publish("news", "later")
        assert [kept.number for kept in manager.signals(event="news")] == [1]


@pytest.mark.parametrize("seconds", [-1, float("nan"), "week", True])
def test_an_age_that_is_none_is_refused(seconds):
    with pytest.raises(ValueError, match="retain_signals"):
        Config(retain_signals=seconds)


# ---------------------------------------------------------------- payloads
@pytest.mark.parametrize("payload", PAYLOADS, ids=repr)
@pytest.mark.parametrize("by_name", [False, True])
def test_a_payload_is_whatever_a_state_may_hold(payload, by_name):
    with InlineManager([Waits]) as manager:
        handle = manager.submit(Waits(), "w")
        manager.publish("go", payload) if by_name else manager.signal("w", payload)
        assert handle.result(BOUND) == payload


@pytest.mark.parametrize("payload", PAYLOADS, ids=repr)
def test_a_payload_has_the_bytes_that_its_receiver_would_write(payload):
    runtime = TypeRuntime.of_class(Waits)

    assert encode_payload(payload) == runtime.encode_value(payload)
    assert runtime.values.decode(encode_payload(payload), PAYLOAD + "p") == payload


@pytest.mark.parametrize("payload", [Stranger("x"), {"a": [Stranger("x")]}, Approval(Stranger("x"))])
def test_a_receiver_that_is_known_here_refuses_what_it_does_not_name(payload):
    with InlineManager([Waits]) as manager:
        handle = manager.submit(Waits(), "w")
        with pytest.raises(StateNotEncodable, match=r"payload to w .*Waits.*Stranger"):
            manager.signal("w", payload)
        assert manager.signal("w", "fine")
        assert handle.result(BOUND) == "fine"


@pytest.mark.parametrize("payload", [object(), Procedure, lambda: None, [{"deep": object()}], Counter])
def test_what_no_state_may_hold_is_refused_under_a_name_too(payload):
    with InlineManager([Waits]) as manager:
        with pytest.raises(StateNotEncodable, match="payload"):
            manager.publish("go", payload)
        assert manager.signals() == []


def test_a_procedure_that_cannot_take_a_payload_is_parked_and_goes_on_when_its_class_can():
    @dataclass
    class Narrow(Procedure):
        def execute(self, ctx):
            return Status.wait("go") if ctx.event is None else Status.done(ctx.event.by)

    def wider():
        Narrow.uses = (Stranger,)
        type_ = type("Narrow", (Narrow,), {"uses": (Stranger,), "__module__": __name__})
        type_.__qualname__, type_.type_name = Narrow.__qualname__, Narrow.type_name
        return type_

    with InlineManager([Narrow]) as manager:
        handle = manager.submit(Narrow(), "n")
        manager.publish("go", Stranger("Ann"))
        wait_until(lambda: handle.info().phase == "parked")
        assert "the payload of the event cannot be read" in handle.info().reason
        assert "Stranger" in handle.info().reason
        assert handle.info().errors == 0
        manager.register(wider())
        assert handle.result(BOUND) == "Ann"


def test_a_payload_beyond_the_limit_is_refused():
    with InlineManager([Waits], config=replace(FAST, max_state=1000)) as manager:
        manager.submit(Waits(), "w")
        for call in (lambda: manager.signal("w", "x" * 1000), lambda: manager.publish("go", Approval("x" * 1000))):
            with pytest.raises(StateTooLarge, match=r"Config\.max_state is 1000"):
                call()


# ---------------------------------------------------------------- lists and withdrawals
def test_signals_are_listed_the_oldest_first_and_withdrawn_by_receiver_name_and_number():
    with InlineManager([Waits]) as manager:
        manager.pause()
        manager.submit(Waits(), "w")
        manager.publish("go", b"12345")
        manager.clock.advance(1)
        manager.signal("w", 1, "k")
        manager.clock.advance(1)
        manager.publish("go", 2)

        found = manager.signals()
        assert [(kept.event, kept.id, kept.number, kept.dedup) for kept in found] == [
            ("go", None, 1, None),
            (None, "w", 1, "k"),
            ("go", None, 2, None),
        ]
        assert found[0].size == 7
        assert found[0].at < found[1].at < found[2].at
        assert found[0].to_dict()["event"] == "go"
        assert [kept.number for kept in manager.signals(event="go")] == [1, 2]
        assert manager.signals("w") == [found[1]]
        assert manager.signals("go") == manager.signals(event="w") == []

        assert manager.withdraw(event="go", number=1, reason="a slip") == 1
        assert manager.withdraw(event="go", number=1) == 0
        assert manager.withdraw("w") == 1
        assert manager.withdraw(event="go") == 1
        assert manager.withdraw("never") == 0
        assert manager.signals() == []
        rows = [(row.verb, row.reason, row.detail) for row in manager.audit() if row.verb != "pause"]
        assert rows == [
            ("withdraw", "a slip", "1 of event go"),
            ("withdraw", None, "1 of w"),
            ("withdraw", None, "1 of event go"),
        ]


@pytest.mark.parametrize(
    "call",
    [
        lambda manager: manager.withdraw(),
        lambda manager: manager.withdraw("w", event="go"),
        lambda manager: manager.signals("w", event="go"),
        lambda manager: manager.withdraw(event="go", number=0),
        lambda manager: manager.withdraw(event="go", number=True),
        lambda manager: manager.withdraw("no id"),
    ],
)
def test_a_withdrawal_that_says_not_what_is_refused(call):
    with InlineManager([Waits]) as manager:
        manager.publish("go", 1)
        with pytest.raises((UsageError, ValueError)):
            call(manager)
        assert len(manager.signals()) == 1


def test_reasons_of_signals_and_events_are_recorded_with_whom_they_reached():
    with InlineManager([Waits]) as manager:
        handle = manager.submit(Waits(), "w")
        wait_until(lambda: handle.info().phase == "waiting")
        manager.publish("later", 1, reason="to come")
        manager.publish("go", 1, reason="by hand")
        assert handle.result(BOUND) == 1
        assert [(row.verb, row.reason, row.detail) for row in manager.audit("w")] == [("publish", "by hand", "go")]
        assert [(row.verb, row.reason, row.detail) for row in manager.audit()] == [("publish", "to come", "later")]


# ---------------------------------------------------------------- other ways in
@pytest.mark.processes
def test_a_client_and_the_stopped_store_signal_publish_list_and_withdraw_as_a_manager_does(open_manager, tmp_path):
    manager = open_manager(workers=1, procedures=[Waits])
    with ProcedureClient(tmp_path / "state", procedures=[Waits]) as client:
        handle = client.submit(Waits(), "one")
        with pytest.raises(UnknownProcedure):
            client.signal("never", 1)
        with pytest.raises(StateNotEncodable, match="Stranger"):
            client.signal("one", Stranger("x"))
        client.publish("later", Point(1, 2))
        assert [kept.event for kept in client.signals()] == ["later"]
        assert client.withdraw(event="later") == 1
        client.publish("go", Approval("Ann"))
        assert handle.result(BOUND) == Approval("Ann")
        second = client.submit(Waits(), "two")
        wait_until(lambda: second.info().phase == "waiting")
    manager.stop()

    with StoppedStore(tmp_path / "state") as store:
        with pytest.raises(UnknownProcedure):
            store.signal("never", 1)
        assert store.signal("one", 1) is False
        store.publish("news", Colour.RED)
        assert store.signal("two", Colour.RED)
        assert [kept.event for kept in store.signals()] == ["news"]
        assert store.withdraw(event="news") == 1
        assert store.signals() == []

    with open_manager(workers=1, procedures=[Waits]) as again:
        assert again.get("two").result(BOUND) is Colour.RED


@pytest.mark.processes
def test_a_limit_of_a_wait_that_passed_while_no_manager_ran_loses_to_a_signal_to_the_stopped_store(
    open_manager, tmp_path
):
    manager = open_manager(workers=1, procedures=[Limited])
    handle = manager.submit(Limited(), "w")
    wait_until(lambda: handle.info().phase == "waiting")
    due = handle.info().due_at
    manager.stop()
    wait_until(lambda: time.time() > due)

    with StoppedStore(tmp_path / "state") as store:
        assert store.signal("w", "in time")

    assert open_manager(workers=1, procedures=[Limited]).get("w").result(BOUND) == "in time"


@dataclass
class Limited(Procedure):
    def execute(self, ctx):
        return Status.done(ctx.event) if ctx.event is not None else Status.wait("go", timeout=0.3)


def test_as_many_signals_as_may_wait_are_kept_and_the_next_is_refused(monkeypatch):
    monkeypatch.setattr("actorproc.core.lifecycle.signals.MAX_BUFFERED", 2)
    with InlineManager([Waits]) as manager:
        manager.pause()
        manager.submit(Waits(), "w")
        for _ in range(2):
            assert manager.signal("w")
        with pytest.raises(NotAllowed, match="2 signals to w are kept already"):
            manager.signal("w")
        assert manager.withdraw("w") == 2
        assert manager.signal("w")
