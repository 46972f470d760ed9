"""How far retention is behind: counted, felt as pressure, told, and made up for."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from actorproc import procedure
from actorproc.engine.housekeeping.retention_lag import RetentionLag
from actorproc.model.policies import Retention
from actorproc.model.reports import StoreSize
from actorproc.report.health import Health
from actorproc.testing.inline import FAST, InlineManager, VirtualClock

KEPT = 10.0
"""Seconds for which roots are kept here."""


class Index:
    """The index of finish times alone: one root finished at each of these moments."""

    def __init__(self, moments):
        self.rows = [(f"p{at:09.1f}", float(at)) for at in moments]
        self.read = 0

    def finished(self, *, after, before, limit):
        found = [row for row in self.rows if (row[1], row[0]) > (after[1], after[0]) and row[1] < before][:limit]
        self.read += len(found)
        return found

    def size(self):
        return StoreSize(0, 0, len(self.rows), 0, len(self.rows))


def overdue_of(index, **policy):
    return RetentionLag(index, Retention(**{"seconds": KEPT} | policy), 1.0)


def test_what_is_overdue_is_counted_once_and_less_what_was_looked_at():
    index = Index(range(1, 10_001))
    overdue = overdue_of(index)
    overdue.begin(20_000.0)
    for _ in range(4):
        overdue.look(20_000.0, 1.0)

    assert (overdue.health().backlog, index.read) == (10_000, 10_000)
    assert overdue.health().lag == 20_000.0 - KEPT - 1.0
    for at in range(1, 4_001):
        overdue.judged(float(at))
    assert overdue.health().backlog == 6_000
    index.rows += [("late", 20_000.0)]
    overdue.look(20_020.0, 4_001.0)
    assert (overdue.health().backlog, index.read) == (6_001, 10_001)


def test_what_a_whole_pass_left_alone_stays_for_a_reason_and_is_not_overdue():
    index = Index([1, 2, 3])
    overdue = overdue_of(index)
    overdue.begin(100.0)
    overdue.look(100.0, 1.0)
    assert overdue.health().backlog == 3
    overdue.end(whole=True)
    assert overdue.health() == overdue_of(index).health()

    overdue.begin(130.0)
    index.rows.append(("p4", 115.0))
    overdue.look(131.0, 1.0)  # the pass begins at the first row again

    assert overdue.health().backlog == 1
    assert overdue.pressure == 0.0


def test_the_pressure_grows_with_the_lag_up_to_all_there_is():
    overdue = overdue_of(Index(range(1, 100)))
    overdue.begin(200.0)
    felt = []
    for late in (0.0, 1.5, 2.0, 3.0, 5.0, 50.0):
        overdue.look(200.0, 200.0 - KEPT - late)
        felt.append(overdue.pressure)

    assert felt == sorted(felt)
    assert (felt[0], felt[1], felt[-2], felt[-1]) == (0.0, 0.0, 1.0, 1.0)


def test_a_surplus_is_a_backlog_too():
    overdue = overdue_of(Index(range(100)), seconds=None, count=30)
    overdue.begin(500.0)
    overdue.look(503.0, None)

    assert (overdue.health().backlog, overdue.health().lag) == (70, 3.0)


def test_who_falls_behind_is_told_once_and_again_when_it_has_caught_up(caplog):
    overdue = overdue_of(Index(range(1, 100)))
    with caplog.at_level(logging.INFO, "actorproc"):
        overdue.begin(200.0)
        overdue.look(200.0, 100.0)
        overdue.look(201.0, 100.0)
        overdue.end(whole=True)

    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    assert "99 finished procedures should have been removed" in caplog.text
    assert "caught up" in caplog.text


@procedure
def double(ctx, number: int) -> int:
    return 2 * number


@pytest.mark.parametrize("interval", [30.0, 0.2])
def test_what_is_to_be_removed_is_gone_soon_and_nothing_is_behind_then(interval, until):
    clock = VirtualClock()
    config = replace(FAST, retain_for=5.0, sweep_interval=interval)
    with InlineManager([double], clock=clock, config=config) as manager:
        for handle in manager.submit_many([double(number) for number in range(700)]):
            handle.result(30)
        clock.advance(7)
        until(lambda: manager.metrics().store_procedures == 0)
        until(lambda: manager.health().retention.backlog == 0)

        assert manager.health().retention == Health.stopped().retention
        assert manager.metrics().retention_lag == 0.0
        assert "actorproc_retention_backlog 0\n" in manager.metrics().prometheus()


def test_a_manager_far_behind_says_so_in_its_health(monkeypatch, until):
    clock = VirtualClock()
    config = replace(FAST, retain_for=3600.0, sweep_interval=1.0)
    monkeypatch.setattr("actorproc.engine.housekeeping.retention_sweeper.CHUNK", 1)
    with InlineManager([double], clock=clock, config=config) as manager:
        for handle in manager.submit_many([double(number) for number in range(3000)]):
            handle.result(30)
        clock.advance(7200)
        until(lambda: manager.health().retention.is_behind)
        health = manager.health()

        assert health.retention.backlog > 0
        assert health.retention.lag > 3000
        assert any("retention is behind" in problem for problem in health.problems)
        assert (health.status, health.ok) == ("running", True)
        until(lambda: manager.metrics().store_procedures == 0)
