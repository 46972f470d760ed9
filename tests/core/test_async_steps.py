"""Async steps as the core sees them: cancelled without an end of their worker, and never beside plain ones."""

from __future__ import annotations

import pytest

from actorproc.model.crash_report import CrashReport
from actorproc.model.messages.commands import AskAbort
from actorproc.model.messages.events import AbortRequested, KillRequested
from actorproc.model.messages.outcomes import Advanced, Finished, Stopped
from actorproc.model.states import ProcedureState
from tests.core.harness import CoreHarness, difference, heads_of, restarted

DONE = Finished(state=b"")


def stopped(kind="timeout"):
    return Stopped(report=CrashReport(kind=kind, message="it was to end"))


@pytest.mark.parametrize("kind", ["timeout", "heartbeat-limit"])
def test_a_step_that_was_cancelled_for_a_limit_has_failed_by_it_and_its_worker_goes_on(kind):
    harness = CoreHarness(1, tasks=10)
    harness.submit(harness.new("a"), harness.new("b"))

    harness.answer("a", stopped(kind))

    assert harness.state("a") is ProcedureState.FAILED
    error = heads_of(harness)["a"].error
    assert (error.type_name, error.crash.kind, heads_of(harness)["a"].crashes) == ("StepTimeout", kind, 0)
    harness.answer("b", DONE)
    assert harness.state("b") is ProcedureState.SUCCESS
    assert difference(harness) is None


@pytest.mark.parametrize(
    ("outcome", "undone", "end"),
    [
        (stopped(), ["a:"], ProcedureState.ROLLEDBACK),
        (Advanced(state=b"1"), ["a:"], ProcedureState.ROLLEDBACK),
        (DONE, [], ProcedureState.SUCCESS),
    ],
    ids=["stopped", "executing", "done"],
)
def test_an_abort_kills_an_async_step_at_once_and_an_answer_that_came_before_counts(outcome, undone, end):
    harness = CoreHarness(1, tasks=10, rollback_supported=True)
    harness.submit(harness.new("a", unit=""), harness.new("b"))

    harness.handle(AbortRequested("a", 2))

    assert [kill.token.procedure for kill in harness.kills()] == ["a"]
    assert any(isinstance(command, AskAbort) for command in harness.commands)
    harness.answer("a", outcome)
    assert harness.undo_all() == undone
    assert harness.state("a") is end
    assert "b" in harness.inbox


def test_abort_grace_gives_an_async_step_time_and_infinity_all_of_it():
    for grace in (5.0, float("inf")):
        harness = CoreHarness(1, tasks=10, abort_grace=grace)
        harness.submit(harness.new("a"))
        harness.handle(AbortRequested("a", 2))
        assert not harness.kills()


def test_an_attempt_that_an_operator_ends_runs_again():
    harness = CoreHarness(1, tasks=10)
    harness.submit(harness.new("a"))
    harness.handle(KillRequested("a", 2))

    harness.answer("a", stopped("killed"))

    assert harness.inbox["a"].token.attempt == 2
    assert heads_of(harness)["a"].crashes == 0


def test_an_answer_of_a_step_that_is_not_in_hand_any_more_changes_nothing():
    harness = CoreHarness(2, tasks=10)
    harness.submit(harness.new("a"))
    stale = harness.inbox["a"]
    harness.kill(0)
    harness.inbox["a"], again = stale, harness.inbox["a"]

    harness.answer("a", stopped())

    assert again.token.attempt == 2
    assert harness.state("a") is ProcedureState.RUNNABLE


def test_async_steps_plain_ones_and_those_on_threads_never_share_a_worker():
    harness = CoreHarness(2, tasks=10)
    harness.register("Plain")
    harness.register("Threaded", threads=10)
    harness.submit(harness.new("a"), harness.new("t", "Threaded"), harness.new("b"), harness.new("u", "Threaded"))
    harness.submit(harness.new("p", "Plain"))

    slots = {name: run.token.worker.slot for name, run in harness.inbox.items()}
    assert slots["a"] == slots["b"] != slots["t"] == slots["u"]
    assert "p" not in slots
    harness.answer("a", DONE)
    assert "p" not in harness.inbox
    harness.answer("b", DONE)
    assert harness.inbox["p"].token.worker.slot == slots["a"]


def test_after_a_crash_of_unknown_cause_each_of_the_steps_runs_by_itself():
    harness = CoreHarness(1, tasks=10)
    harness.submit(harness.new("a"), harness.new("b"))
    harness.kill(0)
    again = restarted(harness)

    assert [heads_of(again)[name].crashes for name in ("a", "b")] == [0, 0]
