"""The short way of a plain step decides what the long way decides."""

from __future__ import annotations

import pytest

from actorproc.core import coordinator
from actorproc.core.state.engine_state import EngineState
from actorproc.model.messages.commands import RunStep
from actorproc.model.messages.events import StepEnded, Submitted
from actorproc.model.messages.outcomes import Advanced
from tests.core.harness import CoreHarness
from tests.simulator.core_sim.simulation import simulate


def test_the_same_histories_on_both_ways_leave_the_same_trace(monkeypatch):
    taken = 0
    short = coordinator.go_straight_on

    def counted(*arguments):
        nonlocal taken
        decision = short(*arguments)
        taken += decision is not None
        return decision

    monkeypatch.setattr(coordinator, "go_straight_on", counted)
    straight = [simulate(seed, check_every=1000).digest for seed in range(1, 301)]
    monkeypatch.setattr(coordinator, "go_straight_on", lambda *_: None)

    assert [simulate(seed, check_every=1000).digest for seed in range(1, 301)] == straight
    assert taken > 30


def _play(harness: CoreHarness, answers: int) -> list[object]:
    """Every procedure's answers in turn; what was decided, each time."""
    decisions = []
    for n in range(answers):
        runs = list(harness.inbox.values())
        for run in runs[n % 2 :]:
            unit = (None, "make", "make", "fill")[n * 7 % 4]
            answer = StepEnded(run.token, Advanced(state=bytes([n]), elapsed=0.0001 * n, unit=unit))
            harness.now += 0.001
            decision = harness.handle(answer)
            decisions.append((decision.writes, decision.commands))
    return decisions


@pytest.mark.parametrize("workers", [1, 2, 3])
def test_many_plain_steps_on_both_ways_are_decided_alike(monkeypatch, workers):
    both = []
    for way in (coordinator.go_straight_on, lambda *_: None):
        harness = CoreHarness(workers)
        monkeypatch.setattr(coordinator, "go_straight_on", way)
        for number in range(12):
            _submit(harness, f"p{number}")
        both.append(_play(harness, 20))

    assert both[0] == both[1]
    assert len(both[0]) > 100


def _submit(harness: CoreHarness, name: str) -> None:
    harness.handle(Submitted((harness.new(name),), reply=1))


def test_a_plain_step_goes_straight_on_and_one_behind_others_waits_its_turn():
    harness = CoreHarness(1)
    _submit(harness, "a")
    run = harness.inbox["a"]

    decision = coordinator.go_straight_on(
        _at(harness), StepEnded(run.token, Advanced(state=b"1")), Advanced(state=b"1")
    )

    assert decision is not None
    assert [(type(command), command.token.step) for command in decision.commands] == [(RunStep, 2)]
    harness.core._state.follow_ups.asking["b"] = None
    again = StepEnded(decision.commands[0].token, Advanced(state=b"2"))
    assert coordinator.go_straight_on(_at(harness), again, again.outcome) is None


def _at(harness: CoreHarness) -> EngineState:
    harness.core._state.decision.now = harness.now
    return harness.core._state
