"""The same submit under the same id, by code that has changed since: the handle, or the fields that differ."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

import pytest

from actorproc import DuplicateProcedure, Procedure, Saga, StateMachineProcedure, Status, procedure, step
from actorproc.store.memory import MemoryStore
from actorproc.testing.inline import FAST, InlineManager


class Ends(Procedure):
    def execute(self, ctx):
        return Status.done(1)


def plain(**line):
    @dataclass
    class Report(Ends, type_name="Report", **line):
        day: str
        tags: tuple = ()

    return Report


def with_default(**line):
    @dataclass
    class Report(Ends, type_name="Report", **line):
        tags: tuple = ()
        fmt: str = "pdf"
        day: str = ""
        more: list = field(default_factory=list)

    return Report


def migrating():
    @dataclass
    class Report(Ends, type_name="Report"):
        date: str
        tags: tuple = ()
        version = 2

        @classmethod
        def migrate(cls, data, from_version):
            return {"date": data["day"], "tags": data["tags"]}

    return Report


def unreadable(number):
    @dataclass
    class Report(Ends, type_name="Report"):
        date: str
        tags: tuple = ()
        version = number

    return Report


def saga_of(*names):
    def one(self, ctx):
        return 1

    body = {"__annotations__": {"day": "str"}, "type_name": "Report", **{name: step(one) for name in names}}
    return type("Report", (Saga,), body)


def machine_of(*names):
    states = Enum("States", names)

    @dataclass
    class Report(StateMachineProcedure):
        day: str
        type_name = "Report"
        initial_state = states[names[0]]

        def execute_from_state(self, ctx, state):
            return None

    return Report


def submitted_twice(yesterday, first, today, again):
    store = MemoryStore()
    with InlineManager([yesterday], store=store, config=FAST) as manager:
        manager.run(first, id="r1")
    with InlineManager([today], store=store, config=FAST) as manager:
        handle = manager.submit(again, id="r1")
        [many] = manager.submit_many([("r1", again)])
        assert manager.run(again, id="r1") == handle.result(timeout=10) == many.result(timeout=10)
        assert len(manager.list()) == 1


@pytest.mark.parametrize(
    ("yesterday", "today"),
    [
        (plain(), plain()),
        (plain(), with_default()),
        (plain(), migrating()),
        (saga_of("a", "b"), saga_of("first", "a", "b")),
        (saga_of("a", "b"), saga_of("b", "a")),
        (saga_of("a", "b"), saga_of("renamed", "b")),
        (machine_of("ONE", "TWO"), machine_of("ZERO", "ONE")),
    ],
)
def test_the_same_submit_gives_the_handle_whatever_the_code_has_become(yesterday, today):
    submitted_twice(yesterday, yesterday(day="monday"), today, today(**{_day(today): "monday"}))


def _day(cls):
    return "date" if "date" in cls.__dataclass_fields__ else "day"


@pytest.mark.parametrize("today", [plain(), with_default(), migrating()])
def test_another_submit_is_refused_with_the_fields_that_differ(today):
    yesterday = plain()
    with pytest.raises(DuplicateProcedure, match=f"'{_day(today)}' differs"):
        submitted_twice(yesterday, yesterday("monday"), today, today(**{_day(today): "tuesday"}))


def test_all_fields_that_differ_are_named():
    today = with_default()
    with pytest.raises(DuplicateProcedure, match="'fmt', 'day' differ;"):
        submitted_twice(plain(), plain()("monday"), today, today(day="tuesday", fmt="csv"))


def test_where_nothing_can_be_compared_type_and_version_decide():
    newer, same = unreadable(3), unreadable(1)

    submitted_twice(plain(), plain()("monday"), newer, newer("tuesday"))
    with pytest.raises(DuplicateProcedure, match=r"cannot be compared.*migrate"):
        submitted_twice(plain(), plain()("monday"), same, same("monday"))


def test_nested_values_and_parameters_of_functions_are_compared_as_they_are_read_today():
    def edition(*more):
        @dataclass
        class Line:
            sku: str
            if more:
                count: int = 1

        Line.__qualname__ = "Line"

        @dataclass
        class Report(Ends, type_name="Report"):
            line: Line
            uses = (Line,)

        return Report, Line

    (first, old_line), (second, new_line) = edition(), edition(1)
    submitted_twice(first, first(old_line("pen")), second, second(new_line("pen")))
    with pytest.raises(DuplicateProcedure, match="'line' differs"):
        submitted_twice(first, first(old_line("pen")), second, second(new_line("pen", 2)))


def test_a_parameter_with_a_default_may_be_added_to_a_function():
    def yesterday(day):
        return day

    def today(day, fmt="pdf"):
        return day

    yesterday.__qualname__ = today.__qualname__ = "report"
    yesterday, today = procedure(yesterday), procedure(today)
    submitted_twice(yesterday, yesterday("monday"), today, today("monday"))
    with pytest.raises(DuplicateProcedure, match="'day'"):
        submitted_twice(yesterday, yesterday("monday"), today, today("tuesday"))


def test_of_many_none_is_submitted_when_one_is_another():
    store, today = MemoryStore(), with_default()
    with InlineManager(store=store, config=FAST) as manager:
        manager.run(plain()("monday"), id="r1")
    with InlineManager([today], store=store, config=FAST) as manager:
        with pytest.raises(DuplicateProcedure):
            manager.submit_many([("r2", today(day="x")), ("r1", today(day="tuesday"))])
        assert [info.id for info in manager.list()] == ["r1"]
        manager.submit_many([("r2", today(day="x")), ("r1", today(day="monday"))])
        assert [info.id for info in manager.list()] == ["r1", "r2"]


@pytest.mark.parametrize("codec", ["data", "pickle"])
def test_a_submit_is_compared_in_a_real_store(open_manager, codec):
    yesterday, today = plain(codec=codec), with_default(codec=codec)
    first = open_manager(workers=1)
    first.run(yesterday("monday", ("a", "b")), id="r1", timeout=30)
    first.stop()

    second = open_manager(workers=1)
    assert second.run(today(day="monday", tags=("a", "b")), id="r1", timeout=30) == 1
    with pytest.raises(DuplicateProcedure, match="'tags' differs"):
        second.submit(today(day="monday", tags=("a", "c")), id="r1")
