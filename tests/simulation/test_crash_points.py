"""Every place of every small scenario: one disturbance there changes no outcome and breaks no promise."""

from __future__ import annotations

import pytest

from actorproc.core.queues.worker_table import WorkerTable
from actorproc.core.state.parts.decision import PendingDecision
from actorproc.model.rows.writes import PutUndo
from tests.simulator.core_sim.faults import FaultKind
from tests.simulator.scenarios.crash_points import (
    CrashPlace,
    play_scenario,
    run_everything_twice,
    try_every_crash_point,
)
from tests.simulator.scenarios.small_scenarios import SMALL_SCENARIOS

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
    "tags and fields": (5 + 1 + 5 + 1 + 4 + 1) + (5 + 5),
    "wait for any child": 3 + 2 + 1 + 1,
    "wait for each child": 3 + 2 + 1,
    "children that outlive their parent": 3 + 2 + 2,
    "few children at a time": 2 + 1 + 2 + 1 + 2,
    "quotas exceeded": (2 + 2) + (1 + 1 + 1 + 1) + (2 + 2),
    "a step poisons and takes back": 4 + 2,
    "poisoned until an operator clears it": 2 + 1,
    "rollback that gives up": 2 + 1 + 6 + 2,
    "step-scoped locks asked for later": 3 + 3,
    "deadlock of two trees": 3 + 2 + 2,
    "signals to an id and to a name": 3 + 2,
    "asks and their replies": (4 + 1) + 3,
    "an ask whose step is undone": 3 + 3,
    "forced abort": 2 + 2,
    "forced abort of a tree": 1 + 1 + 2,
    "abort of a tree with little patience": 1 + 1 + 2,
    "race with an endless loser": 2 + 2 + 1 + 1,
    "retry of a rollback that gave up": 2 + 6 + 1 + 2,
    "retry of a failed step": 1 + 3 + 3 + 1,
    "bypass of a suspended parent": 2 + 2 + 2 + 2,
    "kill of an attempt": 3 + 2,
    "pause and resume": 2 + 3 + 2,
    "pause of the whole manager": 3 + 2,
    "reload of the workers": 3 + 3,
    "results that are taken": 1 + 1 + 2,
    "start behind a gate": 2,
    "restart of an undone tree": 2 * (2 + 1 + 1 + 2 + 1 + 1),
    "restart of what succeeded": 3 * 2,
    "restart by id": 2 * (2 + 2),
    "fork of one that runs": 2 * 2,
    "limited wait for a lock": 2,
    "debounced submits": 3 * 2,
    "roots with the success of a step": (2 + 1) + 2 + 1,
    "schedule whose instants wait for each other": 3 * 3,
    "schedule that cancels what it has started": 3 + (2 + 2) + 3,
    "delete by hand": 2 * (2 + 1 + 1),
    "expiry of a tree": 2 + 1 + 1 + 2,
    "one at a time by a key": 3 + 2 + 2 + 2 + 2,
    "few starts by a key": 2 + 2 + 2,
    "one root at a time": 2 + 2,
    "worker of its own": 3 + 2,
}
"""Runs of a step or a rollback step when nothing disturbs: forward steps, then undo."""
ENDLESS = {
    "forced abort",
    "forced abort of a tree",
    "abort of a tree with little patience",
    "race with an endless loser",
}
"""Each has one step that never answers."""
COUNTS_ATTEMPTS = {"retry of a rollback that gave up", "retry of a failed step"}
"""Lost answers are attempts too, so with all of them lost nothing fails that often."""
ANSWERED_OFTEN = {
    "retry with backoff",
    "rollback that gives up",
    "restart by id",
    "restart of an undone tree",
    "restart of what succeeded",
    "delete by hand",
    "results that are taken",
} | ENDLESS
"""Steps that are retried, or that run again under a removed id, answer more than once; the one that hangs never does."""
ORDERS = 2


@pytest.mark.parametrize("name", SMALL_SCENARIOS)
def test_no_single_disturbance_changes_an_outcome(name: str) -> None:
    report = try_every_crash_point(SMALL_SCENARIOS[name]())

    assert report.problems == []
    at_least = EXECUTIONS[name] * ORDERS
    answers = at_least - ORDERS * (name in ENDLESS)
    for kind in (FaultKind.WORKER_BEFORE, FaultKind.WORKER_DURING):
        assert report.points[kind] >= at_least, kind
    for kind in (FaultKind.WORKER_AFTER, FaultKind.ANSWER_TWICE):
        assert report.points[kind] >= answers, kind
    for kind in (CrashPlace.BEFORE_HEARD, CrashPlace.AFTER_HEARD):
        # Plain and with a late answer; in one of the orders with a second death before or after the next commit too.
        assert report.points[kind] >= 3 * answers, kind
    for kind in (FaultKind.COMMIT_LOST, FaultKind.COMMIT_UNKNOWN):
        assert report.points[kind] >= EXECUTIONS[name], kind
    for kind in (FaultKind.HOST_BEFORE_COMMIT, FaultKind.HOST_AFTER_COMMIT, CrashPlace.AFTER_ACTING):
        assert report.points[kind] >= 3 * EXECUTIONS[name], kind


@pytest.mark.parametrize("name", SMALL_SCENARIOS)
def test_an_undisturbed_scenario_runs_each_step_as_often_as_it_is_written(name: str) -> None:
    played = play_scenario(SMALL_SCENARIOS[name]())

    assert played.violations == []
    assert played.executions.total() == EXECUTIONS[name]


@pytest.mark.parametrize("name", sorted(SMALL_SCENARIOS.keys() - COUNTS_ATTEMPTS))
def test_every_step_and_every_rollback_step_may_run_twice(name: str) -> None:
    played, problems = run_everything_twice(SMALL_SCENARIOS[name]())

    assert problems == []
    others = {key: count for key, count in played.executions.items() if count != 2}
    assert others.keys() == {key for key in played.executions if played.answered[key] != 1}
    assert (name in ANSWERED_OFTEN) == bool(others)


def test_a_crash_point_is_the_same_in_every_run() -> None:
    name = "two trees contend for a lock"

    assert play_scenario(SMALL_SCENARIOS[name]()).journal == play_scenario(SMALL_SCENARIOS[name]()).journal


def test_crash_points_find_a_planted_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = WorkerTable.lose
    monkeypatch.setattr(WorkerTable, "lose", lambda self, worker: honest(self, worker)[:0])

    report = try_every_crash_point(SMALL_SCENARIOS["two-step saga"]())

    assert any("worker dies" in problem for problem in report.problems)


def test_memory_that_differs_from_the_store_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = PendingDecision.write
    monkeypatch.setattr(
        PendingDecision, "write", lambda self, write: None if type(write) is PutUndo else honest(self, write)
    )

    report = try_every_crash_point(SMALL_SCENARIOS["two-step saga"]())

    assert any("memory is not what a restart would give" in problem for problem in report.problems)
