"""Every place of every small scenario: one disturbance there changes no outcome and breaks no promise."""

from __future__ import annotations

import pytest

from actorproc.core.book import Book
from actorproc.core.staff import Staff
from actorproc.model.writes import PutUndo
from actorproc.testing.crash_points import (
    Place,
    play_scenario,
    run_everything_twice,
    try_every_crash_point,
)
from actorproc.testing.faults import FaultKind
from actorproc.testing.small_scenarios import SMALL_SCENARIOS

EXECUTIONS = {
    "two-step saga": 2,
    "parent with two children": 7,
    "failing child with rollback": 2 + 2 + 3 + 3 + 2 + 2,
    "resuming parent with a failing child": 3 + 2 + 2 + 2,
    "two trees contend for a lock": 3 + 2 + 2 + 2 + 2,
    "step-scoped locks with undo": 3 + 3 + 2,
    "sleep and signal": 4,
    "retry with backoff": 2 + 3 + 1,
    "rollback retry": 4 + 1 + 2 + 2 + 2,
}
"""Runs of a step or a rollback step when nothing disturbs: forward steps, then undo."""
ORDERS = 2


@pytest.mark.parametrize("name", SMALL_SCENARIOS)
def test_no_single_disturbance_changes_an_outcome(name: str) -> None:
    report = try_every_crash_point(SMALL_SCENARIOS[name]())

    assert report.problems == []
    at_least = EXECUTIONS[name] * ORDERS
    for kind in (FaultKind.WORKER_BEFORE, FaultKind.WORKER_DURING, FaultKind.WORKER_AFTER, FaultKind.ANSWER_TWICE):
        assert report.points[kind] >= at_least, kind
    for kind in Place:
        # Plain, with a late answer, and with a second death before or after the next commit.
        assert report.points[kind] >= 4 * at_least, kind
    for kind in (FaultKind.COMMIT_LOST, FaultKind.COMMIT_UNKNOWN):
        assert report.points[kind] >= EXECUTIONS[name], kind
    for kind in (FaultKind.HOST_BEFORE_COMMIT, FaultKind.HOST_AFTER_COMMIT):
        assert report.points[kind] >= 4 * EXECUTIONS[name], kind


@pytest.mark.parametrize("name", SMALL_SCENARIOS)
def test_an_undisturbed_scenario_runs_each_step_as_often_as_it_is_written(name: str) -> None:
    played = play_scenario(SMALL_SCENARIOS[name]())

    assert played.violations == []
    assert played.executions.total() == EXECUTIONS[name]


@pytest.mark.parametrize("name", SMALL_SCENARIOS)
def test_every_step_and_every_rollback_step_may_run_twice(name: str) -> None:
    played, problems = run_everything_twice(SMALL_SCENARIOS[name]())

    assert problems == []
    retried = set(played.retried)
    assert {key: count for key, count in played.executions.items() if count != 2 and key not in retried} == {}
    assert (name == "retry with backoff") == bool(retried)


def test_a_crash_point_is_the_same_in_every_run() -> None:
    name = "two trees contend for a lock"

    assert play_scenario(SMALL_SCENARIOS[name]()).journal == play_scenario(SMALL_SCENARIOS[name]()).journal


def test_crash_points_find_a_planted_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Staff.lose
    monkeypatch.setattr(Staff, "lose", lambda self, worker: honest(self, worker)[:0])

    report = try_every_crash_point(SMALL_SCENARIOS["two-step saga"]())

    assert any("worker dies" in problem for problem in report.problems)


def test_memory_that_differs_from_the_store_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = Book.write
    monkeypatch.setattr(Book, "write", lambda self, write: None if type(write) is PutUndo else honest(self, write))

    report = try_every_crash_point(SMALL_SCENARIOS["two-step saga"]())

    assert any("memory is not what a restart would give" in problem for problem in report.problems)
