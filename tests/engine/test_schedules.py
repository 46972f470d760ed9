"""Schedules of a running manager: declared, fired, steered, and seen from the outside."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pytest

from actorproc import Calendar, InvalidId, Procedure, StateTooLarge, Status, UnknownProcedure, UsageError
from actorproc.api.queries import StoredQueries
from actorproc.store.memory import MemoryStore
from actorproc.testing import InlineManager, VirtualClock
from tests.kit.waiting import wait_until

HOUR = timedelta(hours=1)


@dataclass
class Etl(Procedure):
    table: str = "orders"

    def execute(self, ctx):
        return Status.done([self.table, ctx.scheduled_at])


@dataclass
class Gate(Procedure):
    def execute(self, ctx):
        return Status.wait("open") if ctx.step == 1 else Status.done()


class Pickled(Etl):
    codec = "pickle"


def firings(manager: InlineManager, id: str = "nightly") -> list[str]:
    return [info.id for info in manager.list(tag=f"schedule:{id}")]


def skip_until(manager: InlineManager, condition) -> None:
    """Let time pass from one thing that happens to the next."""

    def skipped() -> bool:
        manager.skip()
        return condition()

    wait_until(skipped)


def test_a_schedule_starts_procedures_that_know_their_instant() -> None:
    with InlineManager() as manager:
        info = manager.schedule("0 2 * * *", Etl("items"), id="nightly", timezone="Europe/Berlin", tags=["etl"])
        assert (info.rule, info.timezone, info.state, info.declared) == ("0 2 * * *", "Europe/Berlin", "active", True)
        assert len(info.upcoming) == 5
        skip_until(manager, lambda: manager.schedule_info("nightly").firings >= 3)
        first, second, *_ = firings(manager)
        at = datetime.fromtimestamp(info.upcoming[0], UTC)
        assert first == f"nightly@{at:%Y-%m-%dT%H:%M:%SZ}"
        assert manager.get(first).result(timeout=60) == ["items", at]
        assert manager.get(second).result(timeout=60) == ["items", datetime.fromtimestamp(info.upcoming[1], UTC)]
        assert manager.info(first).tags == ("etl", "schedule:nightly")
        assert manager.why("nightly").says.startswith("schedule nightly: fires next at")


def test_what_is_no_longer_declared_goes_on_and_is_listed_as_such() -> None:
    store, clock = MemoryStore(), VirtualClock()
    with InlineManager(store=store, clock=clock) as manager:
        manager.schedule(HOUR, Etl(), id="old")
        manager.schedule(HOUR, Etl(), id="new")
        before = manager.schedule_info("new").upcoming
    with InlineManager([Etl], store=store, clock=clock) as manager:
        manager.schedule(HOUR, Etl(), id="new")
        assert [(info.id, info.declared) for info in manager.schedules()] == [("new", True), ("old", False)]
        assert manager.schedule_info("new").upcoming == before, "a restart moves nothing"
        skip_until(manager, lambda: manager.schedule_info("old").firings == 1)
        assert "If none is to do so, actorproc schedules old --remove" in manager.why("old").says
        manager.unschedule("old", "not needed", by="ann")
        assert [info.id for info in manager.schedules()] == ["new"]
        row = next(row for row in manager.audit() if row.verb == "schedules")
        assert (row.reason, row.by, row.detail) == ("not needed", "ann", "remove old")
        with pytest.raises(UnknownProcedure):
            manager.unschedule("old")


def test_a_schedule_that_waits_says_for_what() -> None:
    with InlineManager() as manager:
        manager.schedule(HOUR, Gate(), id="gated", overlap="queue")
        skip_until(manager, lambda: len(manager.schedule_info("gated").waiting) >= 2)
        cause = manager.why("gated")
        assert "waits for gated@" in cause.says
        assert cause.causes[0].procedure == manager.schedule_info("gated").last_id
        manager.signal(manager.schedule_info("gated").last_id)
        wait_until(lambda: manager.schedule_info("gated").firings == 2)


def test_pause_resume_and_reset_are_recorded() -> None:
    with InlineManager() as manager:
        manager.schedule(Calendar(at=["02:00", "14:00"], weekdays=["mon", "fri"]), Etl(), id="twice")
        manager.pause_schedule("twice", "audit", by="ann")
        assert manager.schedule_info("twice").reason == "audit"
        assert "is paused: audit" in manager.why("twice").says
        manager.clock.advance(timedelta(days=8))
        assert manager.resume_schedule("twice") is True
        assert manager.resume_schedule("twice") is False
        manager.reset_schedule("twice")
        assert manager.schedule_info("twice").firings == 0, "paused time is not missed time"
        done = {row.detail for row in manager.audit() if row.verb == "schedules"}
        assert {"pause twice", "resume twice", "reset twice"} <= done


def test_a_firing_may_be_retained_for_less_than_the_period() -> None:
    from actorproc import Config

    config = Config(retain_for=3600, sweep_interval=60, spares=0)
    with InlineManager(config=config) as manager:
        manager.schedule("0 0 1 * *", Etl(), id="monthly")
        skip_until(manager, lambda: manager.schedule_info("monthly").firings >= 3)
        assert manager.schedule_info("monthly").passed == 0


class SharedStore(MemoryStore):
    """One that the manager which lost it does not close for the other one."""

    def close(self) -> None:
        pass


def test_of_two_managers_on_one_store_one_fires() -> None:
    store, clock = SharedStore(), VirtualClock()
    with InlineManager([Etl], store=store, clock=clock) as first:
        first.schedule(HOUR, Etl(), id="hourly")
        skip_until(first, lambda: first.schedule_info("hourly").firings == 1)
        with InlineManager([Etl], store=store, clock=clock) as second:
            second.schedule(HOUR, Etl(), id="hourly")
            clock.advance(HOUR)  # both wake up, and one is fenced off
            skip_until(second, lambda: second.schedule_info("hourly").firings == 3)
            names = firings(second, "hourly")
            assert len(names) == len(set(names)) == 3
            assert second.schedule_info("hourly").passed == 0


def test_one_schedule_is_declared_and_read_without_a_look_at_the_others(monkeypatch) -> None:
    with InlineManager() as manager:
        manager.schedule(HOUR, Etl(), id="other")
        monkeypatch.setattr(StoredQueries, "schedules", None)
        info = manager.schedule(HOUR, Etl(), id="s")
        assert manager.schedule_info("s") == info
        assert manager.why("s").kind == "schedule"
        for read in (manager.schedule_info, manager.why):
            with pytest.raises(UnknownProcedure):
                read("neither")


@pytest.mark.parametrize(
    ("when", "options", "error", "says"),
    [
        ("0 2 * *", {}, ValueError, "4 fields"),
        ("* * * * * *", {}, ValueError, "seconds=True"),
        ("0 2 * * *", {"seconds": True}, ValueError, "5 fields"),
        ("61 2 * * *", {}, ValueError, "minute"),
        ("0 0 30 2 *", {}, ValueError, "day-of-month"),
        ("@reboot", {}, ValueError, "@daily"),
        ("0 2 ? * *", {}, ValueError, "day-of-month"),
        (0, {}, ValueError, "interval"),
        (0.5, {}, ValueError, "whole number"),
        (None, {}, TypeError, "cron expression"),
        (HOUR, {"timezone": "Europe/Berln"}, ValueError, "Europe/Berlin"),
        (HOUR, {"timezone": 3}, TypeError, "time zone"),
        (HOUR, {"timezone": "localtime"}, ValueError, "on each machine"),
        (HOUR, {"timezone": "right/Europe/Berlin"}, ValueError, "leap seconds"),
        (HOUR, {"catch_up": "first"}, ValueError, "catch_up"),
        (HOUR, {"overlap": 3}, TypeError, "overlap"),
        (HOUR, {"jitter": -1}, ValueError, "jitter"),
        (HOUR, {"jitter": 1e12}, ValueError, "jitter=1e.12 is longer"),
        (HOUR, {"deadline": timedelta(days=40_000)}, ValueError, "deadline=.* is longer"),
        (HOUR, {"until": 5}, ValueError, "until"),
        (HOUR, {"tags": map(str, range(100))}, ValueError, "101 tags"),
        (HOUR, {"id": "a b"}, InvalidId, "a b"),
        (HOUR, {"id": "a" * 108}, InvalidId, "107"),
        (HOUR, {"procedure": Etl("x" * 100_000)}, StateTooLarge, "65536"),
        (HOUR, {"procedure": Pickled()}, UsageError, "pickle"),
    ],
)
def test_what_makes_no_sense_is_refused_in_words(when, options, error, says) -> None:
    options = {"id": "s", "procedure": Etl()} | options
    with InlineManager() as manager:
        with pytest.raises(error, match=says):
            manager.schedule(when, options.pop("procedure"), **options)
        assert manager.schedules() == []


def test_day_fields_that_are_both_given_are_warned_of(caplog) -> None:
    with InlineManager() as manager:
        manager.schedule("0 0 13 * 5", Etl(), id="friday")
        assert "or the weekday" in caplog.text
        manager.schedule("0 0 14 * *", Etl(), id="friday")
        assert "is '0 0 14 * *' (UTC) now" in caplog.text


def test_without_the_library_a_cron_expression_names_the_extra(monkeypatch) -> None:
    import sys

    from actorproc.support.recurrence import rule_of

    rule_of.cache_clear()
    monkeypatch.setitem(sys.modules, "cronsim", None)
    with InlineManager() as manager:
        with pytest.raises(ValueError, match=r"actorproc\[schedules\]"):
            manager.schedule("0 2 * * *", Etl(), id="nightly")
        assert manager.schedule(Calendar("02:00"), Etl(), id="nightly").upcoming
    rule_of.cache_clear()
