"""Workers and steps that live on while memory is rebuilt after a failed commit."""

from __future__ import annotations

import pytest

from actorproc.core.coordinator import Coordinator
from actorproc.model.ids import WorkerId
from actorproc.model.messages.commands import KillWorker
from actorproc.model.messages.events import (
    AbortRequested,
    BypassRequested,
    WorkerReady,
)
from actorproc.model.messages.outcomes import Finished, Suspended, Waited
from tests.core.harness import CoreHarness, image_of

DONE = Finished(state=b"")


def test_after_a_failed_commit_nobody_pays_for_a_step_that_ran_beside_it() -> None:
    harness = CoreHarness(1, threads=2)
    harness.submit(harness.new("a"), harness.new("b"))
    worker = WorkerId(0, 1)
    tokens = tuple(harness.inbox[name].token for name in ("a", "b"))
    assert {token.worker for token in tokens} == {worker}

    # Memory is made anew; the worker lived on.
    known = ((WorkerReady(worker, threads=2), tokens),)
    harness.core, _ = Coordinator.restore(image_of(harness).snapshot(), 0.0, workers=known)
    harness.register("T", threads=2)
    harness.kill(0)

    for name in ("a", "b"):
        record = harness.core.view(name)
        assert record is not None
        assert record.crashes == 0, "either of them may have done it"


def test_after_a_failed_commit_a_step_that_runs_beside_another_is_killed_by_force() -> None:
    harness = CoreHarness(1, threads=2)
    harness.submit(harness.new("a"), harness.new("b"))
    known = ((WorkerReady(WorkerId(0, 1), threads=2), tuple(harness.inbox[name].token for name in ("a", "b"))),)
    harness.core, _ = Coordinator.restore(image_of(harness).snapshot(), 0.0, workers=known)
    harness.register("T", threads=2)

    harness.handle(AbortRequested("b", 2, force=True))

    assert [kill.token.procedure for kill in harness.kills()] == ["b"]


def test_nobody_is_suspected_for_ever_of_having_killed_a_worker() -> None:
    harness = CoreHarness(1, threads=2)
    harness.submit(harness.new("a"), harness.new("b"))
    harness.kill(0)
    for name in ("a", "b"):
        harness.handle(AbortRequested(name, 2, force=True))
    assert set(harness.resolved()) == {"a", "b"}

    assert not harness.core._state.workers.suspects  # with a suspect about, every step of everybody takes the long way


@pytest.mark.parametrize("force", [False, True])
def test_after_a_failed_commit_a_step_of_who_is_bypassed_is_killed_only_by_force(*, force: bool) -> None:
    harness = CoreHarness(3)
    harness.submit(harness.new("r"))
    harness.answer("r", Suspended(state=b"", children=(harness.new("quick"), harness.new("b")), wait="any"))
    harness.answer("quick", DONE)
    harness.answer("b", Waited(state=b"", event="go"))
    token = harness.inbox["r"].token
    harness.handle(BypassRequested("b", 2, ancestors=True, force=force))
    kills = [kill.token for kill in harness.kills()]
    assert kills == [token] * force

    # Memory is made anew; the worker lived on.
    known = ((WorkerReady(token.worker), (token,)),)
    _, decision = Coordinator.restore(image_of(harness).snapshot(), 0.0, workers=known)

    assert [command.token for command in decision.commands if isinstance(command, KillWorker)] == kills
